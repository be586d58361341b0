"""Requests of viewers to the hub: parts of the snapshot, stacks and profiles of ranks."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ddpmon.messages.profiles import MAX_PROFILED_STEPS, PeakFlops
from ddpmon.messages.vocabulary import (
    COST_WINDOWS,
    DEVICE_COURSES,
    HEAT_METRICS,
    HEAT_MOST,
    HEAT_STEPS,
    LOGGED,
    MAX_LOGGED,
    MAX_PHASE_NAMES,
    MAX_STEP,
    MAX_US,
    MAX_WORLD,
    OWN_PHASES,
    SAMPLE_SECONDS,
    SERIES_MOST,
    WHOLE_RUN,
    Rank,
    StepCount,
    require,
)

RankSpans: TypeAlias = tuple[tuple[Rank, Rank], ...]
"""First and last rank of each span of neighbouring ranks, in ascending order; empty means no rank."""
CellCount: TypeAlias = Annotated[int, Meta(gt=0, le=HEAT_MOST)]
"""Number of rows or columns of a chart."""
_QuantityName: TypeAlias = Annotated[str, Meta(max_length=len(LOGGED) + MAX_LOGGED)]
_SERIES_OF_CELLS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "heat": (HEAT_METRICS, (*HEAT_STEPS, WHOLE_RUN)),
    "heat_phases": (OWN_PHASES, (*HEAT_STEPS, WHOLE_RUN)),
    "inspect": ((), HEAT_STEPS),
    "strips": ((), HEAT_STEPS),
    "sync": ((), HEAT_STEPS),
    "samples": (DEVICE_COURSES, SAMPLE_SECONDS),
    "cores": ((), SAMPLE_SECONDS),
}
"""By part of a ViewRequest: names of the quantities, and numbers of steps or seconds per column, that the part may
request."""


def _check_spans(spans: RankSpans | None) -> None:
    """Check that spans are in ascending order, so that there are never more spans than ranks."""
    end = -1
    for first, last in spans or ():
        require(end < first <= last, "ranks", (first, last))
        end = last


class SeriesRequest(msgspec.Struct, array_like=True, frozen=True):
    """Request for quantities over time: it selects the ranks, the stretch of time and the resolution."""

    quantities: Annotated[tuple[_QuantityName, ...], Meta(max_length=MAX_PHASE_NAMES)] = ()
    """Names of the quantities; empty means all that the part of the snapshot can show."""
    ranks: RankSpans | None = None
    """Ranks to include, or None for all."""
    columns: Annotated[int, Meta(gt=0, le=SERIES_MOST)] = 64
    """Largest number of columns or points."""
    per_column: int = 1
    """Number of steps in a column: one of HEAT_STEPS, or WHOLE_RUN for as many as the whole run needs. For samples,
    number of seconds in a column: one of SAMPLE_SECONDS."""
    rows: CellCount = 16
    """Largest number of rows of a heat map: if there are more ranks, neighbouring ones share a row."""
    beyond_chance: bool = False
    """True to mark ranks that are late beyond the noise, if the quantity is one of HEAT_JUDGED."""
    span_s: Annotated[float, Meta(gt=0, lt=MAX_US)] | None = None
    """Length in seconds of the stretch of time that a chart shows, up to `end_s`, or None for the whole time since the
    run's start."""
    end_s: Annotated[float, Meta(ge=0, lt=MAX_US)] | None = None
    """End of that stretch in seconds since the run started, or None for now."""

    def __post_init__(self) -> None:
        _check_spans(self.ranks)

    @property
    def listed(self) -> list[int]:
        """Return the numbers of all ranks in the request's spans."""
        return [rank for first, last in self.ranks or () for rank in range(first, last + 1)]


class TimelineRequest(msgspec.Struct, array_like=True, frozen=True):
    """Request for the last steps, rank by rank."""

    steps: CellCount = 4
    rows: CellCount = 16
    """Largest number of ranks. If there are more ranks, those that arrive latest are shown."""
    first: Rank = 0
    """Number of ranks to skip at the top of the list, to scroll."""
    ranks: RankSpans | None = None
    """Ranks to include, or None for all."""
    longest: bool = False
    """True to include a list of the run's longest steps."""
    step: Annotated[int, Meta(ge=0, le=MAX_STEP)] = 0
    """Number of the step to show, which is one of the run's longest steps, or 0 to show the last steps."""

    def __post_init__(self) -> None:
        _check_spans(self.ranks)


