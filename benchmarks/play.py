"""Play a synthetic run through the hub's own store, and return what ddpmon showed of it at each moment and at the end.

    from play import Pause, play
    played = play(own_ms, transfer_ms, hosts=["a"] * 4 + ["b"] * 4)
    played.moments[-1].verdict, played.ended.verdict, played.report["verdict"]

Ranks speak the protocol of real ones (hello, batches, goodbye). Collector, recorder, store and bookkeeping are the
hub's, which judges twice a second of the run's own time, or after each longer step. The program never sleeps or waits.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from launching import make_run, own_home
from numpy.typing import ArrayLike

from ddpmon import runs
from ddpmon.analysis.statistics.arrays import Bools, Floats, Ints
from ddpmon.analysis.steps.table import PHASE_FIELDS, ROW, Table, steps_of
from ddpmon.hub.bookkeeping import Bookkeeping
from ddpmon.messages import (
    DDP,
    LOCAL_SGD,
    PARALLEL_JOIN,
    PROTOCOL,
    STAGE_TRAINING,
    SYNC_COLLECTIVE,
    SYNC_GRADIENTS,
    Batch,
    Bye,
    Finding,
    Hello,
    Sample,
    encode,
)
from ddpmon.messages import Pause as StepPause
from ddpmon.recording.collector import Collector
from ddpmon.recording.node_blocks import NodeBlock
from ddpmon.recording.recorded import recorded_report, recorded_snapshot
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.recording import recording_path
from ddpmon.store import store as judging
from ddpmon.store.clock import Clock
from ddpmon.store.endings import whole_ending
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store

judging.SURVIVED = ()  # A fault in judging must end a program that measures it.
TICK_US, SAMPLE_US = 500_000, 1_000_000
START_S = 5.0
"""Seconds from the start of the run to the beginning of its first step."""
FIRST_PID = 4_000_001
GRADIENT_BYTES = 1 << 20


@dataclass(frozen=True)
class Pause:
    """Time before a step in which ranks do not train. `kind` is an index into messages.PAUSES; no `ranks` means all."""

    before: int
    """Index of the step."""
    seconds: float
    kind: int = 0
    ranks: Collection[int] = ()


@dataclass(frozen=True)
class Shown:
    """A finding that a hub or a report showed. Times are in ms per step, and steps count from 1."""

    kind: str
    severity: str
    text: str
    ranks: tuple[int, ...]
    phase: str | None
    since: int | None
    until: int | None
    cost_ms: float | None
    gain: float | None
    """Speedup of the run if all ranks that the finding names were fixed."""
    advice: str
    evidence: dict[str, Any]

    @classmethod
    def of(cls, finding: Finding | dict[str, Any]) -> Shown:
        """Convert a finding, as a hub or a report has it."""
        facts = finding if isinstance(finding, dict) else msgspec.to_builtins(finding)
        evidence = facts["evidence"]
        return cls(
            facts["kind"], facts["severity"], facts["text"], tuple(facts["ranks"]), facts["phase"],
            facts["since_step"], facts["until_step"], facts["cost_ms"],
            evidence.get("gain_together") or evidence.get("gain"), facts["advice"] or "", evidence,
        )  # fmt: skip


@dataclass(frozen=True)
class Moment:
    """The dashboard's state at one moment."""

    step: int
    """The last step that has ended on all ranks."""
    seconds: float
    """Seconds since the first step began."""
    state: str
    verdict: str
    findings: tuple[Shown, ...]


@dataclass(frozen=True)
class Said:
    """An event that the dashboard showed."""

    step: int
    severity: str
    text: str
    finding: Shown | None
    """The finding with this text; None if no ongoing finding has it."""


@dataclass(frozen=True)
class Played:
    """Everything that ddpmon showed of a run."""

    moments: list[Moment]
    events: list[Said]
    ended: Moment
    """The dashboard of the run once it has ended, opened from its recording."""
    report: dict[str, Any]
    step_ms: Floats
    """[S] Real length of each step in ms."""

    @property
    def reported(self) -> tuple[Shown, ...]:
        """Return the findings of the report."""
        return tuple(Shown.of(finding) for finding in self.report["findings"])

    @property
    def hours(self) -> float:
        """Return how many hours the run took."""
        return float(self.step_ms.sum()) / 3.6e6


