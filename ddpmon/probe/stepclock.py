"""Where a step's time goes, on the training thread: exclusive phases, synchronisations, step boundaries.

All of it runs inside the training loop, so it is short: a phase change is one clock reading and two additions, a
finished step one append to a deque that the sending thread empties. Times are CLOCK_MONOTONIC nanoseconds.

On a GPU the host runs ahead, and its clock tells nothing about the work. There every phase change also leaves a mark on
the device's timeline, and `timeline` makes the step from the marks once the device has passed them.
"""

from __future__ import annotations

from collections import deque
from time import monotonic_ns
from typing import NamedTuple, Protocol, TypeAlias

from ddpmon.messages import MAX_NAMES

DATA, FORWARD, BACKWARD, OPTIMIZER, OTHER = range(5)
"""Indices into messages.OWN_PHASES."""
BLOCKED = 5
"""What a mark says where a synchronisation begins."""


class Event(Protocol):
    """A moment on the device's timeline (torch.cuda.Event)."""

    def record(self) -> None:
        """Put it on the current stream, now."""

    def query(self) -> bool:
        """Whether the device has passed it."""

    def elapsed_time(self, later: Event) -> float:
        """Milliseconds from this event to a later one."""


class Mark:
    """From `event` on, the device's time belongs to `code`: a phase, or BLOCKED."""

    __slots__ = ("code", "event", "host")

    def __init__(self, code: int, event: Event, host: int) -> None:
        self.code = code
        self.event = event
        self.host = host
        """When it was recorded, by the host's clock."""


class Device(Protocol):
    """Makes events on the device's timeline."""

    def event(self) -> Event | None:
        """Record one now; None where none may be recorded."""


class RawSync(NamedTuple):
    """A synchronisation: blocked from `arrival` to `end`, absolute nanoseconds."""

    kind: int
    arrival: int
    end: int
    payload_bytes: int


class RawStep(NamedTuple):
    """A finished step as the training thread leaves it; nanoseconds."""

    step: int
    start: int
    end: int
    phases: list[int]
    syncs: list[RawSync]
    loss: object
    """A float, or a reading that is still on its way from the device."""
    samples: int
    tokens: int
    learning_rate: float | None
    gc: int
    """Nanoseconds of garbage collection."""
    marks: list[Mark]
    """Of the device's timeline, the last one being the end; empty without a device."""
    buckets: list[list[int]] | None = None
    """Layout, launch and end of each bucket's all-reduce, where they are recorded."""
    named: dict[str, int] | None = None
    """Time inside what the script named, by the host's clock."""


Fetched: TypeAlias = tuple[int, Mark | None, int, int]
"""A batch that nothing was trained on yet: how long it took, its mark, samples and tokens in it where they count."""


