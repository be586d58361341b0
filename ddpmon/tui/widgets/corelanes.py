"""The cores of the run's machine through time, a lane each: which of them are idle, and which one everybody is on."""

from __future__ import annotations

import math
from functools import lru_cache

from ddpmon import numbers
from ddpmon.messages import HEAT_MOST, SAMPLE_SECONDS, CoreCourse, CoresWish, Snapshot, Wish
from ddpmon.messages.cells import NOTHING
from ddpmon.tui import axis
from ddpmon.tui.blocks import Block
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, fit, plain, title
from ddpmon.tui.sizes import TALL
from ddpmon.tui.widgets.area import MOMENTS, area, share
from ddpmon.tui.widgets.blockpane import BlockPane
from ddpmon.tui.widgets.pane import Actions

_LABEL, _SHARE, _AIR = 5, 5, 2
"""Columns of a core's number, of how busy it is now, and between two lanes."""
_LEAST_LANE = 8
_LEAST = _LABEL + _LEAST_LANE + _SHARE + _AIR
_WIDEST_LANE = 60
_FEW = 8
"""Cores up to which each has a line of its own, however wide the screen is."""
_TALLEST = 3
"""Lines of a lane on a tall screen."""
_AROUND = 2
"""Lines of the title, and of the axis where there is room for it."""


class CoreLanes(BlockPane):
    """All cores of the machine that the run's hub is on. They are not recorded: a run that is over has none."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._seconds = SAMPLE_SECONDS[0]
        """Seconds of each column."""
        self._told = "", 0
        """A run, and how many cores its hub tells of; 0: nobody does."""

    def next_window(self) -> None:
        """More seconds in a column; after the most, one again."""
        self._seconds = SAMPLE_SECONDS[(SAMPLE_SECONDS.index(self._seconds) + 1) % len(SAMPLE_SECONDS)]

    @property
    def actions(self) -> Actions:
        return {"window": self.next_window}

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        shot = frame.snapshot
        if shot is None or frame.ended or frame.cursor is not None:
            return None
        if shot.cores is not None and (shot.cores.cores or not shot.cores.columns):
            self._told = shot.run.id, len(shot.cores.cores)
        run, told = self._told
        cores = told if run == shot.run.id else _expected(shot)
        if not cores:
            return None
        lines = _lines(cores, width)
        most = max(min(cores, _FEW), lines) * (_TALLEST if height >= TALL else 1)
        return Block(width, 1 + lines, height=_AROUND + most)

    @property
    def wish(self) -> Wish:
        lane = min(_WIDEST_LANE, self.room[0])
        return Wish(cores=CoresWish(self._seconds, max(1, min(HEAT_MOST, MOMENTS * lane))))

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        view = None if frame.snapshot is None else frame.snapshot.cores
        if view is None or not view.cores or view.seconds != self._seconds:
            return [title("cores ", width), [(" nothing measured yet", "muted")]]
        lines = min(max(1, height - 1), max(min(len(view.cores), _FEW), _lines(len(view.cores), width)))
        tall = max(1, min(_TALLEST, (height - _AROUND) // lines))
        beside = max(1, min(math.ceil(len(view.cores) / lines), (width + _AIR) // _LEAST))
        lines = min(lines, math.ceil(len(view.cores) / beside))
        each = (width + _AIR) // beside - _AIR
        lane = max(1, min(_WIDEST_LANE, each - _LABEL - _SHARE))
        span_s = float(MOMENTS * lane * view.seconds)
        span = numbers.span(min(span_s, float(view.columns * view.seconds)))
        left = len(view.cores) - beside * lines
        more = f", {left} more where there is room" if left > 0 else ""
        drawn = [title(f"the {len(view.cores)} cores of {plain(view.host)}, the last {span}{more} ", width)]
        gap = (" " * _AIR, "text")
        for row in range(lines):
            lanes = [_lane(core, lane, tall) for core in view.cores[row : beside * lines : lines]]
            drawn += [[piece for each in lanes for piece in (*each[line], gap)] for line in range(tall)]
        below: Line = [(" " * _LABEL + axis.ages(span_s, lane), "muted")]
        return [*drawn, [piece for _ in range(beside) for piece in fit(below, _LABEL + lane + _SHARE + _AIR)]]


def _expected(snapshot: Snapshot) -> int:
    """Return how many cores there are, as far as it is known before they are asked for."""
    return max((rank.environment.cores for rank in snapshot.ranks if rank.environment is not None), default=0)


def _lines(cores: int, width: int) -> int:
    return math.ceil(cores / max(1, (width + _AIR) // _LEAST))


@lru_cache(maxsize=1024)
def _lane(core: CoreCourse, width: int, tall: int) -> list[Line]:
    """Kept, because cores are measured every second and frames come twice as often."""
    now = core.cells[-1] if core.cells else NOTHING
    drawn = area(core.cells, width, tall, lambda _: "info")
    text = numbers.NONE if now == NOTHING else f"{share(now):.0%}"
    labels = [("", "")] * (tall - 1) + [(f"{core.core:>{_LABEL - 1}} ", text)]
    return [
        [(f"{label:>{_LABEL}}", "muted"), *line, (f"{now_text:>{_SHARE}}", "text")]
        for (label, now_text), line in zip(labels, drawn, strict=True)
    ]