@dataclass(frozen=True)
class Timeline:
    """The times at which each rank ended each step, in µs since the first one began."""

    start_us: Ints
    end_us: Ints
    """[S, R] End of each step."""
    own_us: Ints
    """[S, R, 5] Own time of each phase."""
    paused_us: Ints
    """[S, R] Pause before the step's own time, which is part of the step's length."""
    meets: Bools
    """[S] True if ranks wait for each other at the step's end."""

    @classmethod
    def of(cls, own_ms: Floats, transfer_ms: ArrayLike, pauses: Sequence[Pause] = (), sync_every: int = 1) -> Timeline:
        """Build the timeline from own and transfer times.

        Args:
            own_ms: [S, R, 5] own times.
            transfer_ms: [S], or [S, R] if ranks leave the synchronisation at different times.
            pauses: Evaluations, checkpoints and the like.
            sync_every: Ranks wait for each other only in every `sync_every`-th step.
        """
        own_us = np.round(np.maximum(own_ms, 0.0) * 1e3).astype(np.int64)
        steps, ranks, _ = own_us.shape
        transfer = np.asarray(transfer_ms, float)
        transfer_us = np.round(np.broadcast_to(transfer.reshape(steps, -1), (steps, ranks)) * 1e3).astype(np.int64)
        paused = np.zeros((steps, ranks), np.int64)
        for pause in pauses:
            paused[pause.before, list(pause.ranks) or slice(None)] += round(pause.seconds * 1e6)
        meets = (np.arange(steps) + 1) % sync_every == 0
        work = own_us.sum(axis=2) + paused
        start, end, now = np.zeros_like(work), np.zeros_like(work), np.zeros(ranks, np.int64)
        for step, meet in enumerate(meets):
            start[step] = now
            now = now + work[step]
            if meet:
                now = now.max() + transfer_us[step]
            end[step] = now
        return cls(start, end, own_us, paused, meets)

    @property
    def step_ms(self) -> Floats:
        """Return the ms between the ends of successive steps on their last rank, [S]."""
        return np.diff(self.end_us.max(axis=1), prepend=0) / 1e3

    def table(self, begin_us: int, samples: ArrayLike, tokens: ArrayLike, kind: int) -> Table:
        """Return the records [S, R] that ranks send. `begin_us` is the beginning of the first step by the clock of the
        ranks.
        """
        length = self.end_us - self.start_us
        table = np.zeros(length.shape, ROW)
        table["step"] = 1 + np.arange(len(length))[:, None]
        table["end_us"], table["length_us"] = self.end_us + begin_us, length
        for place, phase in enumerate(PHASE_FIELDS):
            table[phase] = self.own_us[..., place]
        table["samples"], table["tokens"], table["backwards"] = samples, tokens, 1
        table["sync_count"] = self.meets[:, None]
        sync = table["syncs"][..., 0]
        met = self.meets[:, None]
        sync["kind"], sync["payload_bytes"] = kind * met, GRADIENT_BYTES * met
        sync["arrival_us"], sync["end_us"] = (self.own_us.sum(axis=2) + self.paused_us) * met, length * met
        return table


