"""Profiles of ranks by torch's profiler: the hub's request, a rank's answer, and the view that viewers get."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from ddpmon.messages.stack_samples import MAX_SAMPLED_S
from ddpmon.messages.vocabulary import OWN_PHASES, Amount, Count, Micros, Pid, Rank, StepCount, Text, require

MAX_PROFILED_STEPS = 50
MAX_PROFILED_RANKS = 16
MAX_OPERATORS = 400
MAX_SLICES = 30_000
"""Largest number of slices in a rank's trace. If there are more, the shortest are left out."""
MAX_TRACKS = 64
MAX_OPERATOR_CHARS = 120
OUTSIDE_OPERATORS = "(Python, outside operators)"
"""Name of the row for the rest of a phase: time in which no operator runs and the rank waits for no other rank."""
WAITS_FOR_RANKS = "(waits for other ranks"
"""Beginning of the names of rows for time in which the rank is blocked in a synchronisation."""

OperatorName = Annotated[str, Meta(max_length=MAX_OPERATOR_CHARS)]
Slices = Annotated[list[Micros], Meta(max_length=MAX_SLICES)]


PeakFlops = Annotated[float, Meta(ge=0, le=1e21)]


class ProfileOutcome(IntEnum):
    """Result of a profile request: PROFILED, or the reason why the rank has no profile."""

    PROFILED = 0
    OWN_PROFILER = 1
    """The script runs a profiler of its own."""
    NO_STEP = 2
    """The rank did not finish a step in time."""
    FAILED = 3
    """The profiler raised an exception."""
    COMPILED = 4
    """The script uses torch.compile, whose operators cannot be counted."""


class ProfileSteps(msgspec.Struct, array_like=True, tag="profile"):
    """The hub asks a rank to run torch's profiler for some steps."""

    steps: Annotated[int, Meta(gt=0, le=MAX_PROFILED_STEPS)]
    seconds: Annotated[float, Meta(gt=0, le=MAX_SAMPLED_S)]
    """Seconds within which the rank must finish a step, because the profiler starts only at the end of a step."""
    peak_flops: PeakFlops = 0.0
    """If not 0, the rank counts the floating-point operations of one step instead of profiling operators. The value is
    the number of operations that its device can do in a second."""


class Operator(msgspec.Struct, array_like=True, frozen=True):
    """All calls of one operator, or of one kernel, in one phase."""

    name: OperatorName
    phase: Annotated[int, Meta(ge=0, lt=len(OWN_PHASES))]
    calls: Count
    self_us: Micros
    """CPU time in µs, without the time of operators that this operator calls."""
    device_us: Micros
    """Time of a kernel on the GPU, in µs."""


class Track(msgspec.Struct, array_like=True):
    """Slices of a thread, of a GPU stream, or of ddpmon's phases, in a trace. All lists are equally long."""

    name: OperatorName
    names: Annotated[list[StepCount], Meta(max_length=MAX_SLICES)]
    """Index of each slice's name in `Profile.names`."""
    starts_us: Slices
    """Time in µs from the previous slice's start to each slice's start; for the first slice, from
    `Profile.begin_us`."""
    lengths_us: Slices

    def __post_init__(self) -> None:
        require(len(self.names) == len(self.starts_us) == len(self.lengths_us), "slices", self.name)


