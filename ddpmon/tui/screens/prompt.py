"""A line at the bottom of the screen in which a filter or a search is typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Generic, TypeVar

from textual import events
from textual.binding import Binding, BindingType

from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, cut
from ddpmon.tui.palette import Palette
from ddpmon.tui.screens.ask import Overlay
from ddpmon.tui.widgets.pane import Pane

_LONGEST = 200
Parsed = TypeVar("Parsed")


class TypedLine(Pane, Generic[Parsed]):
    """The line: what was typed, and what is wrong with it or how to go on."""

    def __init__(self, text: str, parse: Callable[[str], Parsed], hint: str) -> None:
        super().__init__(id="typed")
        self.text, self._parse, self._hint = text, parse, hint

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        try:
            self.parsed()
            note, role = self._hint, "muted"
        except ValueError as error:
            note, role = f"▲ {error}", "warn"
        typed = self.text[-max(1, width - 6) :]
        line: Line = [(" / ", "key"), (typed, "strong"), (" ", "strong+select")]
        return [[*line, (cut(f"  {note}", max(0, width - len(typed) - 4)), role)]]

    def parsed(self) -> Parsed:
        """Return what the text means; the parser's ValueError says in a line what is wrong with it."""
        return self._parse(self.text)


class Prompt(Overlay[Parsed | None]):
    """Asks for a text; dismisses with what it means, or with None if it was left."""

    DEFAULT_CSS = """
    Prompt { align: left bottom; background: $background 0%; overflow: hidden hidden; }
    Prompt #typed { background: $panel; width: 1fr; height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("enter", "take", show=False),
        Binding("backspace,ctrl+h", "rub_out", show=False),
        Binding("ctrl+u", "clear", show=False),
    ]

    def __init__(self, text: str, parse: Callable[[str], Parsed], hint: str, palette: Palette) -> None:
        """Make the line.

        Args:
            text: What stands in it at first.
            parse: Reads it; a ValueError says what is wrong with it.
            hint: How to go on, beside a text that can be read.
            palette: That of the screen below.

        """
        self.typed = TypedLine(text, parse, hint)
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
        """Take what was typed, if it can be read; the line says what is wrong otherwise."""
        try:
            self.dismiss(self.typed.parsed())
        except ValueError:
            self.typed.redraw()
