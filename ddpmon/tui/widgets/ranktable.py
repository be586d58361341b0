"""The rank table: one line per rank, what is wrong first."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from textual import events

from ddpmon.analysis.words import named_ranks
from ddpmon.messages import STAGES, RankView, Snapshot
from ddpmon.tui import rank_marks
from ddpmon.tui.blocks import ALL, Block
from ddpmon.tui.frame import Frame, finite
from ddpmon.tui.lines import Line, fit, joined, size, under_cursor
from ddpmon.tui.sizes import LEAST_WIDTH, WIDE
from ddpmon.tui.widgets.blockpane import BlockPane
from ddpmon.tui.widgets.columns import ARRIVING, MEASURED, SPLIT_LEGEND, choose, decimals, split_bar
from ddpmon.tui.widgets.heading import heading, no_rank
from ddpmon.tui.widgets.pane import Actions
from ddpmon.tui.widgets.worldmap import arriving, everyone

_SPLIT_LEAST = 24
"""Columns below which a split bar says nothing."""
_SPLIT_ROOM = 42
"""Columns kept for it on a wide screen, before the last columns are shown."""


@dataclass(frozen=True)
class Sort:
    """An order of the table. Ranks without the value come last; equal ones by rank."""

    name: str
    key: Callable[[RankView], float | None]
    trouble_first: bool = False


def down(value: float | None) -> float | None:
    """A key that puts the largest first."""
    return None if finite(value) is None or value is None else -value


def phase_ms(rank: RankView, name: str) -> float | None:
    """Return what a phase takes of a rank's step."""
    return finite(rank.phase_ms(name))


BY_RANK = Sort("by rank", lambda rank: rank.rank)
SORTS = (
    Sort("slowest first", lambda rank: down(rank.own_ms), trouble_first=True),
    BY_RANK,
    Sort("shortest wait first", lambda rank: phase_ms(rank, "wait")),
    Sort(
        "highest loss first",
        lambda rank: -math.inf if rank.loss is not None and finite(rank.loss) is None else down(rank.loss),
    ),
)


def ordered(snapshot: Snapshot, sort: Sort) -> list[RankView]:
    """All ranks in the order of `sort`; while they arrive, the least far first instead of the slowest."""
    early = sort.trouble_first and arriving(snapshot)
    late = rank_marks.accused(snapshot) if early else frozenset()

    def key(rank: RankView) -> tuple[int, bool, float, int]:
        trouble = rank_marks.grade(rank)[0] if sort.trouble_first else 0
        if early:
            far = STAGES.index(rank.stage) if rank.stage in STAGES else len(STAGES)
            return -trouble if trouble >= 8 else -int(rank.rank in late), False, float(far), rank.rank
        value = sort.key(rank)
        return -trouble if trouble >= 8 else 0, value is None, value or 0.0, rank.rank

    return sorted(everyone(snapshot), key=key)


def table(snapshot: Snapshot, ranks: list[RankView], width: int, chosen: int | None) -> list[Line]:
    """The header and a line for each of `ranks`; `chosen` is the rank under the cursor."""
    measured = not arriving(snapshot)
    split_room = _SPLIT_ROOM if measured and width >= WIDE - 1 else 0
    columns = choose(MEASURED if measured else ARRIVING, snapshot.ranks, width - 2 - split_room)
    digits = decimals(snapshot.ranks)
    named = rank_marks.accused(snapshot)
    header: Line = [(" ", "text"), ("".join(column.cell(column.head) for column in columns), "muted")]
    room = width - size(header) - 1
    split = measured and room >= _SPLIT_LEAST
    lines = [[*header, *(fit(SPLIT_LEGEND, room, "muted") if split else [])]]
    longest = max((value for rank in snapshot.ranks if (value := finite(rank.step_ms)) is not None), default=0.0)
    for rank in ranks:
        glyph, alarm = rank_marks.marker(rank, named)
        cells: Line = [(glyph, alarm)]
        for column in columns:
            role = alarm if column.accused and glyph != " " else column.role
            cells.append((column.cell(column.text(rank, digits)), role))
        line = joined(cells)
        if split:
            line += [(" ", "text"), *split_bar(rank, longest, room - 2)]
        lines.append(under_cursor(line, width) if rank.rank == chosen else line)
    return lines


