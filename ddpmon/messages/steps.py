"""The record of one step of one rank: its phases, synchronisations, buckets and pauses."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ddpmon.messages.vocabulary import (
    MAX_NAME,
    MAX_PHASE_NAMES,
    PAUSES,
    PHASES,
    SYNC_KINDS,
    Micros,
    StepCount,
    StepNumber,
    require,
)

PauseKind: TypeAlias = Annotated[int, Meta(ge=0, lt=len(PAUSES))]
PhaseName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
"""Name that the script gave to a `ddpmon.phase`."""


class Sync(msgspec.Struct, array_like=True, gc=False):
    """One synchronisation inside a step, during which the rank was blocked from `arrival_us` to `end_us`."""

    kind: Annotated[int, Meta(ge=0, lt=len(SYNC_KINDS))]
    """Index into SYNC_KINDS."""
    arrival_us: Micros
    """Moment at which the rank was ready for the synchronisation, µs after the start of the step."""
    end_us: Micros
    """Moment at which the synchronisation ended on the rank, µs after the start of the step."""
    payload_bytes: Micros = 0


class Bucket(msgspec.Struct, array_like=True, gc=False):
    """The all-reduce of one of DDP's buckets, recorded with --buckets."""

    layout: StepNumber
    """Number of the `Layout` that lists the bucket's contents."""
    launch_us: Micros
    """Moment at which DDP launched the all-reduce, µs after the start of the step."""
    end_us: Micros
    """Moment at which the bucket held the gradients of all ranks, µs after the start of the step."""


class Pause(msgspec.Struct, array_like=True, gc=False):
    """Time between two steps in which a rank did not train. The later step records the pause, which belongs to no
    phase.
    """

    kind: PauseKind
    """Index into PAUSES."""
    start_us: Micros
    """Moments at which the pause began and ended, µs after the start of the step."""
    end_us: Micros

    def __post_init__(self) -> None:
        require(self.start_us <= self.end_us, "times of a pause", self)


class Step(msgspec.Struct, array_like=True, gc=False):
    """One step of one rank. The five phases, the blocked time of `syncs` and `pauses` add up to `length_us`."""

    step: StepNumber
    """Number of the step, counted from 1. A gap in the numbers means a lost record."""
    end_us: Micros
    """Moment at which the step ended, by CLOCK_MONOTONIC."""
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
    """Number of tokens, if the model's input is a batch of token ids."""
    learning_rate: float | None = None
    """Learning rate of the first parameter group of the optimizer that stepped last."""
    gc_us: Micros = 0
    """Time in µs in Python's garbage collector. This time is also part of the phases during which the collector ran."""
    buckets: list[Bucket] = msgspec.field(default_factory=list)
    """All-reduces of buckets in the order of their launch, recorded with --buckets."""
    named_us: Annotated[dict[PhaseName, Micros], Meta(max_length=MAX_PHASE_NAMES)] = msgspec.field(default_factory=dict)
    """Time in µs inside each `ddpmon.phase` of the script, by name, on the host's clock. This time is also part of the
    phases above."""
    pauses: list[Pause] = msgspec.field(default_factory=list)
    backwards: StepCount = 1
    """Number of backward calls in the step: more than one under gradient accumulation."""


def check_step(step: Step) -> None:
    """Check that the times of a step fit together, or raise a WireError that names the field."""
    require(step.length_us <= step.end_us, "length_us", step.length_us)
    own_us = step.data_us + step.forward_us + step.backward_us + step.optimizer_us + step.other_us
    require(own_us <= step.length_us + len(PHASES), "phases", own_us)
    for sync in step.syncs:
        require(sync.arrival_us <= sync.end_us <= step.length_us + 1, "times of a synchronisation", sync)
    for pause in step.pauses:
        require(pause.end_us < step.length_us + 2, "times of a pause", pause)
    for bucket in step.buckets:
        require(bucket.launch_us <= bucket.end_us, "times of a bucket", bucket)
