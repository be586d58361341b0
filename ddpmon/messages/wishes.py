"""Requests of viewers to the hub: parts of the snapshot, stacks and profiles of ranks."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ddpmon.messages.profiles import MAX_PROFILED_STEPS, PeakFlops
from ddpmon.messages.vocabulary import (
    HEAT_MOST,
    LOGGED,
    MAX_LOGGED,
    MAX_NAMES,
    MAX_STEP,
    MAX_US,
    MAX_WORLD,
    SERIES_MOST,
    Rank,
    StepCount,
)

RankSpans: TypeAlias = tuple[tuple[Rank, Rank], ...]
"""First and last of each run of ranks, rising; empty: no rank."""
CellCount: TypeAlias = Annotated[int, Meta(gt=0, le=HEAT_MOST)]
"""Rows or columns of a chart."""
_QuantityName: TypeAlias = Annotated[str, Meta(max_length=len(LOGGED) + MAX_LOGGED)]


class SeriesRequest(msgspec.Struct, array_like=True, frozen=True):
    """Request for quantities over time: of which ranks, how far back and how finely."""

    quantities: Annotated[tuple[_QuantityName, ...], Meta(max_length=MAX_NAMES)] = ()
    """Their names; empty: all those that the part of the snapshot can show."""
    ranks: RankSpans | None = None
    """Only these; None: all."""
    columns: Annotated[int, Meta(gt=0, le=SERIES_MOST)] = 64
    """Moments, at most."""
    per_column: int = 1
    """Steps in a column, one of HEAT_STEPS, or WHOLE_RUN for as many as it takes; of samples one of SAMPLE_SECONDS."""
    rows: CellCount = 16
    """Rows of a heat map, at most: neighbouring ranks share one where there are more."""
    beyond_chance: bool = False
    """True to mark ranks that are late beyond the noise, where the quantity is one of HEAT_JUDGED."""
    span_s: Annotated[float, Meta(gt=0, lt=MAX_US)] | None = None
    """Length of a chart's stretch, back from its end; None: from the run's start."""
    end_s: Annotated[float, Meta(ge=0, lt=MAX_US)] | None = None
    """End of that stretch since the run started; None: now."""

    @property
    def listed(self) -> list[int]:
        """Return the ranks that it names, one by one."""
        return [rank for first, last in self.ranks or () for rank in range(first, last + 1)]


class TimelineRequest(msgspec.Struct, array_like=True, frozen=True):
    """Request for the last steps."""

    steps: CellCount = 4
    rows: CellCount = 16
    """Ranks, at most: the latest to arrive."""
    first: Rank = 0
    """So many ranks are left out before them."""
    ranks: RankSpans | None = None
    """Only these; None: all."""
    longest: bool = False
    """With a list of the run's longest steps."""
    step: Annotated[int, Meta(ge=0, le=MAX_STEP)] = 0
    """One of these instead of the last steps; 0: the last ones."""


class Wish(msgspec.Struct, array_like=True, frozen=True):
    """Parts of a snapshot that only one screen shows. None: not wanted."""

    heat: SeriesRequest | None = None
    """The heat map of one of HEAT_METRICS."""
    timeline: TimelineRequest | None = None
    cost: str | None = None
    """The cost of all-reduce over one of COST_WINDOWS."""
    inspect: SeriesRequest | None = None
    """All quantities of one rank beside its peers', and its stack."""
    stacks: bool = False
    """True to include the last place of every rank."""
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
    """The output of this rank on another machine, for a viewer that has no logs of it."""
    cores: SeriesRequest | None = None
    """The cores of the hub's machine, one by one."""
    profile: bool = False
    """True to include the latest profile of ranks."""


def together(*wishes: Wish) -> Wish:
    """All that any of these wants; where several want the same part, the last one decides."""
    wanted = {
        name: value
        for wish in wishes
        for name in Wish.__struct_fields__
        if (value := getattr(wish, name)) is not None and value is not False
    }
    return Wish(**wanted)


class Next(msgspec.Struct, array_like=True, tag="next"):
    """A viewer's credit for one snapshot newer than `version` of hub `epoch`."""

    version: int = 0
    epoch: str = ""
    wish: Wish = Wish()
    base: StepCount | None = None
    """The version that it has and of which it takes changes, 0: of none; None: it wants each one whole."""


class Ask(msgspec.Struct, array_like=True, tag="ask"):
    """A viewer asks ranks where they are now, or for a profile; snapshots that it wishes for hold the answer."""

    ranks: Annotated[list[Rank], Meta(max_length=MAX_WORLD)] = msgspec.field(default_factory=list)
    """Empty: all of them; for a profile, a slow rank and one of its peers."""
    profile_steps: Annotated[int, Meta(ge=0, le=MAX_PROFILED_STEPS)] = 0
    """Steps to profile; 0: the ranks are to say where they are."""
    peak_flops: PeakFlops = 0.0
    """As of `ProfileSteps`."""


FromViewer: TypeAlias = Next | Ask
