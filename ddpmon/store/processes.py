"""A process that said it is a rank: its Hello, its state and its latest records."""

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

SILENT_S = 3.0
SAMPLE_US = 1_300_000
"""Longest time before a sample at which its values began."""
SAMPLES = 30
"""Samples of a process that are kept, one a second: about as long as the window of steps."""


@dataclass
class RankProcess:
    """A process that said it is a rank."""

    id: int
    """Its number in the recording."""
    attempt: int
    """Attempt of the run: a restart of the ranks begins a new one. -1: it never had a rank."""
    hello: Hello
    process: Process | None = None
    """None: not on this machine, or gone before it could be looked at."""
    peer: Peer | None = None
    """Peer that speaks as this process, by the kernel's word; None: nobody to this very hub, or from a file alone."""
    launched: bool = False
    """It was started as this rank of this run, as the environment says with which it began."""
    identity: bytes = b""
    """The connection that it speaks through."""
    greeted: bool = False
    """It said hello to this very hub."""
    stage: int = 0
    phase: int = 4
    seq: int = 0
    """Number of the last batch received."""
    introduced: bool = False
    """It said hello, and no batch since: what lies between that batch and the last one is lost."""
    asked_again_at: float = float("-inf")
    """Moment at which it was asked for missing batches, by the hub's clock."""
    hole: bool = True
    """Any number of steps may be missing before the next one: batches are lost."""
    missing: int = 0
    """Number of steps that may be missing before the next one: records that it had to drop or that were left out."""
    doubted: int = 0
    """A step that could not be the next one; if the batch after goes on from it, it was."""
    last_end_us: int = 0
    """End of the last step that was received, by its own clock."""
    steps: int = 0
    """Finished, as it says itself."""
    last_step: int = 0
    """The highest step number received."""
    records: int = 0
    """Step records received, less those that the recorder had to throw away."""
    dropped: int = 0
    """Records it says it had to throw away."""
    total_steps: int | None = None
    beats: int = 0
    """Count of signs of life from its training thread."""
    beat_at: float = 0.0
    """Moment at which that last rose, by the hub's clock."""
    pausing: int | None = None
    """Index into PAUSES of what it does instead of training."""
    pausing_since: float = 0.0
    """Beginning of the pause, by the hub's clock. An evaluation that a checkpoint interrupts goes on after it."""
    _paused_at: dict[int, float] = field(default_factory=dict)
    """Beginnings of the pauses that it is in, by kind, the outermost first."""
    epoch: int | None = None
    """The epoch that runs, counted from 1."""
    epochs: int | None = None
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    """Its latest samples, the oldest first."""
    layouts: dict[int, Layout] = field(default_factory=dict)
    """Layouts of its buckets, where they are recorded."""
    unsynchronised: int = 0
    """Optimizer steps on gradients that DDP never reduced."""
    unsynchronised_at: int = 0
    """Number of steps that it had finished when the latest of them was reported."""
    skipped: int = 0
    """Number of its latest SCALED_UPDATES through a GradScaler that were skipped."""
    held_out: int = 0
    """Its latest updates in a row in evaluation mode, after some in training mode."""
    stack: Stack | None = None
    """Its latest stack."""
    stack_at: float = 0.0
    """Moment at which that came, by the hub's clock."""
    stood: Stack | None = None
    """The latest stack of a standstill in which every rank was still present."""
    still_since: float | None = None
    """Moment at which a stack first showed the place where it still is, by the hub's clock; None: it sent none."""
    elsewhere_at: float = 0.0
    """Moment at which a stack last showed another place than the latest one, by the hub's clock; 0: none did."""
    held: Held | None = None
    """The kernel does not let it run."""
    worker: Worker | None = None
    """The DataLoader worker that it waits for in a standstill."""
    on_cores: deque[tuple[int, CpuRivals, frozenset[int]]] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    """What took its cores, and which it might run on, as it told, after the time of its latest sample then; the oldest
    first."""
    stack_samples: StackSamples | None = None
    """The latest samples of its stack."""
    profile: Profile | None = None
    """Its answer to the latest request for a profile, until the hub has taken it in."""
    asked_at: float | None = None
    """Moment at which a viewer asked for its place, by the hub's clock; None: it has answered, or nobody did."""
    unanswered: bool = False
    """It did not answer when it was last asked."""
    learning_rate: float | None = None
    trains_since_us: int | None = None
    """End of the first step that is known, on its own clock: before it, samples tell of imports and set-up."""
    later_us: int | None = None
    """Lead of this machine's clock over that of the node which it is on, to milliseconds."""
    end: End | None = None
    """End on another node, as the logs there tell it."""
    heard_at: float = 0.0
    left: bool = False
    dead: bool = False
    ended_us: int | None = None
    """Moment at which the hub first noticed its end, by the hub's clock; None: it lives, or nobody saw its end."""

    @property
    def loses_records(self) -> bool:
        """Return whether it goes on, as it says itself, without records of its steps: the others are aligned without
        it.
        """
        return self.steps - self.last_step >= MAX_PARTIAL_STEPS

    @property
    def rank(self) -> int:
        return self.hello.rank

    @property
    def configuration(self) -> dict[str, str]:
        """Return what should be the same on all ranks."""
        return {"torch": self.hello.torch_version, **self.hello.configuration}

    @property
    def key(self) -> int:
        """Its number among those of all nodes."""
        return process_key(self.hello.pid, self.hello.through)

    @property
    def sample(self) -> Sample | None:
        """Its latest sample."""
        return self.samples[-1] if self.samples else None

    def note_cores(self) -> None:
        """Keep what its latest Hello says of its cores."""
        told = self.hello.cpu_rivals, frozenset(self.hello.setup.cores)
        if not self.on_cores or told != self.on_cores[-1][1:]:
            self.on_cores.append((self.sample.time_us if self.sample else 0, *told))

    def cores_until(self, time_us: int) -> tuple[CpuRivals, frozenset[int]]:
        """Return what had taken its cores by then, and which it might run on, as far as it had told."""
        if not self.on_cores:
            return self.hello.cpu_rivals, frozenset(self.hello.setup.cores)
        told = ((rivals, affinity) for at, rivals, affinity in reversed(self.on_cores) if at <= time_us)
        return next(told, (CpuRivals(), frozenset()))

    def mark_ended(self, now: float, *, left: bool) -> None:
        """It is there no more. left: it said goodbye, now or before."""
        self.left = self.left or left
        self.dead = not self.left
        if self.ended_us is None:
            self.ended_us = round(now * 1e6)

    def failed_of(self, failure: Failure) -> bool:
        """Return whether that is what it failed of: on several nodes processes may have the same pid."""
        return (failure.rank, failure.pid) == (self.rank, self.hello.pid)

    @property
    def clock_behind_us(self) -> int | None:
        """Return how far the clock of its machine is behind this machine's; None: not known."""
        return self.later_us if self.hello.through else 0

    @property
    def settled(self) -> bool:
        """Return whether it has proven to be a rank: in a process group, or training."""
        return self.stage >= STAGE_GROUP or self.last_step > 0

    @property
    def gone(self) -> bool:
        return self.left or self.dead or (self.process is not None and not self.process.alive())

    @property
    def lost(self) -> int:
        """Step records that were lost, at least: holes among those received, and after its end the tail."""
        steps = max(self.last_step, self.steps if self.left or self.dead else 0)
        return max(0, steps - self.hello.steps_before - self.records)

    def take_work(self, beats: int, pausing: int | None, now: float, *, writes: bool = False) -> None:
        """Take how far its training thread has come, and whether it trains. writes: it fills a file meanwhile."""
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
        """Take what a batch tells besides its steps, once it is known to be possible."""
        self.seq = batch.seq
        self.stage = max(self.stage, batch.stage)
        self.phase = batch.phase
        self.steps = batch.step
        self.dropped = batch.dropped
        writes = batch.pausing == CHECKPOINT and any(sample.written_bytes_per_s for sample in batch.samples)
        self.take_work(batch.beats, batch.pausing, now, writes=writes)
        # Also where they are not known any more: the total may have been that of one epoch.
        self.total_steps, self.epoch, self.epochs = batch.total_steps, batch.epoch, batch.epochs
        self.samples.extend(batch.samples)
        for layout in batch.layouts:
            self.layouts[layout.number] = layout
        self.skipped, self.held_out = batch.skipped, batch.held_out
        if batch.unsynchronised > self.unsynchronised:
            self.unsynchronised, self.unsynchronised_at = batch.unsynchronised, batch.step

    def take_stack(self, stack: Stack, now: float) -> None:
        """Take a stack, and notice whether it is where the last one was."""
        before, before_at, self.stack, self.stack_at = self.stack, self.stack_at, stack, now
        self.asked_at, self.unanswered = None, False
        if before is None or self.still_since is None or _place(before) != _place(stack):
            self.still_since, self.elsewhere_at = now, before_at

    def stands(self, stack: Stack, now: float) -> None:
        """While no rank makes progress, it is still where this stack shows it."""
        elapsed_us = round((now - self.stack_at) * 1e6)
        self.stood = msgspec.structs.replace(stack, time_us=stack.time_us + elapsed_us)

    @property
    def last_stand(self) -> Stack | None:
        """Return where it was while no rank came on: a peer that is killed frees it from there for a last moment."""
        return self.stood if self.stood is not None and self.stood.step >= self.steps else self.stack

    def health(self, now: float) -> str:
        """One of RankView's."""
        if self.left:
            return "left"
        if self.dead:
            return "dead"
        return "ok" if now - self.heard_at <= SILENT_S else "silent"

    def fresh(self, steps: Iterable[Step]) -> list[Step]:
        """Return those that were not received before, counted."""
        new = []
        for step in steps:
            if step.step > self.last_step:
                self.last_step, self.last_end_us = step.step, step.end_us
                self.records += 1
                new.append(step)
        return new


def _place(stack: Stack) -> tuple[object, ...]:
    """Return where a rank is in its script: progress of a library inside a call of the script does not count."""
    return stack.step, stack.issued, stack.frames[stack.own or 0 :]
