"""Lanes that show load over time: the GPU and CPU of every rank, and each core of the hub's machine."""

from __future__ import annotations

import math
from functools import partial

from ddpmon import numbers
from ddpmon.messages import DEVICE_COURSES, HEAT_MOST, QUANTITIES, Course, SeriesRequest, Snapshot, ViewRequest
from ddpmon.messages.cells import NOTHING
from ddpmon.tui.blocks import TALL, Block
from ddpmon.tui.filters import runs_of
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, fit_line, pane_title, plain_text
from ddpmon.tui.units import value_formatter
from ddpmon.tui.widgets.inspection import BELOW, SIDE_BY_SIDE
from ddpmon.tui.widgets.lanes import MOMENTS, Lane, LaneGrid, SampledLanes, share, split_height
from ddpmon.tui.widgets.pane import Actions
from ddpmon.tui.widgets.rankdetail import ALL_MEASUREMENTS_LINES

IDLE_GPU_SHARE = 0.25
"""Utilization below which a GPU counts as idle and its cell is highlighted."""
_LABEL = 7
_LEAST_WIDTH, _EACH = 40, 52
"""Minimum widths in columns of the screen: of a single quantity, and of each of several quantities."""
_TALLEST = 6
_ABOVE, _BELOW = 2, 1
"""Number of lines above the lanes (the title and the head of each column of lanes), and below them (the axis)."""
_TITLES = {
    "gpu": "gpu%", "gpu_memory": "gpu mem", "cpu": "cpu%, 100% per core", "starved": "starved", "rss": "mem",
    "cores": "cores busy on its host",
}  # fmt: skip
_ROLES = {"gpu": "info", "cpu": "info", "cores": "info"}
_BY_GPU = ("gpu", "gpu_memory", "cpu", "cores", "rss", "starved")
_BY_CPU = ("cpu", "cores", "starved", "rss")