class ViewRequest(msgspec.Struct, array_like=True, frozen=True):
    """A viewer's request for parts of a snapshot that only some screens need. A part that is None is not requested."""

    heat: SeriesRequest | None = None
    """The heat map of one of HEAT_METRICS."""
    timeline: TimelineRequest | None = None
    cost: str | None = None
    """The cost of all-reduce over one of COST_WINDOWS."""
    inspect: SeriesRequest | None = None
    """History of one rank's quantities, compared with the rank's peers, and the rank's stack."""
    stacks: bool = False
    """True to include the latest stack of every rank."""
    series: SeriesRequest | None = None
    """Lowest, median and highest value of one of a snapshot's `quantities`."""
    samples: SeriesRequest | None = None
    """Some of DEVICE_COURSES, second by second."""
    strips: SeriesRequest | None = None
    """Own time of several ranks."""
    sync: SeriesRequest | None = None
    """Wait, transfer and the efficiencies of all ranks together."""
    heat_phases: SeriesRequest | None = None
    """A heat map of each phase of own time."""
    printed: Rank | None = None
    """Rank whose output is requested from its machine, because the viewer has no access to its logs."""
    cores: SeriesRequest | None = None
    """Load of each CPU core of the hub's machine."""
    profile: bool = False
    """True to include the latest profile of ranks."""

    def __post_init__(self) -> None:
        require(self.cost in (None, *COST_WINDOWS), "steps that the cost is of", str(self.cost)[:40])
        require(self.series is None or len(self.series.quantities) == 1, "quantities", self.series)
        require(self.inspect is None or bool(self.inspect.ranks), "ranks to inspect", None)
        for part, (names, per_column) in _SERIES_OF_CELLS.items():
            request: SeriesRequest | None = getattr(self, part)
            if request is not None:
                require(set(request.quantities) <= set(names), "quantities", request.quantities[:8])
                require(request.per_column in per_column, "steps or seconds in a column", request.per_column)
                require(request.columns <= HEAT_MOST, "columns", request.columns)
                # A screen has at most HEAT_MOST lines, so it needs no more ranks. A row of a heat map may cover several
                # ranks.
                few = sum(last - first + 1 for first, last in request.ranks or ()) <= HEAT_MOST
                require(few or part.startswith("heat"), "ranks", request.ranks)


def merge_requests(*view_requests: ViewRequest) -> ViewRequest:
    """Return one request for all parts of several requests. If several of them request a part, the last one counts."""
    wanted = {
        name: value
        for view_request in view_requests
        for name in ViewRequest.__struct_fields__
        if (value := getattr(view_request, name)) is not None and value is not False
    }
    return ViewRequest(**wanted)


class Next(msgspec.Struct, array_like=True, tag="next"):
    """A viewer requests one snapshot newer than its current one, which is `version` of the hub process `epoch`."""

    version: int = 0
    epoch: str = ""
    view_request: ViewRequest = ViewRequest()
    base: StepCount = 0
    """Version of the snapshot to which the viewer can apply changes, or 0 if the viewer has no snapshot."""


class Ask(msgspec.Struct, array_like=True, tag="ask"):
    """A viewer requests the stacks or a profile of ranks. The answer is in later snapshots that the viewer requests."""

    ranks: Annotated[list[Rank], Meta(max_length=MAX_WORLD)] = msgspec.field(default_factory=list)
    """Ranks to ask. If it is empty, all ranks are asked for stacks; for a profile, a slow rank and one of its peers."""
    profile_steps: Annotated[int, Meta(ge=0, le=MAX_PROFILED_STEPS)] = 0
    """Number of steps to profile, or 0 to request stacks instead."""
    peak_flops: PeakFlops = 0.0
    """Value for `ProfileSteps.peak_flops`."""


FromViewer: TypeAlias = Next | Ask
