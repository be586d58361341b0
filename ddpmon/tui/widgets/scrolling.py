"""A pane that scrolls its text, and functions that move a cursor in a list."""

from __future__ import annotations

from textual import events

from ddpmon.tui.lines import Line
from ddpmon.tui.widgets.pane import Pane

WHEEL_LINES = 3
"""Number of lines that one turn of the mouse wheel scrolls."""
_END = 1 << 20
"""A line number beyond the end of every text."""


def moved(place: int, count: int, by: int | None, to: int | None) -> int:
    """Return a cursor's new place in a list.

    Args:
        place: The old place.
        count: Length of the list.
        by: Number of lines to move; ignored if `to` is given.
        to: The line to move to (negative: from the end); None moves by `by`.

    """
    place = place + (by or 0) if to is None else to % max(1, count)
    return max(0, min(place, count - 1))


def top_with(place: int, top: int, room: int) -> int:
    """Return the number of the first visible line after as little scrolling as makes line `place` visible."""
    return max(place - room + 1, min(top, place))


class ScrollingPane(Pane):
    """A pane whose lines scroll."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._top = 0

    def scrolled(self, lines: list[Line], room: int) -> list[Line]:
        """Return the visible lines. If there are more lines below, the last visible line says how many."""
        shown = self.in_sight_lines(lines, room)
        below = len(lines) - self._top - len(shown)
        if below > 0 and shown:
            shown[-1] = [(f" ↓ {below + 1} more lines", "muted")]
        return shown

    def in_sight_lines(self, lines: list[Line], room: int) -> list[Line]:
        """Return the `room` lines that are visible."""
        self._top = max(0, min(self._top, len(lines) - room))
        return lines[self._top : self._top + room]

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        """Scroll by a number of lines, or to the first (0) or last (-1)."""
        self._top = max(0, self._top + (by or 0)) if to is None else 0 if to >= 0 else _END
        self.redraw()

    def page(self, direction: int) -> None:
        self.move(direction * max(1, self.size.height - 2))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll down."""
        event.stop()
        self.move(WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll up."""
        event.stop()
        self.move(-WHEEL_LINES)
