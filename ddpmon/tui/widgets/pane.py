"""A widget that is drawn as lines of text. Only changed parts of lines are repainted."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.filter import ANSIToTruecolor, LineFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from ddpmon.messages import ViewRequest
from ddpmon.tui.blocks import LEAST_WIDTH, Block, Box
from ddpmon.tui.chart_choice import Offered
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, fit_line, join_pieces
from ddpmon.tui.palette import DARK, Palette
from ddpmon.tui.preferences import Values
from ddpmon.tui.workarounds import Abstract

Action = Callable[..., None]
"""Function that a key of the screen calls, with the numbers in the key's action as arguments."""
Actions = Mapping[str, Action]
"""Actions by name, as in a key's `screen.do('name')`."""


class Pane(Widget, metaclass=Abstract):
    """Shows the lines that `draw` returns, and sends to the terminal only the parts of rows that changed."""

    ALLOW_SELECT = False
    KEEPS_COLOUR = False
    """True if the pane keeps its colours when the values are stale."""
    SHOWS_POINTED = False
    """True if the pane shows the values under the mouse."""
    box: Box | None = None
    """The pane's place on its screen, known before Textual's layout; None if it has no place."""
    followed = False
    """True if this is the main pane of its screen, and the screen also shows blocks."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.frame = Frame()
        self.pointed: tuple[int, int] | None = None
        """Column and line under the mouse; None if the mouse is elsewhere, or if the terminal does not report mouse
        movements."""
        self._palette = DARK
        self._rows: list[Line] = []
        self._base: Style | None = None
        self._styles: dict[str, Style] = {}

    @abstractmethod
    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        """Return the lines of this pane, at most `height`; lines that are too long or short are cut or filled."""

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        """Return the size that the pane needs on a screen of this size; None if it has nothing to show."""
        return Block(LEAST_WIDTH, 1)

    @property
    def room(self) -> tuple[int, int]:
        """Return the columns and lines that the pane has, or will have after the layout."""
        return self.size if self.box is None else (self.box.width, self.box.height)

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        """Move the cursor by a number of lines, or to a line (negative: from the end)."""

    def page(self, direction: int) -> None:
        """Move the cursor by one screenful, back (-1) or forward (1)."""

    def chosen_rank(self) -> int | None:
        """Return the rank under the cursor; None if there is none."""
        return None

    def choose(self, rank: int) -> None:
        """Put the cursor on a rank, if the pane lists it."""

    def lines_in_sight(self) -> list[int | None]:
        """Return the rank on each line below the title; None for a line without a rank."""
        return []

    @property
    def offered(self) -> Offered | None:
        """Return the list from which the user chooses what the pane shows; None if there is no choice."""
        return None

    @property
    def actions(self) -> Actions:
        """Return the actions of the screen's keys on this pane."""
        return {}

    @property
    def view_request(self) -> ViewRequest:
        """Return the parts of a snapshot that this pane requests from the hub."""
        return ViewRequest()

    @property
    def preferences(self) -> Values:
        """Return the user's choices by name, for the next dashboard to begin with."""
        return {}

    def restore(self, saved: Values) -> None:
        """Apply the saved choices; ignore choices that do not apply to this pane."""

    def show(self, frame: Frame, palette: Palette) -> None:
        """Show a new frame."""
        self.frame = frame
        if frame.is_stale and not self.KEEPS_COLOUR:
            palette = palette.all_muted
        if palette is not self._palette:
            self._palette = palette
            self._rows = []
            self._forget_styles()
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
        """Return the columns of a changed row to repaint, as (first, end).

        Args:
            before: A list with the old row; empty if there was no old row.
            after: A list with the new row; empty if there is no new row.
            width: Width of the pane.

        """
        if not before or not after:
            return 0, width
        old, new = (join_pieces(fit_line(line[0], width)) for line in (before, after))
        if old == new:
            return 0, 0
        if any(sum(len(text) for text, _ in line) != width for line in (old, new)):
            return 0, width  # a character that is two columns wide
        first = _alike(old, new)
        last = _alike([(text[::-1], role) for text, role in reversed(old)], [(t[::-1], r) for t, r in reversed(new)])
        return first, width - last

    def on_resize(self, event: events.Resize) -> None:
        self._rows = []
        self.redraw()
        self.refresh()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self.SHOWS_POINTED:
            self.pointed = event.x, event.y
            self.redraw()

    def on_leave(self) -> None:
        if self.SHOWS_POINTED:
            self.pointed = None
            self.redraw()

    def render_line(self, y: int) -> Strip:
        """Return one row, as Textual's compositor expects it."""
        width = self.size.width
        line = fit_line(self._rows[y] if y < len(self._rows) else [], width)
        return Strip([Segment(text, self._style(role)) for text, role in line], width)

    def get_line_filters(self) -> list[LineFilter]:
        """Return all filters except the one that converts ANSI colours, because ddpmon's palettes use these colours."""
        return [each for each in super().get_line_filters() if not isinstance(each, ANSIToTruecolor)]

    def _style(self, role: str) -> Style:
        """Return the style of a role on this widget's background.

        Textual's line API does not inherit the background, so the style of every segment includes it.
        """
        style = self._styles.get(role)
        if style is None:
            if self._base is None:
                self._base = self.rich_style
            style = self._styles[role] = self._base + self._palette.style(role)
        return style

    def _forget_styles(self) -> None:
        self._base = None
        self._styles.clear()

    def notify_style_update(self) -> None:
        """Forget the cached styles when Textual reports that a stylesheet changed this widget's look."""
        super().notify_style_update()
        self._forget_styles()


def _alike(old: Line, new: Line) -> int:
    """Return the number of columns from the left in which two rows are the same."""
    columns = 0
    for (was, old_role), (now, new_role) in zip(old, new, strict=False):
        if was == now and old_role == new_role:
            columns += len(now)
            continue
        if old_role == new_role:
            columns += next(
                (i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), min(len(was), len(now))
            )
        break
    return columns


class BlockPane(Pane):
    """A block of a screen, below the main pane or to its right. A block may show the rank under the main
    pane's cursor.
    """

    main: Pane | None = None
    """The main pane of the screen."""
    beside = False
    """True if this block is to the right of the main pane, not below it."""

    @abstractmethod
    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        pass

    def chosen_rank(self) -> int | None:
        """Return the rank under the main pane's cursor."""
        return None if self.main is None else self.main.chosen_rank()

    def in_sight(self) -> list[int | None]:
        """Return the rank on each line of the main pane below its title; None for a line without a rank."""
        return [] if self.main is None else self.main.lines_in_sight()
