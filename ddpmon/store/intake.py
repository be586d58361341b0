"""Receives ranks' records from sockets or a recording, and aligns them by step for the window and the histories."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence

import numpy as np

from ddpmon.analysis.evidence import BadLoss
from ddpmon.analysis.findings import since_change
from ddpmon.analysis.over_time.heat import Heat
from ddpmon.analysis.over_time.longest_steps import LongestSteps
from ddpmon.analysis.over_time.sample_bins import SampleBins
from ddpmon.analysis.processes.replicas import Replicas
from ddpmon.analysis.processes.waiting import Waiting
from ddpmon.analysis.run_state import WARM_UP_STEPS, LongestPauses
from ddpmon.analysis.slowness.engine import Engine
from ddpmon.analysis.statistics.arrays import Bools
from ddpmon.analysis.steps.alignment import Aligner
from ddpmon.analysis.steps.buckets import BucketTimes, bucket_times
from ddpmon.analysis.steps.clocks import Clocks
from ddpmon.analysis.steps.named_phases import NamedPhases
from ddpmon.analysis.steps.pauses import PauseFilter
from ddpmon.analysis.steps.step_sums import SinceStart
from ddpmon.analysis.steps.summary import DepartedRanks, Summary, loss_trend, past_warm_up, summarise
from ddpmon.analysis.steps.table import Rows, Table, learning_rates, losses_of
from ddpmon.analysis.steps.waits import split_waits
from ddpmon.analysis.steps.window import Window
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.words import named_ranks
from ddpmon.messages import (
    END_STATES,
    OUT_OF_DATA,
    PAUSES,
    ClockView,
    Digest,
    Event,
    Failure,
    Finding,
    Pause,
    PausingView,
    Sample,
    Scalar,
    Step,
)
from ddpmon.plain import utf8
from ddpmon.runs import Run
from ddpmon.store.clock import Clock
from ddpmon.store.endings import Ending
from ddpmon.store.first_step import FirstStep
from ddpmon.store.histories import Histories
from ddpmon.store.processes import SAMPLE_US, RankProcess
from ddpmon.store.registry import Registry
from ddpmon.store.samples import RecentSamples
from ddpmon.store.silences import Silences

WINDOW_STEPS = 600
PAUSING_S = 1.0
"""Seconds after which a current pause is shown."""
WINDOW_S = 30.0
EVENTS = 200
"""Number of the newest events of a run that a dashboard shows."""
AGREED_US = 5_000_000
"""Microseconds for which the computed precision of clocks is reused, because computing it for 100 hosts takes some
ms."""
BUCKET_STEPS = 50
"""Number of steps of a live run whose buckets are stored. For a recording, the steps of the window are stored, at most
BUCKET_STEPS_MOST."""
BUCKET_STEPS_MOST = 2000
HUGE_LOSSES = np.errstate(over="ignore", invalid="ignore")
"""Suppresses warnings of numpy, because the variance of a loss of 1e300 overflows a float."""


class Intake:
    """Receives the records of ranks, and holds a window of steps, histories of the whole run, and its events."""

    def __init__(
        self,
        run: Run,
        registry: Registry,
        clock: Clock,
        window_steps: int = WINDOW_STEPS,
        window_s: float | None = WINDOW_S,
        live: bool = False,
    ) -> None:
        self.run = run
        self.live = live
        """True in a hub. The run then counts as running even if its supervisor is gone."""
        self.registry = registry
        self.clock = clock
        self.histories = Histories()
        self.heat = Heat()
        self.sample_bins = SampleBins()
        self.longest_steps = LongestSteps()
        self.damaged = False
        """True if the records come from a recording that could not be read completely."""
        self.failures: list[Failure] = []
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self.new_events: list[Event] = []
        """Events that are not recorded yet."""
        self.notes: list[str] = []
        self.ending = Ending()
        self.waiting = Waiting(registry.world_size, attached=len(run.attached))
        self.loss: float | None = None
        self.loss_falls: bool | None = None
        self.findings: list[Finding] = []
        self.state = "waiting"
        self._window_steps, self._window_s = window_steps, window_s
        self.idle: frozenset[int] = frozenset()
        """Ranks whose processes are idle. They are detected only before the first step."""
        self.recent_samples = RecentSamples()
        self.silences = Silences()
        self._sampled_us: dict[int, int] = {}
        """Time of each process's latest sample in µs, by the clock of the process."""
        self._connected: tuple[int, int] | None = None
        """(attempt, world size) at the time when all ranks had last connected."""
        self._forget_steps()

    def _forget_steps(self) -> None:
        """Begin without steps, as at the start of each attempt, in which ranks count their steps from 1."""
        self._attempt = self.registry.attempt
        self._aligner = Aligner(self.registry.world_size)
        self._clocks = Clocks(self.registry.host)
        self._agreements: list[ClockView] = []
        self._agreed_us = -AGREED_US
        """End, in µs, of the step at which `_agreements` was computed."""
        self._window = Window(self._window_steps)
        self._engine = Engine()
        self._named = NamedPhases(self._window_steps)
        self.world: World | None = None
        self.summarised: World | None = None
        """The steps of `world` over which `summary` is computed."""
        self.summary: Summary | None = None
        self.departed = DepartedRanks()
        self.first_step: World | None = None
        """The first step, until the second one has ended."""
        self._first = FirstStep()
        self.history_step = 0
        """The last step that is in the histories."""
        self.since_start = SinceStart()
        self.pause_filter = PauseFilter()
        self._pauses = LongestPauses()
        self._final_pauses: dict[int, Sequence[Pause]] = {}
        """Pauses after the last step of ranks that have left, by rank."""
        self._backwards: deque[int] = deque(maxlen=21)
        """Number of backward calls of each of the latest steps."""
        self.bad_losses: dict[int, BadLoss] = {}
        """Each rank's first loss that is not finite."""
        self._replicas = Replicas()
        kept = BUCKET_STEPS if self._window_s is not None else min(self._window_steps, BUCKET_STEPS_MOST)
        self._reduced: deque[dict[int, Step]] = deque(maxlen=kept)
        """Records of the last steps, by rank, in which buckets were recorded."""
        self._last_step_at: float | None = None

    def add_steps(self, process: RankProcess, steps: Sequence[Step], at: float | None = None) -> None:
        """Add steps of a rank that were not received before. at: time of arrival in seconds of the hub's clock."""
        if self.registry.attempt != self._attempt or self._aligner.world_size != self.registry.world_size:
            self._begin_attempt()
        if steps and self.registry.is_seated(process):
            self._aligner.add(process.rank, self._first.keep_first_step(process.rank, steps))
            self._last_step_at = at
            if process.trains_since_us is None:
                process.trains_since_us = steps[0].end_us
            process.learning_rate = steps[-1].learning_rate
            for step in steps:
                self._pauses.add(step)
                if step.loss is not None and not math.isfinite(step.loss) and process.rank not in self.bad_losses:
                    self.bad_losses[process.rank] = BadLoss(process.rank, step.step, step.loss)

    @HUGE_LOSSES
    def add_rows(self, processes: Sequence[RankProcess], counts: Sequence[int], table: Table, at: float | None) -> None:
        """Add new rows of steps of processes that have a rank; `counts` has the number of rows of each process.

        `at` is the time of arrival in seconds of the hub's clock.
        """
        if self.registry.attempt != self._attempt or self._aligner.world_size != self.registry.world_size:
            self._begin_attempt()
        ranks = np.repeat(np.array([process.rank for process in processes]), counts)
        self._aligner.add_rows(*self._first.take_rows(ranks, table))
        self._last_step_at = at
        ends = np.cumsum(counts)
        last = zip(processes, learning_rates(table[ends - 1]), table["end_us"][ends - counts].tolist(), strict=True)
        for process, rate, first_end_us in last:
            process.learning_rate = rate
            if process.trains_since_us is None:
                process.trains_since_us = first_end_us
        warming_up, length_us = table["step"] <= WARM_UP_STEPS, table["length_us"]
        for step, those in ((1, warming_up), (WARM_UP_STEPS + 1, ~warming_up)):
            self._pauses.add_length(step, float(length_us[those].max(initial=0)) / 1e6)
        losses, has_loss = losses_of(table)
        for place in np.flatnonzero(has_loss & ~np.isfinite(losses)).tolist():
            rank = int(ranks[place])
            self.bad_losses.setdefault(rank, BadLoss(rank, int(table["step"][place]), float(losses[place])))

    def add_closing_pauses(self, process: RankProcess, pauses: Sequence[Pause]) -> None:
        """Add the pauses of a rank after its last step."""
        if self.registry.is_seated(process):
            self._final_pauses[process.rank] = pauses

    def add_digests(self, process: RankProcess, digests: Sequence[Digest]) -> None:
        """Add digests of a rank's parameters."""
        if self.registry.is_seated(process):
            self._replicas.add(process.rank, digests)

    def add_samples(self, process: RankProcess, samples: Sequence[Sample]) -> None:
        """Add samples of a rank that were not received before."""
        if not self.registry.is_seated(process):
            return
        self.sample_bins.add(process.rank, process.hello.host, samples)
        if (behind_us := process.clock_behind_us) is not None:
            run_began_us = self.clock.us_at(self.run.created_at) - behind_us
            self.histories.add_samples(process.rank, samples, run_began_us)
        for sample in samples:
            before = self._sampled_us.get(process.id, 0)
            if sample.gpu_percent is not None and sample.time_us > before:
                since = max(before, sample.time_us - SAMPLE_US)
                self.heat.add_gpu_sample(process.rank, since, sample.time_us, sample.gpu_percent)
                self._sampled_us[process.id] = sample.time_us

    def add_logged(self, process: RankProcess, scalars: Sequence[Scalar]) -> None:
        """Add values that a rank's script logged."""
        if self.registry.is_seated(process):
            self.histories.add_logged(process.rank, scalars)

    def continue_recording(self, now: float) -> None:
        """Continue a recording as a live run. now: seconds of the hub's clock."""
        self.live = True
        for process in self.registry.processes.values():
            process.heard_at = now
        if len(self.registry.process_of_rank) == self.registry.world_size:
            self._connected = self.registry.attempt, self.registry.world_size
        if self.step:
            self._last_step_at = now
            self.state = "running"

    def _begin_attempt(self) -> None:
        """Discard the steps of the previous attempt."""
        self._forget_steps()
        self.histories.forget_logged()

    @HUGE_LOSSES
    def add_arrived(self, final: bool = False) -> None:
        """Put newly completed steps into the window and the histories. final: also put incomplete steps."""
        own_clocks = {rank for rank, process in self.registry.process_of_rank.items() if process.hello.device_clock}
        hosts = {rank: process.hello.host for rank, process in self.registry.process_of_rank.items()}
        for aligned in self._aligner.pop_complete(final):
            rows = self.pause_filter.training_steps(aligned)
            self._add_pause_events(self.clock.unix_at(int(aligned.table["end_us"][-1].max())))
            if rows is None:
                continue
            self._backwards.extend(rows.integer_field("backwards")[-21:, 0].tolist())
            part = split_waits(rows, self._clocks.offsets_us(rows, hosts), own_clocks, whole=self._complete_steps(rows))
            if part.ranks != self._window.ranks:
                self.departed.change_world(self._window.as_world(self._window_s), part.ranks)
            self._window.append(part)
            self._engine.append(part)
            self._remember(part)
            ends = rows.integer_field("end_us")[-1]
            self.heat.append(part, part.end_us[-1] - ends)  # A step ends at the same moment on all hosts.
            self.since_start.append(part)
            self.longest_steps.append(part)
            self._named.append(rows)
            for place in range(len(rows)):
                records = rows.odd_records(place)
                if len(records) == len(rows.ranks) and all(record.buckets for record in records.values()):
                    self._reduced.append(records)
        if final and self._final_pauses:
            self.pause_filter.add_final(self._final_pauses, self.step + 1)
            self._final_pauses = {}
        self.histories.end_seconds(final=final)
        self.heat.overlay_samples()
        self.world = self._window.as_world(self._window_s)
        if self.world is not None:
            self._summarise(self.world)
            self.loss, self.loss_falls = loss_trend(self.world)
            self.first_step = None
        elif self.first_step is None:
            self.first_step = self._first.world(self.registry.world_size, hosts, self.registry.host, own_clocks)

    def _complete_steps(self, rows: Rows) -> Bools:
        """Return [S]: whether each step has the records of all ranks that train. Records the silence of other ranks."""
        steps = rows.step_numbers()
        if self.registry.covers_all(rows.ranks):
            return self.silences.steps_without_silence(self.registry.attempt, steps, rows.ranks)
        silent = sorted(set(self.registry.unheard_ranks) - set(rows.ranks))
        if silent:
            self.silences.add(self.registry.attempt, steps[0], steps[-1], silent)
        return np.zeros(len(steps), bool)

    def _summarise(self, world: World) -> None:
        """Compute the means. In a live run, the means cover the steps since findings changed, to agree with the
        verdict.
        """
        world = past_warm_up(world)
        self.summarised = world if self._window_s is None else since_change(world, self.findings)
        self.summary = summarise(self.summarised)

    def _remember(self, part: World) -> None:
        part = part.steps_between(int(np.searchsorted(part.step, self.history_step, side="right")), len(part))
        if len(part):
            seconds = (part.end_us - self.clock.us_at(self.run.created_at)) / 1e6
            self.histories.add_steps(part, seconds.astype(np.float64))
            self.history_step = int(part.step[-1])

    def _add_pause_events(self, unix: float) -> None:
        for pause in self.pause_filter.for_events if self.live else ():
            self.add_event(unix, "info", pause.event_text(self.registry.world_size))
        self.pause_filter.for_events.clear()

    def add_event(self, unix: float, severity: str, text: str) -> None:
        """Add an event to the run's events and to those that are not recorded yet."""
        event = Event(unix, severity, utf8(text))
        self.events.append(event)
        self.new_events.append(event)

    @property
    def accumulation(self) -> int:
        """Return the most frequent number of backward calls per step."""
        return statistics.mode(self._backwards) if self._backwards else 1

    def pausing(self, now: float) -> PausingView | None:
        """Return the current pause of the run, or None if it trains or has paused for less than PAUSING_S."""
        trains = {None, OUT_OF_DATA}  # No other rank waits for a rank that is out of data.
        paused = {
            rank: p for rank, p in self.registry.process_of_rank.items() if p.pausing not in trains and not p.gone
        }
        if not paused or self.state in END_STATES:
            return None
        first = min(paused.values(), key=lambda process: process.pausing_since)
        ranks = [rank for rank, process in paused.items() if process.pausing == first.pausing]
        seconds = now - first.pausing_since
        return PausingView(PAUSES[first.pausing or 0], sorted(ranks), seconds) if seconds >= PAUSING_S else None

    @property
    def stands_since(self) -> float | None:
        """Return the time at which steps of any rank last arrived, by the hub's clock, or None before the first."""
        return self._last_step_at

    def connected(self, unix: float) -> None:
        """Add an event, once per attempt, when every rank has connected."""
        attempt, size = now = self.registry.attempt, self.registry.world_size
        if now != self._connected and len(self.registry.process_of_rank) == size > 0:
            self._connected = now
            again = f", attempt {attempt + 1}" if attempt else ""
            who = named_ranks(range(size), size) if size > 1 else "the rank"
            self.add_event(unix, "info", f"{who} connected{again}")

    @property
    def step(self) -> int:
        """Return the number of finished steps: the median over the ranks that still train."""
        steps = [p.steps for rank, p in self.registry.process_of_rank.items() if rank not in self.departed]
        return int(statistics.median_low(steps)) if steps else 0

    def named_ms(self) -> dict[int, dict[str, float]]:
        """Return each rank's mean ms per step in each `ddpmon.phase`, over the window."""
        world = self.world
        if world is None:
            return {}
        means = self._named.mean_ms(world)
        return {rank: {name: float(ms[i]) for name, ms in means.items()} for i, rank in enumerate(world.ranks)}

    @property
    def clock_agreements(self) -> list[ClockView]:
        """Return the offset and precision of each host's clock, computed again every AGREED_US."""
        end_us = int(self.world.end_us[-1]) if self.world is not None else 0
        if not 0 <= end_us - self._agreed_us < AGREED_US:
            self._agreements, self._agreed_us = self._clocks.agreements(), end_us
        return self._agreements

    def common_us(self, rank: int, time_us: int) -> int:
        """Convert a time from a rank's clock to the common clock of all ranks."""
        process = self.registry.process_of_rank.get(rank)
        return time_us if process is None else self._clocks.to_reference_us(process.hello.host, time_us)

    def last_steps(self, steps: int) -> World | None:
        """Return the last `steps` steps, or fewer if the window has fewer. Return None before the first step."""
        world = self._window.as_world()
        return None if world is None else world.last_steps(steps)

    def bucket_times(self) -> BucketTimes:
        """Return the times of the buckets in the last steps for which they were recorded."""
        return bucket_times(self._reduced, {rank: p.layouts for rank, p in self.registry.process_of_rank.items()})
