"""The rank table, with one line per rank, problems first, and a cursor that stays on its rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

from textual import events

from ddpmon.analysis.words import named_ranks
from ddpmon.messages import STAGES, RankView, Snapshot
from ddpmon.tui import rank_marks
from ddpmon.tui.blocks import ALL, LEAST_WIDTH, WIDE, Block
from ddpmon.tui.frame import Frame, arriving, finite_or_none
from ddpmon.tui.lines import Line, fit_line, join_pieces, line_text, under_cursor
from ddpmon.tui.preferences import Values
from ddpmon.tui.widgets import columns
from ddpmon.tui.widgets.columns import RankColumn, Sort
from ddpmon.tui.widgets.heading import heading, no_rank
from ddpmon.tui.widgets.pane import Actions, Pane
from ddpmon.tui.widgets.scrolling import WHEEL_LINES, moved

_SPLIT_LEAST = 24
"""Minimum width in columns of the bar of a step's phases."""
_SPLIT_ROOM = 42
"""Width in columns that a wide screen reserves for the bar of a step's phases. The least important columns are dropped
to make this room."""
BY_RANK = Sort("by rank", "rank")
SORTS = (
    Sort("slowest first", "own", trouble_first=True),
    BY_RANK,
    Sort("shortest wait first", "wait"),
    Sort("highest loss first", "loss"),
)


@dataclass(frozen=True)
class Tail:
    """A bar or history of each rank, to the right of a table's columns."""

    head: Line
    of: Callable[[RankView, str], Line]
    """Returns the bar of a rank, given the rank and the role of its mark ("" without a mark)."""


Layout: TypeAlias = tuple[Sequence[RankColumn], Tail | None]


@dataclass(frozen=True)
class Entry:
    """A line of a table; `rank` is None for a line without a rank."""

    rank: RankView | None


def ordered(snapshot: Snapshot, ranks: list[RankView], sort: Sort) -> list[RankView]:
    """Return the ranks in the order of `sort`.

    If problems come first, the ranks that caused a failure or hang precede all others, and ranks without a step are in
    the order of their stages.
    """
    if not sort.trouble_first:
        return columns.ordered(ranks, sort)
    in_order = _by_stage(snapshot, ranks) if arriving(snapshot) else columns.ordered(ranks, sort)
    culprits = rank_marks.culprits(snapshot)
    return sorted(in_order, key=lambda rank: rank.rank not in culprits)


def _by_stage(snapshot: Snapshot, ranks: list[RankView]) -> list[RankView]:
    accused = rank_marks.accused_ranks(snapshot)

    def key(rank: RankView) -> tuple[int, int, int]:
        far = STAGES.index(rank.stage) if rank.stage in STAGES else len(STAGES)
        return columns.gone_first(rank) or -int(rank.rank in accused), far, rank.rank

    return sorted(ranks, key=key)


def world_layout(snapshot: Snapshot, width: int) -> Layout:
    """Return the columns that fit, and a bar of each rank's phases to the right of them if there is room."""
    if arriving(snapshot):
        return columns.fit_columns(columns.STARTING_COLUMNS, snapshot.ranks, width - 2), None
    split_room = _SPLIT_ROOM if width >= WIDE - 1 else 0
    chosen = columns.fit_columns(columns.TRAINING_COLUMNS, snapshot.ranks, width - 2 - split_room)
    room = width - 2 - sum(column.width for column in chosen)
    if room < _SPLIT_LEAST:
        return chosen, None
    longest = max(
        (value for rank in snapshot.ranks if (value := finite_or_none(rank.step_ms)) is not None), default=0.0
    )

    def split(rank: RankView, _: str) -> Line:
        return [(" ", "text"), *columns.split_bar(rank, longest, room - 2)]

    return chosen, Tail(fit_line(columns.SPLIT_LEGEND, room, "muted"), split)


def table_lines(
    snapshot: Snapshot, ranks: Sequence[RankView], layout: Layout, width: int, chosen: int | None
) -> list[Line]:
    """Return the header, and a line for each of `ranks`; `chosen` is the rank under the cursor."""
    shown, tail = layout
    digits, named = columns.decimals(snapshot.ranks), rank_marks.accused_ranks(snapshot)
    header = join_pieces([(" ", "text"), *((column.place(column.head), column.head_role) for column in shown)])
    lines: list[Line] = [[*header, *(tail.head if tail is not None else [])]]
    for rank in ranks:
        glyph, alarm = rank_marks.problem_marker(rank, named)
        marked = glyph != " "
        roles = [alarm if column.accused and marked else column.role for column in shown]
        cells = [(column.cell(rank, digits), role) for column, role in zip(shown, roles, strict=True)]
        line = join_pieces([(glyph, alarm), *cells])
        line += [] if tail is None else tail.of(rank, alarm if marked else "")
        lines.append(under_cursor(line, width) if rank.rank == chosen else line)
    return lines


