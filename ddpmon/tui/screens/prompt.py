"""A line at the bottom of the screen in which a filter is typed."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from ddpmon.tui.filters import Filter, FilterError, parse
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, cut
from ddpmon.tui.palette import Palette
from ddpmon.tui.screens.ask import Overlay
from ddpmon.tui.widgets.pane import Pane

_LONGEST = 200


class TypedLine(Pane):
    """The line: what was typed, and what is wrong with it or how to go on."""

    def __init__(self, text: str) -> None:
        super().__init__(id="typed")
        self.text = text

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        try:
            parse(self.text)
            note, role = "enter applies the filter, empty lists all ranks, esc cancels", "muted"
        except FilterError as error:
            note, role = f"▲ {error}", "warn"
        typed = self.text[-max(1, width - 6) :]
        line: Line = [(" / ", "key"), (typed, "strong"), (" ", "strong+select")]
        return [[*line, (cut(f"  {note}", max(0, width - len(typed) - 4)), role)]]


class FilterPrompt(Overlay[Filter | None]):
    """Asks for a filter; dismisses with it, or with None if it was left."""

    DEFAULT_CSS = """
    FilterPrompt { align: left bottom; background: $background 0%; overflow: hidden hidden; }
    FilterPrompt #typed { background: $panel; width: 1fr; height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("enter", "take", show=False),
        Binding("backspace,ctrl+h", "rub_out", show=False),
        Binding("ctrl+u", "clear", show=False),
    ]

    def __init__(self, text: str, palette: Palette) -> None:
        self.typed = TypedLine(text)
        super().__init__(self.typed, palette)

    def on_key(self, event: events.Key) -> None:
        if event.character is not None and event.is_printable and len(self.typed.text) < _LONGEST:
            event.stop()
            self._type(self.typed.text + event.character)

    def on_paste(self, event: events.Paste) -> None:
        self._type((self.typed.text + "".join(ch for ch in event.text if ch.isprintable()))[:_LONGEST])

    def _type(self, text: str) -> None:
        self.typed.text = text
        self.typed.redraw()

    def action_rub_out(self) -> None:
        self._type(self.typed.text[:-1])

    def action_clear(self) -> None:
        self._type("")

    def action_take(self) -> None:
        """Take the filter, if it can be read; the line says what is wrong otherwise."""
        try:
            self.dismiss(parse(self.typed.text))
        except FilterError:
            self.typed.redraw()
