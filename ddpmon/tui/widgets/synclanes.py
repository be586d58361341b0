"""Shows all-reduce over time: lanes of wait, transfer and efficiencies, and a lane of each rank's wait."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import zip_longest

from ddpmon import numbers
from ddpmon.messages import HEAT_MOST, Course, HeatView, SeriesRequest, Snapshot, ViewRequest
from ddpmon.messages.cells import LEAST, MOST, NOT_FINITE, NOTHING
from ddpmon.tui import rank_marks
from ddpmon.tui.blocks import Block
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, fit_line, pane_title
from ddpmon.tui.widgets.inspection import steps_per_column
from ddpmon.tui.widgets.lanes import Lane, LaneGrid, share, split_height
from ddpmon.tui.widgets.pane import BlockPane

_TIMES = {"wait": "wait", "transfer": "comm"}
"""Roles of the lanes in milliseconds, by name."""
_EFFICIENCIES = ("parallel", "load balance", "communication")
_LABEL = 22
"""Width in columns of a name and its newest value."""
_SIDE_BY_SIDE = 110
_TALLEST = 12
_METRIC = "wait"
_FLOOR = 0.05
"""Least value at the upper end of the scale of waits, as a share of a step, so that the noise of short waits looks
small."""


def sides(width: int) -> int:
    """Return how many columns of lanes fit side by side."""
    return 2 if width >= _SIDE_BY_SIDE else 1


def lanes_of_steps(width: int, lines: int, rows: int) -> LaneGrid:
    """Return the grid of lanes that fills a block of this size."""
    return LaneGrid(width // sides(width), _LABEL, *split_height(lines, rows, _TALLEST))


def courses_request(snapshot: Snapshot | None, width: int) -> SeriesRequest:
    """Return the request for the histories in a block of `width` columns."""
    columns = min(HEAT_MOST, lanes_of_steps(width, 1, 1).moments)
    return SeriesRequest(columns=columns, per_column=steps_per_column(snapshot))


def lines_each(lines: int, rows: int) -> int:
    """Return how many of `lines` each row of lanes gets."""
    return sum(split_height(lines, rows, _TALLEST))


def named_lane(name: str, course: Course | None, text: Callable[[float], str], role: str, label: str) -> Lane:
    """Return a lane with its name and its newest value on the left.

    Args:
        name: The name.
        course: The values; None if nothing is known.
        text: Formats the newest value.
        role: Colour of the lane.
        label: Role of name and value.

    """
    cells = b"" if course is None else course.cells.rstrip(bytes([NOTHING]))
    newest = numbers.NONE
    if course is not None and cells:
        newest = text(course.low + share(cells[-1]) * (course.high - course.low))
    label = "muted" if course is None else label
    return Lane([(f" {name:<14}{newest:>6} ", label)], None if course is None else course.cells, role)


class SyncLanes(BlockPane):
    """Lanes of wait and transfer, and lanes of efficiencies to their right or below, as a block of a screen."""

    @staticmethod
    def rows(width: int) -> int:
        """Return the number of rows of lanes."""
        return len(_EFFICIENCIES) if sides(width) > 1 else len(_TIMES) + len(_EFFICIENCIES)

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        snapshot = frame.snapshot
        if snapshot is None or snapshot.efficiency is None or not snapshot.step:
            return None
        rows = self.rows(width)
        return Block(60, 1 + rows, height=1 + (_TALLEST + 1) * rows)

    @property
    def view_request(self) -> ViewRequest:
        return ViewRequest(sync=courses_request(self.frame.snapshot, self.room[0]))

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        view = None if frame.snapshot is None else frame.snapshot.sync
        if view is None or not view.courses:
            note = "coming…" if view is None else "no step yet"
            return [pane_title("through time ", width), [(f" {note}", "muted")]]
        courses = {course.name: course for course in view.courses}
        steps = min(view.per_column * min(view.columns, lanes_of_steps(width, 1, 1).moments), view.last_step)
        times = [named_lane(name, courses.get(name), numbers.ms, role, "text") for name, role in _TIMES.items()]
        shares = [named_lane(name, courses.get(name), numbers.percent, "text", "text") for name in _EFFICIENCIES]
        full = courses["wait"].high if "wait" in courses else 0.0
        legend: Line = [(f" wait and transfer up to {numbers.ms(full)} ms, efficiencies to 100% ", "muted")]
        heading = pane_title(f"through time, the last {numbers.count(steps)} steps ", width, legend)
        rows = self.rows(width)
        lines = rows * lines_each(height - 1, rows)
        columns = [times, shares] if sides(width) > 1 else [[*times, *shares]]
        # The side with fewer lanes gets higher lanes, so that both sides end on the same line.
        each = width // len(columns)
        drawn = [LaneGrid(each, _LABEL, *split_height(lines, len(side), lines)).lines([side]) for side in columns]
        return [
            heading,
            *([p for part in row for p in fit_line(part, each)] for row in zip_longest(*drawn, fillvalue=[])),
        ]


class WaitLanes(BlockPane):
    """Lanes that show which ranks wait for others, and since when: one per rank, on the same scale, sorted by rank.

    The lanes are not sorted by wait, because that order changes all the time.
    """

    @staticmethod
    def rows(ranks: int, width: int) -> int:
        """Return the number of rows of lanes."""
        return -(-ranks // sides(width))

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        snapshot = frame.snapshot
        if snapshot is None or not snapshot.step or len(snapshot.ranks) < 2 or _METRIC in snapshot.unmeasured:
            return None
        return Block(60, 1 + self.rows(len(snapshot.ranks), width))

    @property
    def view_request(self) -> ViewRequest:
        snapshot = self.frame.snapshot
        if snapshot is None:
            return ViewRequest()
        rows, of, listed = max(1, len(snapshot.ranks)), courses_request(snapshot, self.room[0]), self.frame.listed_spans
        return ViewRequest(heat=SeriesRequest((_METRIC,), listed, of.columns, of.per_column, rows))

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        snapshot = frame.snapshot
        view = None if snapshot is None else snapshot.heat
        if snapshot is None or view is None or view.metric != _METRIC or not view.rows:
            return [pane_title("each rank's wait through time ", width), [(f" {frame.why_absent}", "muted")]]
        high, shown = wait_courses(view)
        named, chosen = rank_marks.accused_ranks(snapshot), self.chosen_rank()

        def lane(course: Course) -> Lane:
            marked = course.rank in named
            role = "warn" if marked else "strong" if course.rank == chosen else "text"
            return named_lane(f"{'▲' if marked else ' '}rank {course.rank}", course, numbers.percent, "wait", role)

        rows = self.rows(len(shown), width)
        grid = lanes_of_steps(width, height - 1, rows)
        lanes = [list(map(lane, shown[first : first + rows])) for first in range(0, len(shown), rows)]
        steps = min(view.steps * min(view.columns, grid.moments), view.last_step)
        of = f"each rank's wait through time, the last {numbers.count(steps)} steps "
        legend: Line = [(f" up to {numbers.percent(high)} of a step ", "muted")]
        return [pane_title(of, width, legend), *grid.lines(lanes)]


def wait_courses(view: HeatView) -> tuple[float, list[Course]]:
    """Return the upper end of the scale, as a share of a step, and each rank's history of wait on that scale."""
    most = max(view.cells.translate(None, bytes([NOTHING, NOT_FINITE])), default=MOST)
    high, scaled = _scaled(most, view.low, view.high)
    cells = view.cells.translate(scaled)
    return high, [
        Course(row.ranks[0], "share of a step", 0.0, high, cells[place * view.columns : (place + 1) * view.columns])
        for place, row in enumerate(view.rows)
        if row.count == 1
    ]


@lru_cache(maxsize=16)
def _scaled(most: int, low: float, high: float) -> tuple[float, bytes]:
    """Return the value at the upper end of a new scale, and a table that translates cells to this scale. most: the
    highest cell.
    """
    values = [low + share(cell) * (high - low) for cell in range(NOT_FINITE)]
    top = max(values[most], _FLOOR)
    on_scale = [LEAST + round(min(1.0, max(0.0, value / top)) * (MOST - LEAST)) for value in values]
    return top, bytes([NOTHING, *on_scale[LEAST:], NOT_FINITE])
