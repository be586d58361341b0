"""Profiles of ranks by torch's profiler: the hub's request for one, a rank's answer, and what viewers are shown."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from ddpmon.messages.stack_samples import MAX_SAMPLED_S
from ddpmon.messages.vocabulary import OWN_PHASES, Amount, Count, Micros, Pid, Rank, StepCount, Text

MAX_PROFILED_STEPS = 50
MAX_PROFILED_RANKS = 16
MAX_OPERATORS = 400
MAX_SLICES = 30_000
"""Slices of a rank's trace; the shortest of more are left out."""
MAX_TRACKS = 64
MAX_OPERATOR_CHARS = 120
OUTSIDE = "(Python, outside operators)"
"""Name of a phase's time that no operator covers, and in which the rank waits for no other one."""

OperatorName = Annotated[str, Meta(max_length=MAX_OPERATOR_CHARS)]
Slices = Annotated[list[Micros], Meta(max_length=MAX_SLICES)]


PeakFlops = Annotated[float, Meta(ge=0, le=1e21)]


class ProfileOutcome(IntEnum):
    """Why a rank answers with a profile, or without one."""

    PROFILED = 0
    OWN_PROFILER = 1
    """The script's own profiler is there."""
    NO_STEP = 2
    """The rank did not come to the end of a step in time."""
    FAILED = 3
    """The profiler raised an exception."""
    COMPILED = 4
    """The script uses torch.compile, whose operators cannot be counted."""


class ProfileSteps(msgspec.Struct, array_like=True, tag="profile"):
    """The hub asks a rank to run torch's profiler for some steps."""

    steps: Annotated[int, Meta(gt=0, le=MAX_PROFILED_STEPS)]
    seconds: Annotated[float, Meta(gt=0, le=MAX_SAMPLED_S)]
    """Time in which the rank must come to the end of a step, where the profiler starts."""
    peak_flops: PeakFlops = 0.0
    """Count the operations of one step instead, on a device that can do so many a second; 0: profile operators."""


class Operator(msgspec.Struct, array_like=True, frozen=True):
    """Calls of an operator, or of a kernel, in one phase."""

    name: OperatorName
    phase: Annotated[int, Meta(ge=0, lt=len(OWN_PHASES))]
    calls: Count
    self_us: Micros
    """CPU time without that of the operators inside."""
    device_us: Micros
    """Time of a kernel on the GPU."""


class Track(msgspec.Struct, array_like=True):
    """A thread, a GPU stream or ddpmon's phases through time; the lists are equally long."""

    name: OperatorName
    names: Annotated[list[StepCount], Meta(max_length=MAX_SLICES)]
    """Index of each slice's name in `Profile.names`."""
    starts_us: Slices
    """Each since the start of the one before, the first since `Profile.begin_us`."""
    lengths_us: Slices


class Profile(msgspec.Struct, array_like=True, tag="profiled"):
    """A rank's answer to `ProfileSteps`."""

    rank: Rank
    pid: Pid
    outcome: ProfileOutcome
    error: Annotated[str, Meta(max_length=1000)] = ""
    first_step: StepCount = 0
    last_step: StepCount = 0
    """Every step that the profiler ran in, if only in part."""
    steps: StepCount = 0
    """Passes of the training loop between its start and its end."""
    begin_us: Micros = 0
    span_us: Micros = 0
    """Length of these passes together."""
    step_us: Micros = 0
    """Median length of one."""
    start_us: Micros = 0
    """Time that the training thread spent to start the profiler, and to end it."""
    end_us: Micros = 0
    operators: Annotated[list[Operator], Meta(max_length=MAX_OPERATORS)] = []
    """Those with the most time."""
    names: Annotated[list[OperatorName], Meta(max_length=MAX_SLICES)] = []
    tracks: Annotated[list[Track], Meta(max_length=MAX_TRACKS)] = []
    left_out: Count = 0
    """Slices that were left out of the tracks."""
    flops: Amount = 0.0
    """Floating-point operations of the model in one step, if these were asked for."""


class ProfiledRank(msgspec.Struct, frozen=True):
    """One rank of a profile."""

    rank: Rank
    why: Text = ""
    """Why there is no profile of it, in words; empty: there is one, or it is on its way."""
    answered: bool = False
    first_step: Count = 0
    last_step: Count = 0
    steps: Count = 0
    step_ms: Amount = 0.0
    """Median length of a step under the profiler."""
    usual_ms: Amount = 0.0
    """Mean length of a step before it."""
    cost_ms: Amount = 0.0
    """Time to start the profiler and to end it."""
    left_out: Count = 0
    flops: Amount = 0.0
    """Floating-point operations of the model in one step, if these were asked for."""
    peak_flops: Amount = 0.0
    """Operations that its device can do in a second, if those of a step were asked for."""

    @property
    def mfu(self) -> float | None:
        """Return the model FLOPs utilization in a step of the usual length; None: it is not known."""
        if not (self.answered and self.peak_flops and self.usual_ms):
            return None
        return self.flops / (self.usual_ms / 1e3) / self.peak_flops


class OperatorRow(msgspec.Struct, array_like=True, frozen=True):
    """An operator or kernel in one phase, per step, of each rank that was profiled."""

    name: Text
    phase: Text
    """One of OWN_PHASES."""
    self_ms: list[Amount]
    """CPU time, in the order of `ProfileView.ranks` that answered."""
    device_ms: list[Amount]
    calls: list[Amount]
    waits: bool = False
    """True if it waits for other ranks or for the GPU: a rank that is ahead spends more in it."""

    @property
    def spent_ms(self) -> list[float]:
        """Return the time of each rank, on the CPU and on the GPU."""
        return [cpu + device for cpu, device in zip(self.self_ms, self.device_ms, strict=True)]

    @property
    def difference_ms(self) -> float:
        """Return the difference between the rank with the most time and the one with the least."""
        return max(self.spent_ms) - min(self.spent_ms)


class ProfileView(msgspec.Struct, frozen=True):
    """The latest profile of a run."""

    number: Count
    """Counts the profiles of a run from 1; 0: there is none yet."""
    ranks: list[ProfiledRank]
    waits: bool
    """True while a rank is still to answer."""
    rows: list[OperatorRow]
    """The largest difference first."""
    trace: Text = ""
    """File of the trace on the hub's machine."""
