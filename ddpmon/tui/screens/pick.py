"""A list over the screen of which one entry is chosen, by its place or by typing a part of its name."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from ddpmon.tui.chart_choice import Offered
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line
from ddpmon.tui.palette import Palette
from ddpmon.tui.screens.ask import Overlay, boxed, option
from ddpmon.tui.widgets.pane import Pane

_AROUND = 3
"""Lines around the entries: two of the frame, and what was typed."""
_WIDEST = 64


class PickBox(Pane):
    """The box with the list."""

    def __init__(self, offered: Offered) -> None:
        super().__init__(id="pick")
        self.offered = offered
        self.value = offered.current
        """Value of the entry under the cursor."""
        self.typed = ""
        self._top = 0

    @property
    def found(self) -> list[str]:
        """The values whose names have what was typed in them."""
        typed = self.typed.casefold()
        return [value for value, name in self.offered.entries if typed in name.casefold()]

    def type(self, text: str) -> None:
        """Narrow the list to what has this in its name; a text that nothing has is not taken."""
        before, self.typed = self.typed, text
        if not self.found:
            self.typed = before
        if self.value not in self.found:
            self.value = self.found[0]
        self.redraw()

    def rub_out(self) -> None:
        """Take the last typed character away."""
        self.type(self.typed[:-1])

    def move(self, by: int) -> None:
        """Move the cursor by so many entries, as far as there are some."""
        found = self.found
        place = found.index(self.value) if self.value in found else 0
        self.value = found[max(0, min(place + by, len(found) - 1))]
        self.redraw()

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        inner, rows, found = max(1, width - 4), max(1, height - _AROUND), self.found
        place = found.index(self.value) if self.value in found else 0
        self._top = max(place - rows + 1, min(self._top, place, max(0, len(found) - rows)))
        names = dict(self.offered.entries)
        shown = found[self._top : self._top + rows]
        body = [option(names[value], inner, chosen=value == self.value) for value in shown]
        body += [[]] * (rows - len(body))
        typed: Line = [("type to search; enter chooses, esc cancels", "muted")]
        if self.typed:
            typed = [("/ ", "key"), (self.typed, "strong")]
        return boxed(self.offered.heading, [*body, typed], width)

    def on_mouse_scroll_down(self) -> None:
        self.move(1)

    def on_mouse_scroll_up(self) -> None:
        self.move(-1)

    async def on_click(self, event: events.Click) -> None:
        """Take the entry that was clicked."""
        place = self._top + event.y - 1
        if 0 < event.y <= self.size.height - _AROUND and place < len(self.found) and isinstance(self.screen, Picker):
            self.screen.dismiss(self.found[place])


class Picker(Overlay[str]):
    """Lists what there is; dismisses with the value of an entry, or with None if it was left."""

    DEFAULT_CSS = """
    Picker { align: center middle; background: $background 0%; overflow: hidden hidden; }
    Picker #pick { background: $panel; max-width: 100%; max-height: 100%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,shift+tab", "move(-1)", show=False),
        Binding("down,tab", "move(1)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("pagedown", "move(10)", show=False),
        Binding("home", "move(-10_000)", show=False),
        Binding("end", "move(10_000)", show=False),
        Binding("backspace,ctrl+h", "rub_out", show=False),
        Binding("enter", "take", show=False),
        Binding("escape", "dismiss(None)", show=False),
    ]

    def __init__(self, offered: Offered, palette: Palette) -> None:
        self.box = PickBox(offered)
        super().__init__(self.box, palette)

    def on_mount(self) -> None:
        self.on_resize()

    def on_resize(self) -> None:
        offered = self.box.offered
        longest = max(len(offered.heading), *(len(name) for _, name in offered.entries), 38)
        self.box.styles.width = min(longest + 8, _WIDEST, self.app.size.width)
        self.box.styles.height = min(len(offered.entries) + _AROUND, self.app.size.height)

    def on_key(self, event: events.Key) -> None:
        if event.character is not None and event.is_printable:
            event.stop()
            self.box.type(self.box.typed + event.character)

    def action_move(self, by: int) -> None:
        self.box.move(by)

    def action_rub_out(self) -> None:
        self.box.rub_out()

    def action_take(self) -> None:
        self.dismiss(self.box.value)