class RankTable(BlockPane):
    """The rank table with its cursor and scrolling. The cursor stays on its rank when the order changes."""

    orders: ClassVar[tuple[Sort, ...]] = SORTS

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.chosen: int | None = None
        self.order = 0
        """Index into `orders`."""
        self._top = 0

    @property
    def actions(self) -> Actions:
        return {"sort": self.cycle_sort}

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        ranks = 0 if frame.snapshot is None else max(frame.snapshot.run.world_size, len(frame.snapshot.ranks))
        return Block(LEAST_WIDTH, 3, ALL, max(1, ranks) + 2)

    def lines_in_sight(self) -> list[int | None]:
        """The rank on each of its lines below the title; None: the line is of no rank."""
        ranks = [] if self.frame.snapshot is None else self.listed(self.frame.snapshot)
        return [None, *(rank.rank for rank in ranks[self._top : self._top + max(1, self.room[1] - 2)])]

    def listed(self, snapshot: Snapshot) -> list[RankView]:
        """The ranks that are listed, in their order."""
        return self.kept(ordered(snapshot, self.orders[self.order]))

    def kept(self, ranks: list[RankView]) -> list[RankView]:
        """Return those that the filter lets through."""
        rank_filter = self.frame.filter
        return ranks if rank_filter is None else [rank for rank in ranks if rank_filter.lets(rank)]

    def title(self, text: str, snapshot: Snapshot | None, width: int, legend: Line | None = None) -> Line:
        """The title, with the filter in it, and the step since which means are taken where a change cut them short."""
        since = _since_change(snapshot) + _earlier(snapshot)
        text = text.rstrip() + since if since else text
        return heading(text, replace(self.frame, snapshot=snapshot), width, legend)

    def heading(self, snapshot: Snapshot | None, width: int) -> Line:
        """The title."""
        order = self.orders[self.order]
        early = order.trouble_first and snapshot is not None and arriving(snapshot)
        return self.title("ranks, the last to connect first" if early else f"ranks, {order.name}", snapshot, width)

    def rows(self, snapshot: Snapshot, ranks: list[RankView], width: int) -> list[Line]:
        """The header and a line for each of `ranks`."""
        return table(snapshot, ranks, width, self.chosen)

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        snapshot = frame.snapshot
        if snapshot is None:
            return [self.heading(None, width), no_rank(frame)]
        if height < 3:
            return [self.heading(snapshot, width)]
        ranks = self.listed(snapshot)
        shown = height - 2
        self._top = max(0, min(self._top, len(ranks) - shown))
        lines = self.rows(snapshot, ranks[self._top : self._top + shown], width - 1)
        if len(ranks) > shown:
            lines[1:] = self._with_scrollbar(lines[1:], width, len(ranks))
        if not ranks:
            lines.append(no_rank(frame))
        return [self.heading(snapshot, width), *lines]

    def _with_scrollbar(self, lines: list[Line], width: int, total: int) -> list[Line]:
        shown = len(lines)
        length = max(1, shown * shown // total)
        first = round(self._top / (total - shown) * (shown - length))
        return [
            [*fit(line, width - 1, line[-1][1] if line and "select" in line[-1][1] else "text"),
             ("█", "muted") if first <= y < first + length else ("│", "rule")]
            for y, line in enumerate(lines)
        ]  # fmt: skip

    def cycle_sort(self) -> None:
        """The next order."""
        self.order = (self.order + 1) % len(self.orders)
        self._top = 0
        self.redraw()

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        """Move the cursor by so many lines, or to a line (negative: from the end)."""
        snapshot = self.frame.snapshot
        if snapshot is None or not (ranks := self.listed(snapshot)):
            return
        places = [rank.rank for rank in ranks]
        if to is not None:
            place = to % len(places)
        elif self.chosen in places:
            place = places.index(self.chosen) + (by or 0)
        else:
            place = self._top if by is None or abs(by) == 1 else self._top + by
        place = max(0, min(place, len(places) - 1))
        self.chosen = places[place]
        shown = max(1, self.room[1] - 2)
        self._top = max(place - shown + 1, min(self._top, place))
        self.redraw()

    def choose(self, rank: int) -> None:
        """Put the cursor on a rank."""
        snapshot = self.frame.snapshot
        places = [] if snapshot is None else [each.rank for each in self.listed(snapshot)]
        if rank in places:
            self.move(to=places.index(rank))

    def page(self, direction: int) -> None:
        """Move the cursor by a screenful."""
        self.move(direction * max(1, self.room[1] - 3))

    def chosen_rank(self) -> int | None:
        """The rank under the cursor, else the first of the list."""
        ranks = [] if self.frame.snapshot is None else [rank.rank for rank in self.listed(self.frame.snapshot)]
        return self.chosen if self.chosen in ranks else next(iter(ranks), None)

    def scroll_lines(self, by: int) -> None:
        """Scroll without moving the cursor."""
        self._top = max(0, self._top + by)
        self.redraw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_lines(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_lines(-3)

    def on_click(self, event: events.Click) -> None:
        """Choose the rank that was clicked."""
        snapshot = self.frame.snapshot
        rank = None if snapshot is None else self.rank_at(snapshot, event.y)
        if rank is not None:
            self.chosen = rank.rank
            self.redraw()

    def rank_at(self, snapshot: Snapshot, y: int) -> RankView | None:
        """The rank on a line of the table."""
        ranks = self.listed(snapshot)
        place = self._top + y - 2
        return ranks[place] if y >= 2 and place < len(ranks) else None


def _earlier(snapshot: Snapshot | None) -> str:
    """Whose means are of earlier steps: ranks that had no more inputs, or ended, before the others."""
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
    """Name the step since which the means are taken, where a finding's beginning or end decides it."""
    if snapshot is None or snapshot.window is None:
        return ""
    first = snapshot.window[0]
    ends = {f.since_step if f.until_step is None else f.until_step + 1 for f in snapshot.findings}
    return f", since step {first:,} " if first in ends else ""