def play(
    own_ms: Floats,
    transfer_ms: ArrayLike,
    *,
    hosts: Sequence[str] = (),
    samples: ArrayLike = 64,
    tokens: ArrayLike = 0,
    pauses: Sequence[Pause] = (),
    clocks: ArrayLike | None = None,
    starved: ArrayLike | None = None,
    lost: ArrayLike = False,
    sync_every: int = 1,
) -> Played:
    """Play a run. The i-th step of `own_ms` is the run's step i + 1; the first step is excluded, as in every run.

    Args:
        own_ms: [S, R, 5] data, forward, backward, optimizer, other of each rank.
        transfer_ms: [S] from the last arrival to the end of the step; [S, R] if it differs between ranks.
        hosts: [R] the name of each rank's host; if empty, all are on one host.
        samples: Samples of each step, [S, R] or a shape that broadcasts to it.
        tokens: Tokens of each step in the same form; 0: there are none.
        pauses: Evaluations, checkpoints and the like.
        clocks: MHz of each rank's GPU, [S, R] or a shape that broadcasts to it; None: there are no GPUs.
        starved: Share of the time in which a rank had no core, in the same form; None: not measured.
        lost: Whether a record is lost while the rank's heartbeat goes on, in the same form.
        sync_every: Ranks wait for each other only in every `sync_every`-th step (local SGD).
    """
    timeline = Timeline.of(own_ms, transfer_ms, pauses, sync_every)
    shape = timeline.end_us.shape
    with own_home():
        hub = _Hub(timeline, list(hosts) or ["host0"] * shape[1], pauses, sync_every, gpu=clocks is not None)
        hub.table["samples"], hub.table["tokens"] = samples, tokens
        hub.lost = np.broadcast_to(np.asarray(lost, bool), shape)
        hub.measured = {
            name: np.broadcast_to(np.asarray(values, float), shape)
            for name, values in (("gpu_clock_mhz", clocks), ("starved_share", starved))
            if values is not None
        }
        return hub.played()


