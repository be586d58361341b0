"""Scrolling: a pane whose text is longer than the screen, and the arithmetic of a cursor in a list."""

from __future__ import annotations

from textual import events

from ddpmon.tui.lines import Line
from ddpmon.tui.widgets.pane import Pane

WHEEL_LINES = 3
"""Lines that a turn of the wheel scrolls."""
_END = 1 << 20
"""A line that no text has."""


def moved(place: int, count: int, by: int | None, to: int | None) -> int:
    """Return a cursor's place in a list of so many lines after a key that moves it by some, or to one."""
    place = place + (by or 0) if to is None else to % max(1, count)
    return max(0, min(place, count - 1))


def top_with(place: int, top: int, room: int) -> int:
    """Return the first line in sight that has a cursor's place in sight, as near as can be to what it was."""
    return max(place - room + 1, min(top, place))


class ScrollingPane(Pane):
    """Lines, scrolled to one of them."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._top = 0

    def scrolled(self, lines: list[Line], room: int) -> list[Line]:
        """The lines that are in sight where there is room for so many; what is below them is counted."""
        shown = self.in_sight_lines(lines, room)
        below = len(lines) - self._top - len(shown)
        if below > 0 and shown:
            shown[-1] = [(f" ↓ {below + 1} more lines", "muted")]
        return shown

    def in_sight_lines(self, lines: list[Line], room: int) -> list[Line]:
        """The lines that are in sight where there is room for so many."""
        self._top = max(0, min(self._top, len(lines) - room))
        return lines[self._top : self._top + room]

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        """Scroll by so many lines, or to the first (0) or last (-1)."""
        self._top = max(0, self._top + (by or 0)) if to is None else 0 if to >= 0 else _END
        self.redraw()

    def page(self, direction: int) -> None:
        """Scroll by a screenful."""
        self.move(direction * max(1, self.size.height - 2))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Further down."""
        event.stop()
        self.move(WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Further up."""
        event.stop()
        self.move(-WHEEL_LINES)
