"""The full rank table, with every column that some rank has a value for, sorted by any of them."""

from __future__ import annotations

from dataclasses import replace

from ddpmon import config, numbers
from ddpmon.messages import Course, RankView, SeriesRequest, Snapshot, ViewRequest
from ddpmon.tui.blocks import Block
from ddpmon.tui.filters import runs_of
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, pad_text
from ddpmon.tui.preferences import Values
from ddpmon.tui.widgets.columns import RANK_COLUMNS, RankColumn, Sort, host_column
from ddpmon.tui.widgets.inspection import steps_per_column
from ddpmon.tui.widgets.lanes import level_glyph
from ddpmon.tui.widgets.pane import Actions
from ddpmon.tui.widgets.ranktable import Layout, RankTable, Tail

_STRIP_FROM, _STRIP_LEAST, _STRIP_MOST = 117, 29, 56
"""Table width from which on each rank's history of own time is shown, and the history's least and largest width."""
_COLUMNS = {
    name: replace(column, width=column.width + (name != "rank")) for name, column in RANK_COLUMNS.items()
}  # fmt: skip
"""All columns, each wide enough for the arrow that marks the sorted one."""
_LEAST_BESIDE = 98
"""Minimum table width in columns if details of a rank are shown to the right of the table."""


def filled_columns(ranks: list[RankView]) -> list[str]:
    """Return the columns in which some rank has a value. If the config file lists columns, only those are
    considered.
    """
    names = config.current().get("ranks.columns") or RANK_COLUMNS
    return [name for name in names if any(RANK_COLUMNS[name].value(rank) is not None for rank in ranks)]


def own_strip(course: Course | None, width: int) -> str:
    """Draw a rank's history of own time as blocks, with the newest on the right."""
    if course is None:
        return numbers.NONE
    return "".join(level_glyph(value) for value in course.cells[-width:]).rjust(width)


class FullTable(RankTable):
    """The table of all ranks and columns. The rank column stays in place; the others scroll sideways."""

    def __init__(self) -> None:
        super().__init__()
        self._by = "own"
        """Name of the column that sorts the table."""
        self._backwards = False
        self._first = 0
        """Number of columns that are scrolled out of sight on the left."""
        self._shown: list[str] = []
        self._hidden = 0
        """Number of columns that do not fit on the right."""

    @property
    def actions(self) -> Actions:
        return {**super().actions, "reverse": self.reverse, "pan": self.pan}

    @property
    def preferences(self) -> Values:
        return {"sort": f"{'-' * self._backwards}{self._by}"}

    def restore(self, saved: Values) -> None:
        name = str(saved.get("sort", ""))
        if name.removeprefix("-") in RANK_COLUMNS:
            self._by, self._backwards = name.removeprefix("-"), name.startswith("-")

    @property
    def sort(self) -> Sort:
        if self._by == "own" and not self._backwards:
            return Sort("problems first, then own time", "own", trouble_first=True)
        column = RANK_COLUMNS[self._by]
        way = "smallest" if column.up != self._backwards else "largest"
        return Sort(f"by {column.head}, {way} first", self._by, self._backwards)

    def heading(self, snapshot: Snapshot | None, width: int) -> Line:
        more = [f"← {self._first}"] if self._first else []
        more += [f"{self._hidden} →"] if self._hidden else []
        legend: Line | None = [(f"more columns: {'  '.join(more)} ", "muted")] if more else None
        return self.title(f"ranks, {self.order_text(snapshot)} ", snapshot, width, legend)

    def table_layout(self, snapshot: Snapshot, width: int) -> Layout:
        strip_width = self._strip_width(width)
        strips = {} if snapshot.strips is None else {course.rank: course for course in snapshot.strips.courses}
        if not strip_width or not strips:
            return self._columns(snapshot, width), None
        columns = self._columns(snapshot, width - strip_width)
        gap = " " * (width - strip_width - 1 - sum(column.width for column in columns))

        def strip(rank: RankView, alarm: str) -> Line:
            return [(f"{gap} ", "text"), (own_strip(strips.get(rank.rank), strip_width - 1), alarm or "compute")]

        return columns, Tail([(gap + self._strip_head(snapshot, strip_width), "muted")], strip)

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        needs = super().needs(frame, width, height)
        return None if needs is None else replace(needs, least_width=_LEAST_BESIDE)

    @staticmethod
    def _strip_width(width: int) -> int:
        """Return the width in columns of a rank's history; 0 if the history would displace more important numbers."""
        return 0 if width < _STRIP_FROM else min(_STRIP_MOST, _STRIP_LEAST + (width - _STRIP_FROM) // 4)

    @property
    def view_request(self) -> ViewRequest:
        """Return the request for the history of own time of the visible ranks."""
        width = self._strip_width(self.room[0] - 1)
        ranks = [rank for rank in self.lines_in_sight() if rank is not None]
        if not width or not ranks or self.frame.snapshot is None or not self.frame.snapshot.step:
            return ViewRequest()
        steps = steps_per_column(self.frame.snapshot)
        return ViewRequest(strips=SeriesRequest((), runs_of(ranks), width - 1, steps))

    @staticmethod
    def _strip_head(snapshot: Snapshot, width: int) -> str:
        """Return the heading of the histories: their scale, and the number of steps that they cover."""
        view = snapshot.strips
        if view is None or not view.courses:
            return ""
        low, high = (numbers.ms(value) for value in (view.courses[0].low, view.courses[0].high))
        steps = min(view.columns * view.per_column, view.last_step)
        return pad_text(f" own {low}–{high} ms, {numbers.count(steps)} steps", width, left=True)

    def _columns(self, snapshot: Snapshot, width: int) -> list[RankColumn]:
        """Return the visible columns, each with room for an arrow, and update `_first`, `_shown` and `_hidden`."""
        ranks = snapshot.ranks
        host = host_column(ranks)
        columns = {**_COLUMNS, "host": replace(host, width=host.width + 1)}
        arrow = "▴" if columns[self._by].up != self._backwards else "▾"
        columns[self._by] = replace(columns[self._by], head=columns[self._by].head + arrow, head_role="title")
        filled = [name for name in filled_columns(ranks) if name != "rank"]
        room = width - 1 - columns["rank"].width
        # Do not scroll beyond the last column.
        last, used = len(filled), 0
        while last and used + columns[filled[last - 1]].width <= room:
            last -= 1
            used += columns[filled[last]].width
        self._first = max(0, min(self._first, last))
        self._shown, used = [], 0
        for name in filled[self._first :]:
            used += columns[name].width
            if used > room:
                break
            self._shown.append(name)
        self._hidden = len(filled) - self._first - len(self._shown)
        return [columns[name] for name in ("rank", *self._shown)]

    def cycle_sort(self) -> None:
        """Sort by the next column, and scroll to it."""
        names = filled_columns(self.frame.ranks)
        if not names:
            return
        self._by = names[(names.index(self._by) + 1) % len(names)] if self._by in names else names[0]
        self._backwards = False
        if self._by != "rank" and self._by not in self._shown:
            self._first = names.index(self._by) - 1
        self._top = 0
        self.redraw()

    def sort_by(self, name: str) -> None:
        if name == self._by:
            self.reverse()
        else:
            self._by, self._backwards, self._top = name, False, 0
            self.redraw()

    def reverse(self) -> None:
        """Reverse the order of the sorted column."""
        self._backwards = not self._backwards
        self._top = 0
        self.redraw()

    def pan(self, by: int) -> None:
        """Scroll the table sideways by a number of columns; negative values scroll to the left."""
        self._first += by
        self.redraw()