def table_text(snapshot: Snapshot, width: int) -> list[str]:
    """Return the header and a line for each rank, problems first, as text."""
    ranks = ordered(snapshot, snapshot.ranks, SORTS[0])
    return [line_text(line) for line in table_lines(snapshot, ranks, world_layout(snapshot, width), width, None)]


class RankTable(Pane):
    """A table of ranks with a cursor and scrolling. The cursor stays on its rank when the order changes."""

    orders: ClassVar[tuple[Sort, ...]] = SORTS

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.chosen: int | None = None
        self.order = 0
        """Index into `orders`."""
        self._top = 0
        self._kept: tuple[Snapshot, tuple[object, ...], Sequence[Entry]] | None = None
        """Cache of `entries`, which several blocks call in each frame: the snapshot, the parameters and the result."""

    @property
    def actions(self) -> Actions:
        return {"sort": self.cycle_sort}

    @property
    def preferences(self) -> Values:
        return {"sort": self.sort.name}

    def restore(self, saved: Values) -> None:
        names = [sort.name for sort in self.orders]
        if (name := saved.get("sort")) in names:
            self.order = names.index(str(name))

    @property
    def sort(self) -> Sort:
        """Return the order of the list."""
        return self.orders[self.order]

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        return Block(LEAST_WIDTH, 3, ALL, max(1, len(frame.ranks)) + 2)

    # --- what is listed ---

    def parameters(self) -> tuple[object, ...]:
        """Return everything except the snapshot on which the list depends, as a key for its cache."""
        return self.sort, self.frame.filter

    def entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        """Return the lines of the list, in their order."""
        parameters = self.parameters()
        if self._kept is None or self._kept[0] is not snapshot or self._kept[1] != parameters:
            self._kept = snapshot, parameters, self.new_entries(snapshot)
        return self._kept[2]

    def new_entries(self, snapshot: Snapshot) -> Sequence[Entry]:
        """Make the lines of the list."""
        return [Entry(rank) for rank in ordered(snapshot, self.filtered(snapshot), self.sort)]

    def filtered(self, snapshot: Snapshot) -> list[RankView]:
        """Return all ranks that pass the filter."""
        return replace(self.frame, snapshot=snapshot).listed_ranks

    def _ranks(self) -> list[int]:
        """Return the ranks that the cursor can be on."""
        entries = [] if self.frame.snapshot is None else self.entries(self.frame.snapshot)
        return [entry.rank.rank for entry in entries if entry.rank is not None]

    def _lines_above(self) -> int:
        """Return the number of lines above the list."""
        width, height = self.room
        return 2 if self.frame.snapshot is None else 2 + len(self.remarks(self.frame.snapshot, width, height))

    def _room_lines(self) -> int:
        """Return the number of lines of the list that fit."""
        return max(1, self.room[1] - self._lines_above())

    def lines_in_sight(self) -> list[int | None]:
        entries = [] if self.frame.snapshot is None else self.entries(self.frame.snapshot)
        shown = entries[self._top : self._top + self._room_lines()]
        ranks = [None if entry.rank is None else entry.rank.rank for entry in shown]
        return [*[None] * (self._lines_above() - 1), *ranks]

    # --- drawing ---

    def title(self, text: str, snapshot: Snapshot | None, width: int, legend: Line | None = None) -> Line:
        """Return the title with the filter. If the means cover only some of the steps, the title also names these
        steps.
        """
        since = _since_change(snapshot) + _earlier(snapshot)
        text = text.rstrip() + since if since else text
        return heading(text, replace(self.frame, snapshot=snapshot), width, legend)

    def heading(self, snapshot: Snapshot | None, width: int) -> Line:
        """Return the title."""
        return self.title(f"ranks, {self.order_text(snapshot)}", snapshot, width)

    def order_text(self, snapshot: Snapshot | None) -> str:
        """Return the order of the list in words."""
        early = self.sort.trouble_first and snapshot is not None and arriving(snapshot)
        return "the last to connect first" if early else self.sort.name

    def remarks(self, snapshot: Snapshot, width: int, height: int) -> list[Line]:
        """Return the lines between the title and the header."""
        return []

    def table_layout(self, snapshot: Snapshot, width: int) -> Layout:
        """Return the columns that fit, and the bar or history to the right of the columns."""
        return world_layout(snapshot, width)

    def rows(self, snapshot: Snapshot, entries: Sequence[Entry], width: int) -> list[Line]:
        """Return the header, and a line for each of `entries`."""
        ranks = [entry.rank for entry in entries if entry.rank is not None]
        return table_lines(snapshot, ranks, self.table_layout(snapshot, width), width, self.chosen)

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        snapshot = frame.snapshot
        if snapshot is None:
            return [self.heading(None, width), no_rank(frame)]
        if height < 3:
            return [self.heading(snapshot, width)]
        above = self.remarks(snapshot, width, height)
        entries, room = self.entries(snapshot), max(1, height - 2 - len(above))
        self._top = max(0, min(self._top, len(entries) - room))
        header, *lines = self.rows(snapshot, entries[self._top : self._top + room], width - 1)
        if len(entries) > room:
            lines = self._with_scrollbar(lines, width, len(entries))
        if not entries:
            lines.append(no_rank(frame))
        return [self.heading(snapshot, width), *above, header, *lines]

    def _with_scrollbar(self, lines: list[Line], width: int, total: int) -> list[Line]:
        shown = len(lines)
        length = max(1, shown * shown // total)
        first = round(self._top / (total - shown) * (shown - length))
        return [
            [*fit_line(line, width - 1, line[-1][1] if line and "select" in line[-1][1] else "text"),
             ("█", "muted") if first <= y < first + length else ("│", "rule")]
            for y, line in enumerate(lines)
        ]  # fmt: skip

    # --- keys and the mouse ---

    def cycle_sort(self) -> None:
        """Switch to the next order whose column has a value for some rank."""
        for step in range(1, len(self.orders) + 1):
            place = (self.order + step) % len(self.orders)
            value = columns.RANK_COLUMNS[self.orders[place].column].value
            if any(value(rank) is not None for rank in self.frame.ranks):
                self.order = place
                break
        self._top = 0
        self.redraw()

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        ranks = self._ranks()
        if not ranks:
            return
        if self.chosen not in ranks:  # the first key only shows the cursor, unless it moves by a page
            place, by = self._top, None if by is None or abs(by) == 1 else by
        else:
            place = ranks.index(self.chosen)
        self.chosen = ranks[moved(place, len(ranks), by, to)]
        self.scroll_to_cursor()

    def scroll_to_cursor(self) -> None:
        """Scroll to the cursor, and to the line above it if that line has no rank."""
        entries = [] if self.frame.snapshot is None else self.entries(self.frame.snapshot)
        place = next((i for i, each in enumerate(entries) if each.rank and each.rank.rank == self.chosen), 0)
        first = place - 1 if place and entries[place - 1].rank is None else place
        self._top = max(place - self._room_lines() + 1, min(self._top, first))
        self.redraw()

    def choose(self, rank: int) -> None:
        if rank in self._ranks():
            self.chosen = rank
            self.scroll_to_cursor()

    def page(self, direction: int) -> None:
        self.move(direction * max(1, self.room[1] - 3))

    def chosen_rank(self) -> int | None:
        """Return the rank under the cursor, else the first rank of the list."""
        ranks = self._ranks()
        return self.chosen if self.chosen in ranks else next(iter(ranks), None)

    def scroll_lines(self, by: int) -> None:
        """Scroll without moving the cursor."""
        self._top = max(0, self._top + by)
        self.redraw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_lines(WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_lines(-WHEEL_LINES)

    async def on_click(self, event: events.Click) -> None:
        """Choose the clicked rank; a second click inspects it. A click on a head sorts by its column."""
        lines = self.lines_in_sight()
        if 1 <= event.y <= len(lines) and (rank := lines[event.y - 1]) is not None:
            self.chosen = rank
            self.redraw()
            if event.chain == 2:
                await self.run_action("app.inspect")
        elif event.y == self._lines_above() - 1 and (name := self.column_at(event.x)) is not None:
            self.sort_by(name)

    def column_at(self, x: int) -> str | None:
        """Return the name of the column whose heading is at screen column `x`; None if there is no heading."""
        snapshot, end = self.frame.snapshot, 1
        for column in () if snapshot is None else self.table_layout(snapshot, self.size.width - 1)[0]:
            end += column.width
            if x < end:
                head = column.head.rstrip("▴▾")
                return next((name for name, each in columns.RANK_COLUMNS.items() if each.head == head), None)
        return None

    def sort_by(self, name: str) -> None:
        """Sort by a column. Each further call uses the next of the sort orders of that column."""
        places = [place for place, sort in enumerate(self.orders) if sort.column == name]
        if places:
            after = [place for place in places if place > self.order] if self.order in places else places
            self.order, self._top = (after or places)[0], 0
            self.redraw()


def _earlier(snapshot: Snapshot | None) -> str:
    """Return a text that names the ranks that ended or ran out of data, so that their means cover earlier steps; "" if
    there are none.
    """
    stopped = [rank for rank in snapshot.ranks if rank.window is not None] if snapshot is not None else []
    windows = {rank.window for rank in stopped}
    if not stopped or snapshot is None:
        return ""
    ranks_text = named_ranks([rank.rank for rank in stopped], len(snapshot.ranks))
    last = max(window[1] for window in windows if window is not None)
    return (
        f", {ranks_text} until step {last:,} " if len(windows) == 1 else f", {ranks_text} until step {last:,} at most "
    )


def _since_change(snapshot: Snapshot | None) -> str:
    """Return a text with the first step of the means, if a finding began or ended with that step; else ""."""
    if snapshot is None or snapshot.window is None:
        return ""
    first = snapshot.window[0]
    ends = {f.since_step if f.until_step is None else f.until_step + 1 for f in snapshot.findings}
    return f", since step {first:,} " if first in ends else ""
