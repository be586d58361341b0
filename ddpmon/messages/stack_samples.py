"""Samples of a training thread's Python stack: the hub's request for them, and a rank's answer."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ddpmon.messages.competitors import Cores
from ddpmon.messages.vocabulary import (
    MAX_FRAMES,
    OWN_PHASES,
    Amount,
    Frames,
    Micros,
    Name,
    Pid,
    Rank,
    StepCount,
    StepNumber,
    require,
)

MAX_SAMPLED_S = 300.0
MAX_STACKS = 200
MAX_READERS = 64
LOADER_ITERATOR = "_MultiProcessingDataLoaderIter."
"""Prefix of a method name that is in the stack of every thread that waits for DataLoader workers."""


class SampleStacks(msgspec.Struct, array_like=True, tag="sample"):
    """The hub asks a rank to sample the stack of its training thread from now on, for some seconds."""

    seconds: Annotated[float, Meta(gt=0, le=MAX_SAMPLED_S)]


class SampledStack(msgspec.Struct, array_like=True, frozen=True):
    """A distinct stack of the training thread, and how often it was sampled."""

    phase: Annotated[int, Meta(ge=0, lt=len(OWN_PHASES))]
    count: StepNumber
    """Number of samples that showed this stack in this phase."""
    frames: Frames
    """Frames in the form of `Stack.frames`; empty if this entry sums up several rare stacks."""
    own: Annotated[list[Annotated[int, Meta(ge=0, lt=MAX_FRAMES)]], Meta(max_length=MAX_FRAMES)] = []
    """Indices of the frames that belong to no library, innermost first."""

    def __post_init__(self) -> None:
        require(all(index < len(self.frames) for index in self.own), "own", self.own)


class DataReader(msgspec.Struct, array_like=True, frozen=True):
    """Activity of a process that loads a rank's data (a DataLoader worker or the rank) while stacks are sampled."""

    pid: Pid
    cores: Cores = 0.0
    """Number of cores that the process used."""
    read_bytes_per_s: Amount = 0.0
    """Rate at which the process read data from storage, in bytes a second."""
    starved_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the time in which the process could run but got no core."""
    looks: StepCount = 0
    """Number of times that the process's state was read while the rank waited for this process, or loaded data
    itself."""
    running: StepCount = 0
    """Number of these `looks` that found the process running or ready to run."""
    blocked: StepCount = 0
    """Number of these `looks` that found the process waiting for storage, including network file systems."""
    checks: StepCount = 0
    """Number of times that the stack of this worker was read while the rank waited for another worker."""
    idle: StepCount = 0
    """Number of these `checks` that found the worker without work."""

    def __post_init__(self) -> None:
        require(self.running + self.blocked <= self.looks and self.idle <= self.checks, "states of a reader", self)


class StackSamples(msgspec.Struct, array_like=True, tag="samples"):
    """A rank's answer to `SampleStacks`: the stacks of its training thread over some whole steps."""

    rank: Rank
    pid: Pid
    first_step: StepNumber
    last_step: StepNumber
    steps: StepNumber
    """Number of steps that were sampled."""
    span_us: Micros
    """Total length of these steps in µs, without pauses."""
    count: StepNumber
    """Number of samples in these steps, including samples in which the rank waited for other ranks."""
    stacks: Annotated[list[SampledStack], Meta(max_length=MAX_STACKS)]
    """Stacks in the phases of the rank's own work, the most frequent first."""
    workers: Annotated[list[SampledStack], Meta(max_length=MAX_STACKS)] = []
    """Stacks of the DataLoader workers for which the rank waited, without the frames that started the workers."""
    readers: Annotated[list[DataReader], Meta(max_length=MAX_READERS)] = []
    """Workers of the DataLoader in their order, or the rank itself if there are no workers."""
    mount: Name = ""
    """Mount point of the file system for which the readers waited most, or "" if there is none or it is unknown."""
    file_system: Name = ""
    """Type of that file system, such as nfs4."""
    swapped_bytes: Micros = 0
    """Memory of the rank that is swapped out, in bytes."""

    def __post_init__(self) -> None:
        require(self.first_step + self.steps - 1 <= self.last_step, "sampled steps", self.steps)
        require(sum(stack.count for stack in self.stacks) <= self.count, "samples", self.count)

    @property
    def sample_ms(self) -> float:
        """Return how many milliseconds one sample represents."""
        return self.span_us / self.count / 1e3