class _Hub:
    """The store and the analysis of a hub, fed by a timeline instead of sockets."""

    def __init__(
        self, timeline: Timeline, hosts: list[str], pauses: Sequence[Pause], sync_every: int, *, gpu: bool
    ) -> None:
        self.timeline = timeline
        self.began_s = time.monotonic()
        took_s = START_S + float(timeline.end_us.max()) / 1e6 + 1.0
        self.ranks = len(hosts)
        run = make_run("played", self.ranks, nnodes=len(set(hosts)), host=hosts[0], age_s=took_s)
        self.clock = Clock(round(self.began_s * 1e6), run.created_at)
        self.begin_us = self.clock.monotonic_us + round(START_S * 1e6)
        self.store = Store(run, Registry(run.id, run.world_size, run.host), self.clock, live=True)
        self.recorder = Recorder(recording_path(run.id), run.id, self.clock)
        self.collector = Collector(self.store, self.recorder, "played", lambda *_: None)
        self.books = Bookkeeping(self.store, self.recorder, self.collector)
        kind = SYNC_GRADIENTS if sync_every == 1 else SYNC_COLLECTIVE
        self.table = timeline.table(self.begin_us, 0, 0, kind)
        self.lost: Bools = np.zeros(timeline.end_us.shape, bool)
        self.measured: dict[str, Floats] = {}
        self.pauses: dict[tuple[int, int], list[StepPause]] = {}
        for pause in pauses:
            for rank in pause.ranks or range(self.ranks):
                span = StepPause(pause.kind, 0, round(pause.seconds * 1e6))
                self.pauses.setdefault((pause.before, rank), []).append(span)
        self.sent = np.zeros(self.ranks, np.int64)
        self.seq = 0
        self.sampled_us = -SAMPLE_US
        parallelism = DDP if sync_every == 1 else PARALLEL_JOIN.join((DDP, LOCAL_SGD))
        nodes = list(dict.fromkeys(hosts))
        for rank, host in enumerate(hosts):
            hello = Hello(
                PROTOCOL, run.id, rank, hosts[:rank].count(host), self.ranks, nodes.index(host), host, FIRST_PID + rank,
                STAGE_TRAINING, device=f"cuda:{rank}" if gpu else "cpu", gradient_bytes=GRADIENT_BYTES, cores=64,
                compute_threads=1, parallelism=parallelism,
            )  # fmt: skip
            self._take(rank, hello, self.began_s)

    def played(self) -> Played:
        """Feed the whole run at the pace of a hub, and return what was shown."""
        moments, events, ends = [], [], self.timeline.end_us
        for tick in range(1, int(ends.max()) // TICK_US + 2):
            upto = self._ended_by(tick * TICK_US)
            if (upto == self.sent).all():
                continue
            now_s = self.began_s + START_S + tick * TICK_US / 1e6
            self._send(upto, now_s)
            self.store.add_arrived()
            moments.append(self._judged(now_s, tick * TICK_US / 1e6, events))
        ended = self._end(now_s + 0.5, events)
        return Played(moments, events, ended, recorded_report(self.store.run), self.timeline.step_ms)

    def _ended_by(self, moment_us: int) -> Ints:
        """Return how many steps each rank has ended, [R]."""
        upto = self.sent.copy()
        ends = self.timeline.end_us
        for rank in range(self.ranks):
            upto[rank] += np.searchsorted(ends[upto[rank] :, rank], moment_us, side="right")
        return upto

    def _send(self, upto: Ints, now_s: float) -> None:
        """Let each rank send a batch: its records since the last one, and a sample once a second."""
        self.seq += 1
        now_us = round(now_s * 1e6)
        samples = now_us - self.sampled_us >= SAMPLE_US
        self.sampled_us = now_us if samples else self.sampled_us
        batches, tables, counts = [], [], []
        for rank, (first, last) in enumerate(zip(self.sent.tolist(), upto.tolist(), strict=True)):
            kept = np.arange(first, last)[~self.lost[first:last, rank]]
            rows = self.table[kept, rank]
            batch = Batch(
                rank, FIRST_PID + rank, self.seq, now_us, STAGE_TRAINING, last, 0, beats=self.seq,
                samples=[self._sample(rank, max(last - 1, 0), now_us)] if samples else [],
            )  # fmt: skip
            if self.pauses and any((step, rank) in self.pauses for step in kept.tolist()):
                batch.steps = steps_of(rows)
                for place, step in enumerate(kept.tolist()):
                    batch.steps[place].pauses = self.pauses.get((step, rank), [])
                rows = rows[:0]
            batches.append(batch)
            tables.append(rows)
            counts.append(len(rows))
        self.sent = upto
        block = NodeBlock(batches, np.cumsum(counts).tolist(), np.concatenate(tables))
        self.collector.take_block(block, 0, _connection, now_s, self._unix(now_s), 0)
        self.collector.pass_on_steps(now_s)

    def _sample(self, rank: int, step: int, now_us: int) -> Sample:
        measured = {name: float(values[step, rank]) for name, values in self.measured.items()}
        gpu = {"gpu_percent": 95.0} if "gpu_clock_mhz" in measured else {}
        return Sample(now_us, cpu_percent=100.0, rss_bytes=1 << 30, **gpu, **measured)

    def _judged(self, now_s: float, seconds: float, events: list[Said]) -> Moment:
        store = self.store
        store.judge(now_s, self._unix(now_s))
        shown = tuple(Shown.of(finding) for finding in store.findings)
        step = int(self.sent.min())
        for event in store.new_events:
            whose = next((finding for finding in shown if finding.text and finding.text in event.text), None)
            events.append(Said(step, event.severity, event.text, whose))
        self.books.write_due(now_s, self._unix(now_s))
        return Moment(step, seconds, store.state, store.verdict.text, shown)

    def _end(self, now_s: float, events: list[Said]) -> Moment:
        """End the run as its hub does; return what its recording shows."""
        store = self.store
        for rank in range(self.ranks):
            self._take(rank, Bye(rank, FIRST_PID + rank, self.seq), now_s)
        store.run = replace(store.run, ended_at=self._unix(now_s), exit_code=0)
        runs.save(store.run)
        store.live = False
        store.add_arrived(final=True)
        store.ending = whole_ending(store.run, store.registry)
        last = self._judged(now_s, 0.0, events)
        self.books.keep_last(now_s, self._unix(now_s))
        self.recorder.close()
        shot = recorded_snapshot(store.run)
        return replace(
            last, seconds=float(self.timeline.end_us.max()) / 1e6, state=shot.state, verdict=shot.verdict,
            findings=tuple(Shown.of(finding) for finding in shot.findings),
        )  # fmt: skip

    def _take(self, rank: int, message: Hello | Bye, now_s: float) -> None:
        self.collector.process_message([_connection(FIRST_PID + rank), encode(message)], now_s, self._unix(now_s))

    def _unix(self, now_s: float) -> float:
        return self.clock.unix_at(round(now_s * 1e6))


def _connection(pid: int) -> bytes:
    return str(pid).encode()
