"""The state of a process that sent a Hello as a rank: its facts, its progress and its latest records."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from ddpmon.analysis.processes.hangs import Held
from ddpmon.analysis.processes.loaders import Worker
from ddpmon.analysis.steps.alignment import MAX_PARTIAL_STEPS
from ddpmon.messages import (
    CHECKPOINT,
    STAGE_GROUP,
    Batch,
    CpuRivals,
    Failure,
    Hello,
    Layout,
    Profile,
    Sample,
    Stack,
    StackSamples,
    Step,
)
from ddpmon.messages.nodes import End
from ddpmon.runs import Process
from ddpmon.store.peers import Peer, process_key

PROCESS_SILENCE_S = 3.0
SAMPLE_US = 1_300_000
"""Longest time in µs that the values of a sample cover."""
MAX_SAMPLES = 30
"""Number of latest samples to store of a process. With one sample per second, they cover about the window of steps."""


@dataclass
class RankProcess:
    """A process that sent a Hello as a rank."""

    id: int
    """Number of the process in the recording."""
    attempt: int
    """Attempt in which the process is a rank, or -1 if it never was. A restart of the ranks begins a new attempt."""
    hello: Hello
    process: Process | None = None
    """The process on this machine, or None if the process is on another machine or ended before it could be
    examined."""
    peer: Peer | None = None
    """Peer that sends the process's messages, according to the kernel, or None if they only come from a file."""
    launched: bool = False
    """True if the initial environment of the process says that it was started as this rank of this run."""
    identity: bytes = b""
    """ZeroMQ identity of its connection."""
    greeted: bool = False
    """True if this hub itself, not an earlier one, received its Hello."""
    stage: int = 0
    phase: int = 4
    seq: int = 0
    """Number of the last batch received."""
    introduced: bool = False
    """True if no batch has arrived since the latest Hello. Batches between the last batch before the Hello and the next
    batch after it are lost."""
    asked_again_at: float = float("-inf")
    """Time at which the process was last asked for missing batches, in seconds of the hub's clock."""
    hole: bool = True
    """True if an unknown number of steps may be missing before the next one, because batches were lost."""
    missing: int = 0
    """Number of steps that may be missing before the next one, because records were dropped or left out."""
    doubted: int = 0
    """Number of a step that cannot follow the last one. It is accepted if the next batch continues from it."""
    last_end_us: int = 0
    """End of the last step that was received, in µs of the process's clock."""
    steps: int = 0
    """Number of finished steps that the process reported."""
    last_step: int = 0
    """The highest step number received."""
    records: int = 0
    """Number of step records received, minus those that the recorder had to discard."""
    dropped: int = 0
    """Number of records that the process reported as discarded."""
    total_steps: int | None = None
    beats: int = 0
    """Number of signs of life from its training thread."""
    beat_at: float = 0.0
    """Time at which `beats` last rose, by the hub's clock."""
    pausing: int | None = None
    """Index into PAUSES of the process's activity, or None if it is training."""
    pausing_since: float = 0.0
    """Beginning of the pause, by the hub's clock. If a checkpoint interrupts an evaluation, the beginning stays."""
    _paused_at: dict[int, float] = field(default_factory=dict)
    """Beginnings of the process's nested pauses, by index into PAUSES, the outermost first."""
    epoch: int | None = None
    """Current epoch of the training, counted from 1."""
    epochs: int | None = None
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    """Its latest samples, the oldest first."""
    layouts: dict[int, Layout] = field(default_factory=dict)
    """Layouts of its buckets by number, if buckets are recorded."""
    unsynchronised: int = 0
    """Number of optimizer steps on gradients that DDP never reduced."""
    unsynchronised_at: int = 0
    """Number of finished steps when `unsynchronised` last rose."""
    skipped: int = 0
    """Number of skipped updates among the process's latest SCALED_UPDATES updates through a GradScaler."""
    held_out: int = 0
    """Number of latest consecutive updates in evaluation mode, if there were updates in training mode before."""
    stack: Stack | None = None
    """Its latest stack."""
    stack_at: float = 0.0
    """Time at which `stack` arrived, by the hub's clock."""
    stood: Stack | None = None
    """Latest stack during a stall in which every rank was still alive."""
    still_since: float | None = None
    """Time at which a stack first showed the rank's current place in the script, by the hub's clock, or None without
    stacks."""
    elsewhere_at: float = 0.0
    """Time at which a stack last showed another place than the current one, by the hub's clock, or 0 if no stack
    did."""
    held: Held | None = None
    """Reason why the kernel does not let it run, or None if it may run."""
    worker: Worker | None = None
    """The DataLoader worker that the rank waits for in a stall."""
    on_cores: deque[tuple[int, CpuRivals, frozenset[int]]] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    """Reports about CPU cores, the oldest first: (time in µs of the latest sample at that time, programs that compete
    for the cores, cores on which the process may run)."""
    stack_samples: StackSamples | None = None
    """Latest samples of its stack."""
    profile: Profile | None = None
    """Its answer to the latest request for a profile, until the hub has processed it."""
    asked_at: float | None = None
    """Time at which a viewer requested its stack, by the hub's clock, or None if no request is pending."""
    unanswered: bool = False
    """True if it did not answer the latest request for its stack."""
    learning_rate: float | None = None
    trains_since_us: int | None = None
    """End of its first known step in µs, by its own clock. Earlier samples show imports and set-up."""
    later_us: int | None = None
    """Microseconds by which this machine's clock is ahead of the clock of the process's node, accurate to
    milliseconds."""
    end: End | None = None
    """How the process ended on another node, according to the logs of that node."""
    heard_at: float = 0.0
    left: bool = False
    dead: bool = False
    ended_us: int | None = None
    """Time in µs at which the hub noticed the end of the process, by the hub's clock, or None before its end."""

    @property
    def loses_records(self) -> bool:
        """Return whether many of the rank's step records are missing, so that steps are aligned without the rank."""
        return self.steps - self.last_step >= MAX_PARTIAL_STEPS

    @property
    def rank(self) -> int:
        return self.hello.rank

    @property
    def configuration(self) -> dict[str, str]:
        """Return the settings that should be the same on all ranks."""
        return {"torch": self.hello.torch_version, **self.hello.configuration}

    @property
    def key(self) -> int:
        """Return the key of the process, which is unique over all nodes."""
        return process_key(self.hello.pid, self.hello.through)

    @property
    def sample(self) -> Sample | None:
        """Return the latest sample of the process, or None if it has sent none."""
        return self.samples[-1] if self.samples else None

    def note_cores(self) -> None:
        """Store the latest Hello's report about the cores of the process, if it is new."""
        told = self.hello.cpu_rivals, frozenset(self.hello.setup.cores)
        if not self.on_cores or told != self.on_cores[-1][1:]:
            self.on_cores.append((self.sample.time_us if self.sample else 0, *told))

    def cores_until(self, time_us: int) -> tuple[CpuRivals, frozenset[int]]:
        """Return the programs that competed for cores, and the cores that the process could use, at a time in µs."""
        if not self.on_cores:
            return self.hello.cpu_rivals, frozenset(self.hello.setup.cores)
        told = ((rivals, affinity) for at, rivals, affinity in reversed(self.on_cores) if at <= time_us)
        return next(told, (CpuRivals(), frozenset()))

    def mark_ended(self, now: float, *, left: bool) -> None:
        """Record that the process has ended. left: True if it sent a Bye before it ended."""
        self.left = self.left or left
        self.dead = not self.left
        if self.ended_us is None:
            self.ended_us = round(now * 1e6)

    def failed_of(self, failure: Failure) -> bool:
        """Return whether a failure is of this process. Both rank and pid must match, because nodes may use the same
        pid.
        """
        return (failure.rank, failure.pid) == (self.rank, self.hello.pid)

    @property
    def clock_behind_us(self) -> int | None:
        """Return the microseconds by which the clock of the process's machine is behind this machine's clock; None:
        unknown.
        """
        return self.later_us if self.hello.through else 0

    @property
    def is_proven_rank(self) -> bool:
        """Return whether the process has proven to be a rank by joining a process group or by training."""
        return self.stage >= STAGE_GROUP or self.last_step > 0

    @property
    def gone(self) -> bool:
        return self.left or self.dead or (self.process is not None and not self.process.alive())

    @property
    def lost_records(self) -> int:
        """Return the least number of lost step records.

        Records between received ones count. Once the process has ended, so do those after the last received one.
        """
        steps = max(self.last_step, self.steps if self.left or self.dead else 0)
        return max(0, steps - self.hello.steps_before - self.records)

    def take_work(self, beats: int, pausing: int | None, now: float, *, writes: bool = False) -> None:
        """Update the signs of life of the training thread, and its pauses.

        Args:
            beats: Number of signs of life so far.
            pausing: Index into PAUSES, or None if the thread trains.
            now: Seconds of the hub's clock.
            writes: True if the process is writing a checkpoint, which is also a sign of life.

        """
        if writes or beats > self.beats:
            self.beats, self.beat_at = beats, now
        if pausing != self.pausing:
            self.pausing = pausing
            around = list(self._paused_at)
            for kind in around[around.index(pausing) + 1 :] if pausing in self._paused_at else ():
                del self._paused_at[kind]
            if pausing is None:
                self._paused_at.clear()
            else:
                self.pausing_since = self._paused_at.setdefault(pausing, now)

    def take_batch(self, batch: Batch, now: float) -> None:
        """Store everything in a checked batch except its steps."""
        self.seq = batch.seq
        self.stage = max(self.stage, batch.stage)
        self.phase = batch.phase
        self.steps = batch.step
        self.dropped = batch.dropped
        writes = batch.pausing == CHECKPOINT and any(sample.written_bytes_per_s for sample in batch.samples)
        self.take_work(batch.beats, batch.pausing, now, writes=writes)
        # None also overwrites a value: a total that is no longer known may have been the total of a single epoch.
        self.total_steps, self.epoch, self.epochs = batch.total_steps, batch.epoch, batch.epochs
        self.samples.extend(batch.samples)
        for layout in batch.layouts:
            self.layouts[layout.number] = layout
        self.skipped, self.held_out = batch.skipped, batch.held_out
        if batch.unsynchronised > self.unsynchronised:
            self.unsynchronised, self.unsynchronised_at = batch.unsynchronised, batch.step

    def take_stack(self, stack: Stack, now: float) -> None:
        """Store a stack, and update since when stacks show the same place."""
        before, before_at, self.stack, self.stack_at = self.stack, self.stack_at, stack, now
        self.asked_at, self.unanswered = None, False
        if before is None or self.still_since is None or _place_in_script(before) != _place_in_script(stack):
            self.still_since, self.elsewhere_at = now, before_at

    def set_standstill_stack(self, stack: Stack, now: float) -> None:
        """Store a stack during a stall. Its time is set to now, because the rank is still at this place."""
        elapsed_us = round((now - self.stack_at) * 1e6)
        self.stood = msgspec.structs.replace(stack, time_us=stack.time_us + elapsed_us)

    @property
    def last_stand(self) -> Stack | None:
        """Return the stack during the stall if the rank made no step since, otherwise the latest stack.

        The latest stack may mislead, because the end of a killed peer may wake the rank up for a moment.
        """
        return self.stood if self.stood is not None and self.stood.step >= self.steps else self.stack

    def health(self, now: float) -> str:
        """Return one of the values of `RankView.health`."""
        if self.left:
            return "left"
        if self.dead:
            return "dead"
        return "ok" if now - self.heard_at <= PROCESS_SILENCE_S else "silent"

    def count_new_steps(self, steps: Iterable[Step]) -> list[Step]:
        """Return the steps that were not received before, and count them as received."""
        new = []
        for step in steps:
            if step.step > self.last_step:
                self.last_step, self.last_end_us = step.step, step.end_us
                self.records += 1
                new.append(step)
        return new


def _place_in_script(stack: Stack) -> tuple[object, ...]:
    """Return a key for a rank's place in its script, which does not depend on frames inside library calls."""
    return stack.step, stack.issued, stack.frames[stack.own or 0 :]