class Profile(msgspec.Struct, array_like=True, tag="profiled"):
    """A rank's answer to `ProfileSteps`."""

    rank: Rank
    pid: Pid
    outcome: ProfileOutcome
    error: Annotated[str, Meta(max_length=1000)] = ""
    first_step: StepCount = 0
    last_step: StepCount = 0
    """Last step in which the profiler ran. As for `first_step`, a step counts even if the profiler ran only for a part
    of the step."""
    steps: StepCount = 0
    """Number of iterations of the training loop between the profiler's start and its end."""
    begin_us: Micros = 0
    span_us: Micros = 0
    """Total length of these iterations, in µs."""
    step_us: Micros = 0
    """Median length of these iterations, including the time that the GPU still worked after the training thread had
    finished."""
    start_us: Micros = 0
    """Time that the training thread spent on starting the profiler."""
    end_us: Micros = 0
    """Time that the training thread spent on ending the profiler."""
    operators: Annotated[list[Operator], Meta(max_length=MAX_OPERATORS)] = []
    """Operators and kernels that took the most time."""
    names: Annotated[list[OperatorName], Meta(max_length=MAX_SLICES)] = []
    tracks: Annotated[list[Track], Meta(max_length=MAX_TRACKS)] = []
    left_out: Count = 0
    """Number of slices that were left out of the tracks."""
    flops: Amount = 0.0
    """Number of floating-point operations of the model in one step, if requested."""

    def __post_init__(self) -> None:
        require(self.first_step <= self.last_step, "profiled steps", self.first_step)
        require(not self.operators or (self.steps > 0 and self.span_us > 0), "length of steps", self.steps)
        for track in self.tracks:
            require(max(track.names, default=-1) < len(self.names), "name of a slice", track.name)


class ProfiledRank(msgspec.Struct, frozen=True):
    """One of the ranks that were asked for a profile."""

    rank: Rank
    why: Text = ""
    """Text that says why the rank has no profile, or "" if the rank has a profile or has not answered yet."""
    answered: bool = False
    first_step: Count = 0
    last_step: Count = 0
    steps: Count = 0
    step_ms: Amount = 0.0
    """Median length of a step under the profiler."""
    usual_ms: Amount = 0.0
    """Mean length of a step before the profile."""
    cost_ms: Amount = 0.0
    """Time in milliseconds that the rank spent on starting and ending the profiler."""
    left_out: Count = 0
    flops: Amount = 0.0
    """Number of floating-point operations of the model in one step, if requested."""
    peak_flops: Amount = 0.0
    """Peak floating-point operations per second of the rank's device, or 0 if FLOPs were not requested."""

    @property
    def mfu(self) -> float | None:
        """Return the model FLOPs utilization in a step of the usual length, or None if the utilization is not known."""
        if not (self.answered and self.peak_flops and self.usual_ms):
            return None
        return self.flops / (self.usual_ms / 1e3) / self.peak_flops


class OperatorRow(msgspec.Struct, array_like=True, frozen=True):
    """Time of an operator or kernel in one phase, per step, for each rank that was profiled."""

    name: Text
    phase: Text
    """One of OWN_PHASES."""
    self_ms: list[Amount]
    """CPU time of each rank that answered, in the order of `ProfileView.ranks`."""
    device_ms: list[Amount]
    calls: list[Amount]
    waits: bool = False
    """True if the operator waits for other ranks or for the GPU. A rank that is ahead of the others spends longer in
    such an operator."""

    @property
    def spent_ms(self) -> list[float]:
        """Return for each rank the sum of its times on the CPU and on the GPU."""
        return [cpu + device for cpu, device in zip(self.self_ms, self.device_ms, strict=True)]

    @property
    def difference_ms(self) -> float:
        """Return the difference in milliseconds between the rank with the most time and the rank with the least."""
        return max(self.spent_ms) - min(self.spent_ms)


class ProfileRequest(msgspec.Struct, frozen=True):
    """Identifies a viewer's request for a profile, so that the viewer recognises the answer to its own request."""

    ranks: tuple[Rank, ...] = ()
    """Ranks to profile; if empty, the hub chooses a slow rank and one of its peers."""
    steps: Count = 0
    peak_flops: float = 0.0


class ProfileView(msgspec.Struct, frozen=True):
    """The latest profile of a run."""

    number: Count
    """Number of this profile, counted from 1 in each run, or 0 if there is none yet."""
    ranks: list[ProfiledRank]
    waits: bool
    """True while a rank has not answered yet."""
    rows: list[OperatorRow]
    """Operators and kernels, those with the largest difference between ranks first."""
    trace: Text = ""
    """Path of the trace file on the hub's machine."""
    request: ProfileRequest | None = None
    """The request that this profile answers."""
