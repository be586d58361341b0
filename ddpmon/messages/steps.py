"""The record of one step of one rank: its phases, synchronisations, buckets and pauses."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ddpmon.messages.vocabulary import MAX_NAME, MAX_NAMES, PAUSES, SYNC_KINDS, Micros, StepCount, StepNumber

PauseKind: TypeAlias = Annotated[int, Meta(ge=0, lt=len(PAUSES))]
PhaseName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
"""Name of a `ddpmon.phase` of the script."""


class Sync(msgspec.Struct, array_like=True, gc=False):
    """One synchronisation inside a step, as one rank saw it: it was blocked from `arrival_us` to `end_us`."""

    kind: Annotated[int, Meta(ge=0, lt=len(SYNC_KINDS))]
    """Index into SYNC_KINDS."""
    arrival_us: Micros
    """Ready for the synchronisation, µs after the start of the step."""
    end_us: Micros
    """Out of it, µs after the start of the step."""
    payload_bytes: Micros = 0


class Bucket(msgspec.Struct, array_like=True, gc=False):
    """The all-reduce of one of DDP's buckets, recorded with --buckets."""

    layout: StepNumber
    """Number of the `Layout` that says what is in it."""
    launch_us: Micros
    """Moment at which DDP handed it over, µs after the start of the step."""
    end_us: Micros
    """Moment at which every rank's gradients were in it, µs after the start of the step."""


class Pause(msgspec.Struct, array_like=True, gc=False):
    """Time between two steps in which a rank did not train: part of the record of the later one, but of no phase."""

    kind: PauseKind
    """Index into PAUSES."""
    start_us: Micros
    """After the start of the step."""
    end_us: Micros


class Step(msgspec.Struct, array_like=True, gc=False):
    """One step of one rank. The five phases, the blocked time of `syncs` and `pauses` add up to `length_us`."""

    step: StepNumber
    """Counts from 1, without holes: a hole means a lost record."""
    end_us: Micros
    """Moment at which it ended, CLOCK_MONOTONIC."""
    length_us: Micros
    data_us: Micros
    forward_us: Micros
    backward_us: Micros
    optimizer_us: Micros
    other_us: Micros
    syncs: list[Sync] = msgspec.field(default_factory=list)
    loss: float | None = None
    samples: StepCount = 0
    tokens: StepCount = 0
    """Tokens, if the model's input is a batch of token ids."""
    learning_rate: float | None = None
    """Rate of the first parameter group of the optimizer that stepped last."""
    gc_us: Micros = 0
    """Python's garbage collector, inside whatever phase it fell into."""
    buckets: list[Bucket] = msgspec.field(default_factory=list)
    """Recorded with --buckets, in the order of their launch."""
    named_us: Annotated[dict[PhaseName, Micros], Meta(max_length=MAX_NAMES)] = msgspec.field(default_factory=dict)
    """Time inside each `ddpmon.phase` of the script, by its name; part of the phases above, by the host's clock."""
    pauses: list[Pause] = msgspec.field(default_factory=list)
    backwards: StepCount = 1
    """Backward calls in it: more than one under gradient accumulation."""
