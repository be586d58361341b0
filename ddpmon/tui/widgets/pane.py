"""A rectangle of the screen that is drawn line by line, and repainted only where a line changed."""

from __future__ import annotations

from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, fit
from ddpmon.tui.palette import DARK, Palette


class Pane(Widget):
    """Shows what `draw` returns. What is sent to a terminal are the rows that differ from the last frame."""

    ALLOW_SELECT = False
    KEEPS_COLOUR = False
    """Whether the colours stay when the values are stale."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.frame = Frame()
        self._palette = DARK
        self._rows: list[Line] = []

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        """The lines of this pane, at most `height` of them; longer and shorter ones are cut and filled."""
        raise NotImplementedError

    def show(self, frame: Frame, palette: Palette) -> None:
        """Take a new frame."""
        self.frame = frame
        if frame.stale and not self.KEEPS_COLOUR:
            palette = palette.muted
        if palette is not self._palette:
            self._palette = palette
            self._rows = []
            self.refresh()
        self.redraw()

    def redraw(self) -> None:
        """Draw again, and repaint the rows that changed."""
        width, height = self.size
        if width <= 0 or height <= 0:
            return
        before, self._rows = self._rows, self.draw(self.frame, width, height)[:height]
        changed = [y for y in range(max(len(before), len(self._rows))) if before[y : y + 1] != self._rows[y : y + 1]]
        if changed:
            rows = [(y, *self.span(before[y : y + 1], self._rows[y : y + 1], width)) for y in changed]
            self.refresh(*(Region(first, y, end - first, 1) for y, first, end in rows))

    def span(self, before: list[Line], after: list[Line], width: int) -> tuple[int, int]:
        """The columns of a row that are painted again when it changed: from the first to before the second.

        before, after: the row, or nothing where there is none.
        """
        return 0, width

    def on_resize(self, event: events.Resize) -> None:
        self._rows = []
        self.redraw()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One row, as Textual's compositor asks for it."""
        width = self.size.width
        # The line API does not inherit the widget's background: every segment carries it, the filling ones too.
        base = self.rich_style
        line = fit(self._rows[y] if y < len(self._rows) else [], width)
        return Strip([Segment(text, base + self._palette.style(role)) for text, role in line], width)
