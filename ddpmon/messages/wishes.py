"""Requests of viewers to the hub."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ddpmon.messages.profiles import MAX_PROFILED_STEPS
from ddpmon.messages.values import Rank, StepCount
from ddpmon.messages.vocabulary import (
    COST_WINDOWS,
    DEVICE_COURSES,
    HEAT_MOST,
    LOGGED,
    MAX_LOGGED,
    MAX_STEP,
    MAX_US,
    MAX_WORLD,
    SERIES_MOST,
)

RankSpans: TypeAlias = tuple[tuple[Rank, Rank], ...]
"""First and last of each run of ranks, rising; empty: no rank."""
CellCount: TypeAlias = Annotated[int, Meta(gt=0, le=HEAT_MOST)]
"""Rows or columns of a chart."""


class HeatWish(msgspec.Struct, array_like=True, frozen=True):
    """Request for the heat map."""

    metric: str = "own"
    """One of HEAT_METRICS."""
    steps: int = 1
    """In a column: one of HEAT_STEPS, or WHOLE_RUN."""
    rows: CellCount = 16
    """At most."""
    columns: CellCount = 64
    ranks: RankSpans | None = None
    """Only these; None: all."""
    beyond_chance: bool = False
    """True to mark ranks that are late beyond the noise, where the metric is one of HEAT_JUDGED."""


class TimelineWish(msgspec.Struct, array_like=True, frozen=True):
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


class CostWish(msgspec.Struct, array_like=True, frozen=True):
    """Request for the cost of all-reduce."""

    over: str = COST_WINDOWS[0]
    """One of COST_WINDOWS."""


class InspectWish(msgspec.Struct, array_like=True, frozen=True):
    """Request for one rank's inspection."""

    rank: Rank = 0
    steps: int = 1
    """In a column: one of HEAT_STEPS."""
    columns: CellCount = 40


class SyncWish(msgspec.Struct, array_like=True, frozen=True):
    """Request for wait, transfer and the efficiencies through time."""

    steps: int = 1
    """In a column: one of HEAT_STEPS."""
    columns: CellCount = 64


class StripsWish(msgspec.Struct, array_like=True, frozen=True):
    """Request for own time of several ranks through time."""

    steps: int = 1
    """In a column: one of HEAT_STEPS."""
    columns: CellCount = 24
    ranks: RankSpans = ()


class SamplesWish(msgspec.Struct, array_like=True, frozen=True):
    """Request for samples of devices through time."""

    names: Annotated[tuple[str, ...], Meta(max_length=len(DEVICE_COURSES))] = ()
    """Names of DEVICE_COURSES."""
    seconds: int = 1
    """In a column: one of SAMPLE_SECONDS."""
    columns: CellCount = 64
    ranks: RankSpans = ()


class CoresWish(msgspec.Struct, array_like=True, frozen=True):
    """Request for the cores of the hub's machine, one by one."""

    seconds: int = 1
    """In a column: one of SAMPLE_SECONDS."""
    columns: CellCount = 64


class PrintedWish(msgspec.Struct, array_like=True, frozen=True):
    """Request for the output of a rank on another machine, by a viewer that has no logs of it."""

    rank: Rank = 0


class SeriesWish(msgspec.Struct, array_like=True, frozen=True):
    """Request for a quantity over time."""

    name: Annotated[str, Meta(max_length=len(LOGGED) + MAX_LOGGED)] = "loss"
    """One of a snapshot's `quantities`."""
    span_s: Annotated[float, Meta(gt=0, lt=MAX_US)] | None = None
    """Length back from the end; None: from the run's start."""
    end_s: Annotated[float, Meta(ge=0, lt=MAX_US)] | None = None
    """End since the run started; None: now."""
    points: Annotated[int, Meta(gt=0, le=SERIES_MOST)] = 512
    """At most, and two beside them."""


class Wish(msgspec.Struct, array_like=True, frozen=True):
    """Parts of a snapshot that only one screen shows. None: not wanted."""

    heat: HeatWish | None = None
    timeline: TimelineWish | None = None
    cost: CostWish | None = None
    inspect: InspectWish | None = None
    stacks: bool = False
    """True to include the last place of every rank."""
    series: SeriesWish | None = None
    samples: SamplesWish | None = None
    strips: StripsWish | None = None
    sync: SyncWish | None = None
    heat_phases: HeatWish | None = None
    """The same of each phase of own time, whatever its metric."""
    printed: PrintedWish | None = None
    cores: CoresWish | None = None
    profile: bool = False
    """True to include the latest profile of ranks."""


def together(*wishes: Wish) -> Wish:
    """All that any of these wants; where several want the same part, the last one decides."""
    wanted = {
        name: value for wish in wishes for name in Wish.__struct_fields__ if (value := getattr(wish, name))
    }  # fmt: skip
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


FromViewer: TypeAlias = Next | Ask
