"""Each rank's wait through time: who waits for whom, since when, and whether it is the same rank all the time."""

from __future__ import annotations

from functools import lru_cache

from ddpmon import numbers
from ddpmon.messages import Course, HeatView, HeatWish, Wish
from ddpmon.messages.cells import LEAST, MOST, NOT_FINITE, NOTHING
from ddpmon.tui import rank_marks
from ddpmon.tui.blocks import Block
from ddpmon.tui.filters import spans
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, title
from ddpmon.tui.widgets.blockpane import BlockPane
from ddpmon.tui.widgets.lanes import Lane, share
from ddpmon.tui.widgets.synclanes import courses_wish, lanes_of_steps, named_lane, sides
from ddpmon.tui.widgets.worldmap import all_ranks

_METRIC = "wait"
_FLOOR = 0.05
"""Share of a step: the least that the scale spans, so that noise of short waits looks like nothing."""


class WaitLanes(BlockPane):
    """A lane a rank on one scale, in the order of ranks: an order by wait would have them change places."""

    @staticmethod
    def rows(ranks: int, width: int) -> int:
        """Lanes below one another."""
        return -(-ranks // sides(width))

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        snapshot = frame.snapshot
        if snapshot is None or not snapshot.step or len(snapshot.ranks) < 2 or _METRIC in snapshot.unmeasured:
            return None
        return Block(60, 1 + self.rows(len(all_ranks(snapshot)), width))

    @property
    def wish(self) -> Wish:
        snapshot = self.frame.snapshot
        if snapshot is None:
            return Wish()
        ranks, of = all_ranks(snapshot), courses_wish(snapshot, self.room[0])
        listed = spans(self.frame.filter, ranks)
        heat = HeatWish(_METRIC, of.steps, max(1, len(ranks)), of.columns, listed, beyond_chance=False)
        return Wish(heat=heat)

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        snapshot = frame.snapshot
        view = None if snapshot is None else snapshot.heat
        if snapshot is None or view is None or view.metric != _METRIC or not view.rows:
            return [title("each rank's wait through time ", width), [(f" {frame.why_absent}", "muted")]]
        high, shown = courses(view)
        named, chosen = rank_marks.accused(snapshot), self.chosen_rank()

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
        return [title(of, width, legend), *grid.lines(lanes)]


def courses(view: HeatView) -> tuple[float, list[Course]]:
    """Return the end of the scale, a share of the step, and the wait of each rank on that scale."""
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
    """The highest value that is shown, and each cell on a scale that ends there. most: the highest cell."""
    values = [low + share(cell) * (high - low) for cell in range(NOT_FINITE)]
    top = max(values[most], _FLOOR)
    on_scale = [LEAST + round(min(1.0, max(0.0, value / top)) * (MOST - LEAST)) for value in values]
    return top, bytes([NOTHING, *on_scale[LEAST:], NOT_FINITE])
