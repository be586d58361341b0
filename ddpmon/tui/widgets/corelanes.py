"""The cores of the run's machine through time, a lane each: which of them are idle, and which one everybody is on."""

from __future__ import annotations

import math

from ddpmon import numbers
from ddpmon.messages import HEAT_MOST, Course, SeriesRequest, Snapshot, Wish
from ddpmon.messages.cells import NOTHING
from ddpmon.tui.blocks import Block
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, plain, title
from ddpmon.tui.sizes import TALL
from ddpmon.tui.widgets.lanes import MOMENTS, Lane, LaneGrid, SampledLanes, share, split_height

_LABEL, _SHARE = 5, 5
"""Columns of a core's number, and of how busy it is now."""
_LEAST, _WIDEST = 20, 71
"""Columns of the screen that a core takes."""
_FEW = 8
"""Cores up to which each has a line of its own, however wide the screen is."""
_TALLEST = 3
"""Lines of a lane on a tall screen."""
_AROUND = 2
"""Lines of the title, and of the axis where there is room for it."""


class CoreLanes(SampledLanes):
    """All cores of the machine that the run's hub is on. They are not recorded: a run that is over has none."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._told = "", 0
        """A run, and how many cores its hub tells of; 0: nobody does."""

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        shot = frame.snapshot
        if shot is None or frame.ended or frame.cursor is not None:
            return None
        if shot.cores is not None and (shot.cores.courses or not shot.cores.columns):
            self._told = shot.run.id, len(shot.cores.courses)
        run, told = self._told
        cores = told if run == shot.run.id else _expected(shot)
        if not cores:
            return None
        lines = _lines(cores, width)
        most = max(min(cores, _FEW), lines) * (_TALLEST if height >= TALL else 1)
        return Block(width, 1 + lines, height=_AROUND + most)

    @property
    def wish(self) -> Wish:
        columns = MOMENTS * min(_WIDEST, self.room[0])
        return Wish(cores=SeriesRequest(columns=max(1, min(HEAT_MOST, columns)), per_column=self.seconds))

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        view = None if frame.snapshot is None else frame.snapshot.cores
        if view is None or not view.courses or view.per_column != self.seconds:
            return [title("cores ", width), [(" nothing measured yet", "muted")]]
        count = len(view.courses)
        lines = min(max(1, height - 1), max(min(count, _FEW), _lines(count, width)))
        beside = max(1, min(math.ceil(count / lines), width // _LEAST))
        lines = min(lines, math.ceil(count / beside))
        tall, air = split_height(height - _AROUND, lines, _TALLEST)
        grid = LaneGrid(min(_WIDEST, width // beside), _LABEL, tall, air, _SHARE)
        left = count - beside * lines
        more = f", {left} more in a larger terminal" if left > 0 else ""
        heading = f"the {count} cores of {plain(view.host)}, the last {self.span_text(grid, view.columns)}{more} "
        lanes = [[_lane(core) for core in view.courses[side * lines : (side + 1) * lines]] for side in range(beside)]
        return [title(heading, width), *grid.lines(lanes), grid.ages(view.per_column, beside)]


def _expected(snapshot: Snapshot) -> int:
    """Return how many cores there are, as far as it is known before they are asked for."""
    return max((rank.environment.cores for rank in snapshot.ranks if rank.environment is not None), default=0)


def _lines(cores: int, width: int) -> int:
    return math.ceil(cores / max(1, width // _LEAST))


def _lane(core: Course) -> Lane:
    now = core.cells[-1] if core.cells else NOTHING
    text = numbers.NONE if now == NOTHING else f"{share(now):.0%}"
    return Lane([(f"{core.rank:>{_LABEL - 1}} ", "muted")], core.cells, value=text)
