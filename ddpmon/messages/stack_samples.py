"""Samples of a training thread's Python stack: the hub's request for them, and a rank's answer."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ddpmon.messages.cpu_rivals import Cores
from ddpmon.messages.vocabulary import MAX_FRAMES, OWN_PHASES, Amount, Micros, Name, Pid, Rank, StepCount, StepNumber

MAX_SAMPLED_S = 300.0
MAX_STACKS = 200
MAX_READERS = 64
LOADER_ITERATOR = "_MultiProcessingDataLoaderIter."
"""Beginning of a method's name in the stack of a thread that waits for DataLoader workers."""


class SampleStacks(msgspec.Struct, array_like=True, tag="sample"):
    """The hub asks a rank to sample the stack of its training thread, beginning now."""

    seconds: Annotated[float, Meta(gt=0, le=MAX_SAMPLED_S)]


class SampledStack(msgspec.Struct, array_like=True, frozen=True):
    """A stack that the training thread was seen with."""

    phase: Annotated[int, Meta(ge=0, lt=len(OWN_PHASES))]
    count: StepNumber
    """Samples that showed it in this phase."""
    frames: Annotated[list[str], Meta(max_length=MAX_FRAMES)]
    """As in `Stack`; empty: several rare stacks together."""
    own: Annotated[list[Annotated[int, Meta(ge=0, lt=MAX_FRAMES)]], Meta(max_length=MAX_FRAMES)] = []
    """Indices of the frames that are no library's, innermost first."""


class DataReader(msgspec.Struct, array_like=True, frozen=True):
    """What a process that loads a rank's data did meanwhile: a DataLoader worker, or the rank itself."""

    pid: Pid
    cores: Cores = 0.0
    """Cores that it used."""
    read_bytes_per_s: Amount = 0.0
    """Data that it read from storage."""
    starved_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the time in which it could run and got no core."""
    looks: StepCount = 0
    """How often its state was read while the rank waited for it, or loaded data itself."""
    running: StepCount = 0
    """How often it computed then, or could have."""
    blocked: StepCount = 0
    """How often it waited for storage then, network file systems included."""
    checks: StepCount = 0
    """How often a worker's stack was read while the rank waited for another one."""
    idle: StepCount = 0
    """How often it had nothing to do then."""


class StackSamples(msgspec.Struct, array_like=True, tag="samples"):
    """The stacks of a training thread in some whole steps."""

    rank: Rank
    pid: Pid
    first_step: StepNumber
    last_step: StepNumber
    steps: StepNumber
    """Steps that were sampled."""
    span_us: Micros
    """Length of these steps together, without pauses."""
    count: StepNumber
    """Samples in them, those in which the rank waited for others included."""
    stacks: Annotated[list[SampledStack], Meta(max_length=MAX_STACKS)]
    """Stacks in the phases of its own work, the most frequent first."""
    workers: Annotated[list[SampledStack], Meta(max_length=MAX_STACKS)] = []
    """Stacks of the DataLoader workers that it waited for, without the frames in which they were started."""
    readers: Annotated[list[DataReader], Meta(max_length=MAX_READERS)] = []
    """The DataLoader's workers in their order; the rank itself, where it has none."""
    mount: Name = ""
    """Mount point of the file system for which they waited most; "": for none, or it is not known."""
    file_system: Name = ""
    """Type of that one: nfs4."""
    swapped_bytes: Micros = 0
    """Memory of the rank that is in swap."""

    @property
    def sample_ms(self) -> float:
        """Return the milliseconds that a sample stands for."""
        return self.span_us / self.count / 1e3
