"""A pane whose text is longer than the screen: scrolled by keys and the wheel, with what is below it counted."""

from __future__ import annotations

from ddpmon.tui.lines import Line
from ddpmon.tui.widgets.pane import Pane

_WHEEL = 3
_END = 1 << 20
"""A line that no text has."""


class ScrollingPane(Pane):
    """Lines, scrolled to one of them."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._top = 0

    def scrolled(self, lines: list[Line], room: int) -> list[Line]:
        """The lines that are in sight where there is room for so many."""
        self._top = max(0, min(self._top, len(lines) - room))
        shown = lines[self._top : self._top + room]
        below = len(lines) - self._top - len(shown)
        if below > 0 and shown:
            shown[-1] = [(f" ↓ {below + 1} more lines", "muted")]
        return shown

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        """Scroll by so many lines, or to the first (0) or last (-1)."""
        self._top = max(0, self._top + (by or 0)) if to is None else 0 if to >= 0 else _END
        self.redraw()

    def page(self, direction: int) -> None:
        """Scroll by a screenful."""
        self.move(direction * max(1, self.size.height - 2))

    def on_mouse_scroll_down(self) -> None:
        """Further down."""
        self.move(_WHEEL)

    def on_mouse_scroll_up(self) -> None:
        """Further up."""
        self.move(-_WHEEL)
