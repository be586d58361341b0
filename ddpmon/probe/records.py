"""Records from the training thread for the background thread: parts of steps, synchronisations, pauses and marks.

Times are CLOCK_MONOTONIC nanoseconds. On a GPU, marks are times on the device's own timeline.

The training thread makes several records in every step. The records are msgspec structs: making one takes a third of
the time of a named tuple. The garbage collector never visits them, so its runs stop the training thread for less time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

DATA, FORWARD, BACKWARD, OPTIMIZER, OTHER = range(5)
"""Indices into messages.OWN_PHASES."""
PAUSED = 5
"""Index of the time that belongs to no phase of a step: evaluations, checkpoints, compilations."""
BLOCKED = 6
"""Code of a mark at which a synchronisation begins."""
FED_SAMPLES, FED_TOKENS, FED_CALLS, FED_MOST_SAMPLES, FED_MOST_TOKENS = range(5)
"""Indices into an entry of `RawStep.fed`."""
BUCKET_END = 2
"""Index into an entry of `RawStep.buckets`: layout, launch, end."""


class DeviceEvent(Protocol):
    """A point on the device's timeline (torch.cuda.Event)."""

    def record(self) -> None:
        """Record the event on the current stream."""

    def query(self) -> bool:
        """Return whether the device has passed the event."""

    def elapsed_time(self, later: DeviceEvent) -> float:
        """Return the milliseconds from this event to a later one."""


class Mark:
    """Start of a span on the device's timeline. code: a phase, PAUSED or BLOCKED. event: point at which it starts."""

    __slots__ = ("code", "event", "host")

    def __init__(self, code: int, event: DeviceEvent, host: int) -> None:
        self.code = code
        self.event = event
        self.host = host
        """Host time at which the event was recorded."""


Reduction = tuple[int, Sequence[int], int, DeviceEvent | None, int | None]
"""A model's reduced gradients: total bytes; the nanoseconds until each gradient was ready (empty if unknown); the host
time from which these nanoseconds count; the device event of the last gradient; the model's number. The number is None
unless the model was in evaluation mode and has layers that differ in that mode.
"""


class Device(Protocol):
    """Records events on the device's timeline."""

    def event(self) -> DeviceEvent | None:
        """Record an event now; return None while no event may be recorded."""


class RawSync(msgspec.Struct, frozen=True, gc=False):
    """A synchronisation that blocked the thread from `arrival` to `end`, in absolute nanoseconds."""

    kind: int
    arrival: int
    end: int
    payload_bytes: int


class RawPause(msgspec.Struct, frozen=True, gc=False):
    """A pause in which the script did something other than training, in absolute nanoseconds."""

    kind: int
    """Index into messages.PAUSES."""
    start: int
    end: int


class RawStep(msgspec.Struct, gc=False):
    """A part of a step, as StepClock measures it. Times are nanoseconds."""

    start: int
    end: int = 0
    phases: list[int] = msgspec.field(default_factory=lambda: [0] * 6)
    """Nanoseconds in each of OWN_PHASES, followed by the nanoseconds PAUSED."""
    syncs: list[RawSync] = []
    losses: list[object] = []
    """Loss of each backward: a float, or a reading that is on its way from the device."""
    fed: dict[int, list[int]] = {}
    """By model number: samples, tokens and calls so far, then samples and tokens of the largest batch."""
    samples: int = 0
    """Samples in the batches that were fetched and trained on."""
    tokens: int = 0
    learning_rate: float | None = None
    gc: int = 0
    """Nanoseconds of garbage collection."""
    marks: list[Mark] = []
    """Marks on the device's timeline, of which the last is the end; empty without a device."""
    buckets: list[list[int]] = []
    """[layout, launch, end] of each bucket's all-reduce, if recorded; end is 0 until it has ended."""
    named: dict[str, int] = {}
    """Nanoseconds of host time in each span that the script named."""
    pauses: list[RawPause] = []
    gaps: tuple[int, int] = (0, 0)
    """Nanoseconds in the phase `other` just before a forward, and between a forward and its backward."""
    step: int = 0
    """Number of the step that this part ends; provisional if further parts of the step follow."""
    before: tuple[RawStep, ...] = ()
    """Earlier parts of the same step; set in its last part."""
    updates: tuple[tuple[str, int], ...] = ()
    """(model, number of parts before it) of each update, in the last part of a step that updates several models."""
    marked_samples: int | None = None
    """Samples of the step as the script itself reported them; set in its last part."""


class Fetched(msgspec.Struct, frozen=True, gc=False):
    """A batch that was fetched and not trained on yet."""

    began: int
    duration: int
    mark: Mark | None
    samples: int
    """Number of samples in the batch; 0 if unknown."""
    tokens: int
    paused: bool
    """True if the batch was fetched during a pause."""
