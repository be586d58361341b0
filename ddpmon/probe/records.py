"""Records that the training thread leaves for the sending thread: parts of steps, synchronisations, pauses and marks.

Times are CLOCK_MONOTONIC nanoseconds. On a GPU, marks are moments of the device's own timeline.

Several of these are made in every step: as msgspec's structs they are made in a third of the time that named tuples
take, and the collector, which would stop the training thread too, never visits them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

DATA, FORWARD, BACKWARD, OPTIMIZER, OTHER = range(5)
"""Indices into messages.OWN_PHASES."""
PAUSED = 5
"""Time that belongs to no phase of a step: an evaluation, a checkpoint, a compilation."""
BLOCKED = 6
"""The code of a mark where a synchronisation begins."""
FED_SAMPLES, FED_TOKENS, FED_CALLS, FED_MOST_SAMPLES, FED_MOST_TOKENS = range(5)
"""Indices into an entry of `RawStep.fed`."""
BUCKET_END = 2
"""Index into an entry of `RawStep.buckets`: layout, launch, end."""


class DeviceEvent(Protocol):
    """A moment on the device's timeline (torch.cuda.Event)."""

    def record(self) -> None:
        """Put it on the current stream, now."""

    def query(self) -> bool:
        """Return whether the device has passed it."""

    def elapsed_time(self, later: DeviceEvent) -> float:
        """Milliseconds from this event to a later one."""


class Mark:
    """Start of a span on the device: from `event` on, its time belongs to `code`, a phase, PAUSED, or BLOCKED."""

    __slots__ = ("code", "event", "host")

    def __init__(self, code: int, event: DeviceEvent, host: int) -> None:
        self.code = code
        self.event = event
        self.host = host
        """Moment at which it was recorded, by the host's clock."""


Reduction = tuple[int, Sequence[int], int, DeviceEvent | None, int | None]
"""A model's gradients were reduced: their bytes; when each was ready, in nanoseconds after a moment, or empty where
torch does not say; that moment; the last one's on the device's timeline; the model's number, if it was in evaluation
mode and has layers that differ in it."""


class Device(Protocol):
    """Makes events on the device's timeline."""

    def event(self) -> DeviceEvent | None:
        """Record one now; None where none may be recorded."""


class RawSync(msgspec.Struct, frozen=True, gc=False):
    """A synchronisation: blocked from `arrival` to `end`, absolute nanoseconds."""

    kind: int
    arrival: int
    end: int
    payload_bytes: int


class RawPause(msgspec.Struct, frozen=True, gc=False):
    """The script did something else than training, absolute nanoseconds."""

    kind: int
    """Index into messages.PAUSES."""
    start: int
    end: int


class RawStep(msgspec.Struct, gc=False):
    """A part of a step: the clock fills it in and cuts it; nanoseconds."""

    start: int
    end: int = 0
    phases: list[int] = msgspec.field(default_factory=lambda: [0] * 6)
    """Time in each of OWN_PHASES, then in PAUSED."""
    syncs: list[RawSync] = []
    losses: list[object] = []
    """Loss of each backward: a float, or a reading that is still on its way from the device."""
    fed: dict[int, list[int]] = {}
    """Samples and tokens that each model was given, by its number: the totals, how often, and those of the largest
    batch."""
    samples: int = 0
    """In the batches that were fetched and trained on."""
    tokens: int = 0
    learning_rate: float | None = None
    gc: int = 0
    """Nanoseconds of garbage collection."""
    marks: list[Mark] = []
    """Marks on the device's timeline, the last one being the end; empty without a device."""
    buckets: list[list[int]] = []
    """Layout, launch and end of each bucket's all-reduce, where they are recorded; an end of 0 is still to come."""
    named: dict[str, int] = {}
    """Time inside what the script named, by the host's clock."""
    pauses: list[RawPause] = []
    gaps: tuple[int, int] = (0, 0)
    """Parts of `other`: just before a forward, and between a forward and its backward."""
    step: int = 0
    """Number of the step that this part ends; for other parts, one that it may have."""
    before: tuple[RawStep, ...] = ()
    """Earlier parts of the same step, held by its last part."""
    updates: tuple[tuple[str, int], ...] = ()
    """Updates of a step that updates several models, held by its last part: the models of each update, and after how
    many parts it came."""
    marked_samples: int | None = None
    """Samples that the script itself reported for the step, held by its last part."""


class Fetched(msgspec.Struct, frozen=True, gc=False):
    """A batch that nothing was trained on yet."""

    began: int
    duration: int
    mark: Mark | None
    samples: int
    """In it, where they count."""
    tokens: int
    paused: bool
    """True if it was fetched in a pause."""