class StepClock:
    """Accounts the training thread's time to phases and closes steps."""

    __slots__ = (
        "_blocked",
        "_last",
        "_open",
        "base",
        "buckets",
        "device",
        "finished",
        "gc",
        "learning_rate",
        "loss",
        "marks",
        "named",
        "phase",
        "phases",
        "samples",
        "start",
        "step",
        "syncs",
        "tokens",
        "unused_data",
    )

    def __init__(self) -> None:
        self.finished: deque[RawStep] = deque()
        self.step = 0
        """Steps finished so far."""
        self.phase = OTHER
        self.base = OTHER
        """The phase to come back to: `optimizer` inside an optimizer's step (closures), else `other`."""
        self.learning_rate: float | None = None
        self.device: Device | None = None
        self.marks: list[Mark] = []
        self._blocked = 0
        """Nanoseconds blocked in synchronisations so far."""
        self._open: list[tuple[str, int]] = []
        """Names that the script is in, each with the moment since when, less all that was blocked before it."""
        self.begin(monotonic_ns())

    def begin(self, start: int) -> None:
        """A new step begins at `start`; whatever was gathered since the last one ended is forgotten."""
        self.loss: object = None
        self.samples = 0
        self.tokens = 0
        self.gc = 0
        self.phases = [0, 0, 0, 0, 0]
        self.syncs: list[RawSync] = []
        self.buckets: list[list[int]] | None = None
        """Where they are recorded: layout, launch and end of each; an end of 0 is still to come."""
        self.named: dict[str, int] | None = None
        self.unused_data: dict[int, list[Fetched]] = {}
        """Per iterator, the one fetched from last at the end: fetches that nothing was trained on yet."""
        self.start = self._last = start
        self._open = [(name, start - self._blocked) for name, _ in self._open]
        # The end of one step is the start of the next on the device too.
        self.marks = [Mark(OTHER, self.marks[-1].event, self.marks[-1].host)] if self.marks else []

    def follow(self, device: Device) -> None:
        """From here on, steps lie on the device's timeline; the current one begins now."""
        self.device = device
        self.begin(monotonic_ns())
        self._mark(OTHER, self.start)

    def _mark(self, code: int, now: int) -> None:
        event = self.device.event() if self.device is not None else None
        if event is not None:
            self.marks.append(Mark(code, event, now))

    def enter(self, phase: int) -> int:
        """From now on, time belongs to `phase`; returns the moment."""
        now = monotonic_ns()
        self.phases[self.phase] += now - self._last
        self._last = now
        self.phase = phase
        if self.device is not None:
            self._mark(phase, now)
        return now

    def leave(self) -> int:
        """The phase ends; time belongs to what surrounds it. Returns the moment."""
        return self.enter(self.base)

    def fetched(self, iterator: int, began: int, samples: int = 0, tokens: int = 0) -> None:
        """The fetch that began then is done. samples, tokens: of its batch, where no model's inputs will tell them."""
        mark = self.marks[-1] if self.marks else None
        ended = self.leave()
        unused = self.unused_data.pop(iterator, [])
        unused.append((ended - began, mark, samples, tokens))
        self.unused_data[iterator] = unused

    def trained(self) -> None:
        """Something is trained on what was fetched: the last iterator's batches, however many it fetched ahead.

        Another iterator's single batch belongs to it too (a GAN has two loaders); several were an evaluation that
        no DDP model was asked for.
        """
        if self.unused_data:
            self._training(self.unused_data.popitem()[1])
            for unused in self.unused_data.values():
                if len(unused) > 1:
                    self._not_training(unused)
                else:
                    self._training(unused)
            self.unused_data.clear()

    def evaluated(self) -> None:
        """A forward without gradients: what was fetched for it is no training data."""
        for unused in self.unused_data.values():
            self._not_training(unused)
        self.unused_data.clear()

    def _training(self, unused: list[Fetched]) -> None:
        for _, _, samples, tokens in unused:
            self.samples += samples
            self.tokens += tokens

    def _not_training(self, unused: list[Fetched]) -> None:
        for duration, mark, _, _ in unused:
            spent = min(duration, self.phases[DATA])  # the fetch may lie before this step's start
            self.phases[DATA] -= spent
            self.phases[OTHER] += spent
            if mark is not None:
                mark.code = OTHER

    def block(self) -> int:
        """A synchronisation begins inside the current phase; returns the moment of arrival."""
        arrival = self.enter(self.phase)
        if self.marks and self.marks[-1].host == arrival:
            self.marks[-1].code = BLOCKED
        return arrival

    def block_not(self) -> None:
        """What began with `block` just now blocks nobody after all."""
        if self.marks and self.marks[-1].code == BLOCKED:
            self.marks[-1].code = self.phase

    def unblock(self, kind: int, arrival: int, payload_bytes: int) -> None:
        """The synchronisation that began at `arrival` is over."""
        self._last = monotonic_ns()
        self._blocked += self._last - arrival
        self.syncs.append(RawSync(kind, arrival, self._last, payload_bytes))
        if self.device is not None:
            self._mark(self.phase, self._last)

    def blocked_at_the_end(
        self, kind: int, arrival: int, end: int, payload_bytes: int, phase: int, event: Event | None = None
    ) -> None:
        """The last part of a finished `phase`, from `arrival` on, was a synchronisation after all.

        event: the arrival on the device's timeline; without it nothing is known of the blocked time there.
        """
        arrival = max(arrival, end - self.phases[phase])
        self.phases[phase] -= end - arrival
        self._blocked += end - arrival
        self.syncs.append(RawSync(kind, arrival, end, payload_bytes))
        if self.marks:
            last = self.marks[-1]
            self.marks.insert(-1, Mark(BLOCKED, event or last.event, last.host))

    def enter_named(self, name: str) -> None:
        """From now on, time also belongs to a name of the script's; names nest."""
        self._open.append((name, monotonic_ns() - self._blocked))

    def exit_named(self, name: str) -> bool:
        """It does no more, if it did. False: the step has too many names already."""
        now = monotonic_ns() - self._blocked
        opened = self._open
        for place in range(len(opened) - 1, -1, -1):
            if opened[place][0] == name:
                return self._add_named(name, now - opened.pop(place)[1])
        return True

    def _add_named(self, name: str, duration: int) -> bool:
        """False: the step has too many names already."""
        for outer, _ in self._open:
            if outer == name:
                return True  # inside itself: the outer one tells
        if self.named is None:
            self.named = {}
        elif name not in self.named and len(self.named) >= MAX_NAMES:
            return False
        self.named[name] = self.named.get(name, 0) + max(0, duration)
        return True

    def _cut_named(self, end: int) -> None:
        """A step ends inside names: each one's time so far is this step's, the rest the next one's."""
        now = end - self._blocked
        still, self._open = self._open, []
        for name, since in still:
            self._add_named(name, now - since)
            self._open.append((name, now))

    def close(self, end: int) -> None:
        """The step ends here, and the next begins."""
        self.phases[self.phase] += end - self._last
        if self._open:
            self._cut_named(end)
        self.step += 1
        self.finished.append(
            RawStep(
                self.step,
                self.start,
                end,
                self.phases,
                self.syncs,
                self.loss,
                self.samples,
                self.tokens,
                self.learning_rate,
                self.gc,
                self.marks,
                self.buckets,
                self.named,
            )
        )
        self.begin(end)