def quantities(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the quantities that are measured and worth a lane, the most informative first."""
    order = _BY_GPU if any(rank.has_gpu_sample for rank in snapshot.ranks) else _BY_CPU
    return tuple(
        name for name in order if any(QUANTITIES[name].get(rank) is not None for rank in snapshot.ranks)
    )  # fmt: skip


class DeviceLanes(SampledLanes):
    """The lanes of the ranks that are visible in the list."""

    def __init__(self, *, whole_width: bool = False, id: str | None = None) -> None:
        """Make the lanes.

        Args:
            whole_width: True for lanes that fill the whole width below other content. No key changes such lanes.
            id: Textual's id of the widget.

        """
        super().__init__(id=id)
        self._whole_width = whole_width

    @property
    def actions(self) -> Actions:
        return {} if self._whole_width else super().actions

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        ranks = 0 if frame.snapshot is None else len(frame.snapshot.ranks)
        if not ranks or frame.snapshot is None or not quantities(frame.snapshot):
            return None
        least = _ABOVE + min(ranks, 4) + _BELOW
        if self._whole_width and height < TALL:
            spare = height - (ranks + 2) - ALL_MEASUREMENTS_LINES
            if width < SIDE_BY_SIDE or spare < _ABOVE + ranks + _BELOW:
                return None
            least = _used(ranks, spare)
        return Block(
            width if self._whole_width else _LEAST_WIDTH,
            least,
            height=_ABOVE + (_TALLEST + 1) * ranks + _BELOW,
            used=partial(_used, ranks),
        )

    def _shown(self, snapshot: Snapshot | None) -> tuple[list[int | None], tuple[str, ...]]:
        """Return the ranks and the quantities that fit. If the lanes are to the right of the list, each lane is on the
        line of its rank; None stands for a line without a rank.
        """
        width, height = self.room
        names = () if snapshot is None else quantities(snapshot)[: max(1, width // _EACH)]
        lines = self.in_sight()
        if self.beside:
            return lines[1 : max(1, height - 1 - _BELOW)], names
        ranks: list[int | None] = [rank for rank in lines if rank is not None]
        return ranks[: max(0, height - _ABOVE - _BELOW)], names

    @property
    def view_request(self) -> ViewRequest:
        lines, names = self._shown(self.frame.snapshot)
        ranks = [rank for rank in lines if rank is not None]
        if not ranks or not names:
            return ViewRequest()
        columns = min(HEAT_MOST, LaneGrid(self.room[0] // len(names), _LABEL).moments)
        kept = tuple(name for name in DEVICE_COURSES if name in names)
        return ViewRequest(samples=SeriesRequest(kept, runs_of(ranks), columns, self.seconds))

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        ranks, names = self._shown(frame.snapshot)
        view = None if frame.snapshot is None else frame.snapshot.samples
        if view is None or view.per_column != self.seconds or not view.courses or not ranks or not names:
            said = "coming…" if frame.behind_s is None and view is None else "nothing measured yet"
            return [pane_title("through time ", width), [(f" {said}", "muted")]]
        tall, air = (1, 0) if self.beside else split_height(height - _ABOVE - _BELOW, len(ranks), _TALLEST)
        grid = LaneGrid(width // len(names), _LABEL, tall, air)
        courses = {(course.rank, course.name): course for course in view.courses}
        legend: Line = [(f" gpu% under {100 * IDLE_GPU_SHARE:.0f} ", "warn")] if "gpu" in names else []
        shown, listed = (sum(rank is not None for rank in some) for some in (ranks, self.in_sight()))
        part = f", {shown} of {listed} ranks" if shown < listed else ""
        heading = f"through time, the last {self.span_text(grid, view.columns)}{part} "
        heads = [_head(name, [course for (_, of), course in courses.items() if of == name]) for name in names]
        chosen = self.chosen_rank()
        lanes = [[_lane(courses, rank, name, chosen=rank == chosen) for rank in ranks] for name in names]
        lines = [pane_title(heading, width, legend), [piece for head in heads for piece in fit_line(head, grid.width)]]
        return [
            *[*lines, *grid.lines(lanes)][: height - _BELOW],
            grid.ages(view.per_column, len(names), ended=frame.ended),
        ]


class RankLanes(DeviceLanes):
    """The lanes of one rank, below the rank's details on the Inspect screen."""

    def __init__(self) -> None:
        super().__init__(whole_width=True)

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        if width < SIDE_BY_SIDE or frame.snapshot is None or not quantities(frame.snapshot):
            return None
        return Block(width, BELOW, height=BELOW)


def _used(ranks: int, lines: int) -> int:
    """Return how many of `lines` the lanes of this number of ranks use if all lanes have the same height."""
    around = _ABOVE + _BELOW
    return around + (lines - around) // ranks * ranks if lines >= around + ranks else lines


def _head(name: str, courses: list[Course]) -> Line:
    """Return the head of a column of lanes: its quantity, and the value of a full lane."""
    full = f", full: {value_formatter(QUANTITIES[name].unit)(courses[0].high)}" if courses else ""
    full += f" {numbers.GIGA}" * (bool(courses) and name in {"rss", "gpu_memory"})
    return [(f"{'rank':>{_LABEL - 2}}  {_TITLES[name]}{full}", "muted")]


def _lane(courses: dict[tuple[int, str], Course], rank: int | None, name: str, *, chosen: bool) -> Lane | None:
    if rank is None:
        return None
    course = courses.get((rank, name))
    return Lane(
        [(f"{rank:>{_LABEL - 2}}", "strong" if chosen else "text")],
        None if course is None else course.cells,
        _ROLES.get(name, "muted"),
        IDLE_GPU_SHARE if name == "gpu" else 0.0,
    )


_CORE_LABEL, _CORE_SHARE = 5, 5
"""Widths in columns of a core's number, and of its current load."""
_LEAST_CORE, _WIDEST_CORE = 20, 71
"""Minimum and maximum width of a core's lane, in columns of the screen."""
_FEW_CORES = 8
"""Number of cores up to which each core has its own line, even on a wide screen."""
_TALLEST_CORE = 3
"""Height of a lane on a tall screen, in lines."""
_AROUND_CORES = 2
"""Number of lines for the title, and for the axis if there is room for it."""


class CoreLanes(SampledLanes):
    """Load of each CPU core of the machine on which the run's hub is. Cores are not recorded, so an ended run shows
    none.
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._told = "", 0
        """Id of a run, and the number of cores that its hub reports; 0 if it reports none."""

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        shot = frame.snapshot
        if shot is None or frame.ended or frame.cursor is not None:
            return None
        if shot.cores is not None and (shot.cores.courses or not shot.cores.columns):
            self._told = shot.run.id, len(shot.cores.courses)
        run, told = self._told
        cores = told if run == shot.run.id else _expected_cores(shot)
        if not cores:
            return None
        lines = _core_lines(cores, width)
        most = max(min(cores, _FEW_CORES), lines) * (_TALLEST_CORE if height >= TALL else 1)
        return Block(width, 1 + lines, height=_AROUND_CORES + most)

    @property
    def view_request(self) -> ViewRequest:
        columns = MOMENTS * min(_WIDEST_CORE, self.room[0])
        return ViewRequest(cores=SeriesRequest(columns=max(1, min(HEAT_MOST, columns)), per_column=self.seconds))

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        view = None if frame.snapshot is None else frame.snapshot.cores
        if view is None or not view.courses or view.per_column != self.seconds:
            return [pane_title("cores ", width), [(" nothing measured yet", "muted")]]
        count = len(view.courses)
        lines = min(max(1, height - 1), max(min(count, _FEW_CORES), _core_lines(count, width)))
        beside = max(1, min(math.ceil(count / lines), width // _LEAST_CORE))
        lines = min(lines, math.ceil(count / beside))
        tall, air = split_height(height - _AROUND_CORES, lines, _TALLEST_CORE)
        grid = LaneGrid(min(_WIDEST_CORE, width // beside), _CORE_LABEL, tall, air, _CORE_SHARE)
        left = count - beside * lines
        more = f", {left} more in a larger terminal" if left > 0 else ""
        heading = f"the {count} cores of {plain_text(view.host)}, the last {self.span_text(grid, view.columns)}{more} "
        lanes = [
            [_core_lane(core) for core in view.courses[side * lines : (side + 1) * lines]] for side in range(beside)
        ]
        return [pane_title(heading, width), *grid.lines(lanes), grid.ages(view.per_column, beside, ended=frame.ended)]


def _expected_cores(snapshot: Snapshot) -> int:
    """Return the expected number of cores, from the ranks' environments, before the hub has answered."""
    return max((rank.environment.cores for rank in snapshot.ranks if rank.environment is not None), default=0)


def _core_lines(cores: int, width: int) -> int:
    return math.ceil(cores / max(1, width // _LEAST_CORE))


def _core_lane(core: Course) -> Lane:
    now = core.cells[-1] if core.cells else NOTHING
    text = numbers.NONE if now == NOTHING else f"{share(now):.0%}"
    return Lane([(f"{core.rank:>{_CORE_LABEL - 1}} ", "muted")], core.cells, value=text)
