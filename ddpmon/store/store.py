"""Stores a run's records, from sockets or a recording, and the findings, state and verdict that follow from them."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf

from ddpmon.analysis import verdict
from ddpmon.analysis.events import Announcement, Announcer
from ddpmon.analysis.evidence import BadLoss, Evidence, Unsynchronised, Wait
from ddpmon.analysis.findings import all_findings
from ddpmon.analysis.ledger import Judgement, Ledger
from ddpmon.analysis.processes import failures as failing
from ddpmon.analysis.processes.explanation import is_consequence
from ddpmon.analysis.processes.hangs import Standstill
from ddpmon.analysis.run_state import Signs, derive_state, is_without_steps
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.verdict import Verdict
from ddpmon.analysis.words import duration
from ddpmon.messages import (
    BATCH_NORM,
    END_STATES,
    MAX_US,
    OTHER_BUFFERS,
    OWN_PHASES,
    STARTING_WORKERS,
    STEPS,
    UNREDUCED,
    Attempt,
    Failure,
    Finding,
    ProfileView,
)
from ddpmon.plain import utf8
from ddpmon.store.endings import earlier_attempts
from ddpmon.store.intake import HUGE_LOSSES, Intake
from ddpmon.store.processes import RankProcess
from ddpmon.store.standstill import needs_peers, next_timeout, standstill, start_stands_s

SURVIVED: tuple[type[Exception], ...] = (Exception,)
"""Exceptions of the analysis to catch, because a bug of ddpmon must stop neither recording nor viewing."""


class Store(Intake):
    """The received records of a run, with the findings, the state and the verdict that follow from them."""

    verdict = Verdict()
    verdict_since: float | None = None
    unwritable = ""
    """Reason why nothing can be recorded now, or "" if recording works."""
    profile: ProfileView | None = None
    """Latest profile of ranks, which is not recorded."""
    _replays = False
    """True if no steps arrive because a CUDA graph replays the training."""
    first_failure: failing.FirstFailure | None = None
    announced: Sequence[Announcement] = ()
    """Events about findings that the last judgement added."""

    @cached_property
    def _announcer(self) -> Announcer:
        return Announcer()

    @cached_property
    def ledger(self) -> Ledger:
        """Return the ledger, which records all findings of this attempt; `findings` comes from it."""
        return Ledger(self.registry.attempt)

    fault: str = ""
    """Traceback if the last judgement raised, because of a bug of ddpmon. The findings are then the previous ones."""
    _judged: Sequence[Finding] | None = None
    """Findings of the last judgement, which cover only the window."""

    @HUGE_LOSSES
    def judge(self, now: float, unix: float) -> None:
        """Update findings, state and verdict. now: seconds of the hub's clock. unix: Unix seconds."""
        signs = self._signs(now, unix)
        over = signs.run_state in END_STATES
        gone = [
            one.rank
            for one in self.silently_ended(p for p in self.registry.process_of_rank.values() if p.left or p.dead)
        ]
        still = standstill(self.registry, signs, now, gone)
        if still is not None and not still.over and not still.gone:
            for rank, stack in still.stacks.items():
                self.registry.process_of_rank[rank].set_standstill_stack(stack, now)
        wait = None if over else next_timeout(self.registry, now, unix, gone)
        window = self._window.as_world()
        first, last = (self.step, self.step) if window is None else (int(window.step[0]), int(window.step[-1]))
        before = self.ledger.lasting_findings(last) if self._judged is None else self._judged
        evidence = self._evidence(still, wait, window)
        try:
            self._judged, self.fault = all_findings(self.world, evidence, before, window), ""
        except SURVIVED:
            self._judged, self.fault = before, traceback.format_exc()
        self.ledger.enter_findings(self._judged, Judgement(unix, first, last), over=over)
        current = self.ledger.findings(unix - self.run.created_at)
        # After the run's end no finding can come back, so the end of every finding is announced.
        seconds = inf if over else 0.0 if self.world is None else float(self.world.end_us[-1]) / 1e6
        self.announced = self._announcer.announce(self.findings, current, seconds)
        for event in self.announced:
            self.add_event(unix, event.severity, event.text)
        state_before = self.state
        self._conclude(current, signs, now, unix)
        if self.state != state_before:
            self._add_state_event(state_before, unix, [event.finding for event in self.announced if event.finding])

    @HUGE_LOSSES
    def restore_findings(self, recorded: Sequence[Finding], now: float, unix: float) -> None:
        """Set the findings that a hub had recorded by a given time, and the state and verdict that follow from them."""
        self.findings = []  # so that means begin at the last change
        self._conclude(list(recorded), self._signs(now, unix), now, unix)

    def _signs(self, now: float, unix: float) -> Signs:
        run_state = self.run.state()
        if run_state in {"lost", "unknown"} and self.live:
            run_state = "running"
        by_rank = self.registry.process_of_rank
        if run_state in END_STATES and run_state not in {"stopped", "detached", "unknown"}:
            self.first_failure = self._first_failure(run_state)
        starts_workers = any(p.pausing == STARTING_WORKERS and not p.gone for p in by_rank.values())
        return Signs(
            run_state,
            steps=self.step,
            idle_s=self._idle_s(now),
            step_s=self.summary.step_ms_p50 / 1e3 if self.summary else None,
            pause_s=max(self._pauses.longest_s(self.step), self._pauses.worker_start_s * starts_workers),
            starts_workers=starts_workers,
            start_still_s=None if self.step else start_stands_s(self.registry, self.idle, now),
            all_left=bool(by_rank) and all(p.left or p.dead for p in by_rank.values()),
            winding_down=self.winding_down(unix),
            replays=any(STEPS in p.hello.missing for p in by_rank.values()),
        )

    def _conclude(self, current: list[Finding], signs: Signs, now: float, unix: float) -> None:
        """Set the findings, and update means, state and verdict accordingly."""
        changed = [(f.since_step, f.until_step) for f in current] != [
            (f.since_step, f.until_step) for f in self.findings
        ]
        self.findings = current
        if changed and self.world is not None:
            self._summarise(self.world)
        before = self.state
        slow = any(f.severity != "info" and f.is_lasting and f.cost_ms is not None for f in current)
        self.state = derive_state(replace(signs, slow=slow))
        self._replays = signs.replays and is_without_steps(replace(signs, all_left=False))
        self.verdict = self._verdict(now, unix)
        if self.state != before or self.verdict_since is None:
            self.verdict_since = unix - (signs.still_s if self.state == "stalled" else 0.0)

    def _evidence(self, standstill: Standstill | None, wait: Wait | None, window: World | None) -> Evidence:
        processes = self.registry.process_of_rank.values()
        recent_samples = [(p, self.recent_samples.summary_of(p)) for p in processes if not (p.left and self.live)]
        ended = all(p.left for p in processes)
        """True if all ranks have left; only then do ranks that left count for findings about memory."""
        lost = self.registry.lost_by_rank()
        return Evidence(
            records=sum(process.records for process in self.registry.processes.values()),
            lost=sum(lost.values()),
            lost_ranks=sorted(lost),
            damaged=self.damaged,
            bad_losses=self._bad_losses(),
            failed=self.first_failure or self._failed_so_far(),
            attempts=self.earlier_attempts(),
            step=self.step,
            world_size=self.registry.world_size,
            attached=bool(self.run.attached),
            standstill=standstill,
            wait=wait,
            difference=self._replicas.difference(),
            same=self._replicas.last_comparison(),
            differences={of: self._replicas.difference(of) for of in (BATCH_NORM, OTHER_BUFFERS, UNREDUCED)},
            inputs=self._replicas.input_comparison(),
            held_out={p.rank: p.held_out for p in processes if p.held_out},
            skipped={p.rank: p.skipped for p in processes if p.skipped},
            configurations={p.rank: p.configuration for p in processes if p.hello.configuration},
            unsynchronised=[Unsynchronised(p.rank, p.unsynchronised, p.unsynchronised_at, p.steps) for p in processes],
            memory=[
                memory
                for p in processes
                if (ended or not p.left) and (memory := self.recent_samples.summary_of(p).memory)
            ],
            gpu_users={p.rank: users for p in processes if (users := self.registry.gpu_users(p))},
            gpus={p.rank: p.hello.gpu for p in processes if p.hello.gpu},
            gloo_on_gpus=all(p.hello.backend == "gloo" and p.hello.device.startswith("cuda:") for p in processes),
            gpu_errors={p.rank: p.hello.gpu_errors for p in processes if p.hello.gpu_errors},
            conditions=[recent.conditions for _, recent in recent_samples],
            bus_bandwidth_gb_s=lambda: self.bucket_times().bus_bandwidth_gb_s if self._reduced else None,
            named=self._named,
            clocks_within_ms=max((one.within_ms for one in self.clock_agreements), default=0.0),
            times=self.pause_filter.times,
            parallelism=self.registry.parallelism,
            unmeasured=self.registry.unmeasured,
            setups={process.rank: process.hello.setup for process in processes},
            unchanged=self._replicas.unchanged(),
            stack_samples=[process.stack_samples for process in processes if process.stack_samples],
            slowdowns=self._engine.judge(window, {p.rank: p.hello.host for p in processes}),
        )

    def _bad_losses(self) -> list[BadLoss]:
        """Return each rank's first loss that is not finite.

        The list is empty until all other ranks have sent the first step with such a loss, because another rank may have
        had one earlier.
        """
        first = min((loss.step for loss in self.bad_losses.values()), default=0)
        all_past = all(process.last_step >= first or process.gone for process in self.registry.process_of_rank.values())
        aligned = self.world is not None and self.world.step[-1] >= first
        over = self.state == "stalled" or self.run.state() in END_STATES
        return list(self.bad_losses.values()) if all_past or aligned or over else []

    def failures_of(self, attempt: int) -> list[Failure]:
        """Return the failures of an attempt's ranks. Failures of unknown processes count for the current attempt."""
        registered = self.registry.processes
        processes = sorted((p for p in registered.values() if p.attempt >= 0), key=lambda p: p.attempt)
        attempts = {(p.rank, p.hello.pid): p.attempt for p in processes}
        return [
            f
            for f in self.failures
            if attempts.get((f.rank, f.pid), self.registry.attempt) == attempt and self.is_failure(f)
        ]

    def winding_down(self, unix: float) -> bool:
        """Return whether the ranks had been asked to end by a time in Unix seconds."""
        return self.run.winding_down_at is not None and unix >= self.run.winding_down_at

    def is_failure(self, failure: Failure) -> bool:
        """Return whether an exception counts as a failure. It does not if the ranks had been asked to end before."""
        return not self.winding_down(self.clock.unix_at(failure.time_us))

    def earlier_attempts(self) -> list[Attempt]:
        """Return the attempts before the current one, and how they ended."""
        return earlier_attempts(self.registry, self.ending, self.failures_of, self.silently_ended)

    def silently_ended(self, processes: Iterable[RankProcess]) -> list[failing.Gone]:
        """Return the processes that ended without an exception before they were asked to end."""
        return [
            failing.Gone(p.rank, p.steps, MAX_US if p.ended_us is None else p.ended_us, p.left)
            for p in processes
            if not any(p.failed_of(failure) for failure in self.failures) and not self._was_asked_to_end(p)
        ]

    def _was_asked_to_end(self, process: RankProcess) -> bool:
        asked_at = self.run.winding_down_at
        if asked_at is None:
            return False
        return process.ended_us is None or self.clock.unix_at(process.ended_us) >= asked_at

    def _failed_so_far(self) -> failing.FirstFailure | None:
        """Return the first failure of the ranks that is known before the launcher reports how they ended."""
        gone = [p for p in self.registry.process_of_rank.values() if p.left or p.dead] if self.blames_the_gone else []
        failures = self.failures_of(self.registry.attempt)
        failure = failing.first_failure(
            (), failures, {}, gone=self.silently_ended(gone), world_size=self.registry.world_size
        )
        return self._of_attempts(failure)

    def _of_attempts(self, failure: failing.FirstFailure | None) -> failing.FirstFailure | None:
        return failure if self.step else failing.first_of_attempts(failure, self.earlier_attempts())

    def _first_failure(self, run_state: str) -> failing.FirstFailure | None:
        """Return the first failure of a run that has ended."""
        ending, failures = self.ending, self.failures_of(self.registry.attempt)
        gone = self.registry.process_of_rank.values() if run_state == "failed" else ()
        if self.run.world_size and not ending.rows:
            # torchrun prints a table of ranks that failed. Without the table, torchrun itself ended the ranks.
            failures, gone = [failure for failure in failures if not is_consequence(failure)], ()
        failure = failing.first_failure(
            ending.rows,
            failures,
            ending.last_lines or {},
            self.run.memory_kills,
            ending.common_line,
            self.silently_ended(gone),
            self.registry.world_size,
            [] if self.step or not self.run.world_size else self.run.script_args,
        )
        return self._of_attempts(failure)

    @property
    def blames_the_gone(self) -> bool:
        """Return whether a rank that ended without Bye or exception counts as failed while the launcher is alive.

        Some launchers kill ranks that have finished training. So such a rank counts as failed only if another rank
        still needs it or has failed. Otherwise, the launcher's exit code decides later.
        """
        harmed = needs_peers(self.registry) or bool(self.failures_of(self.registry.attempt))
        return harmed and self.run.state() not in {"done", "unknown"}

    def _verdict(self, now: float, unix: float) -> Verdict:
        by_rank = self.registry.process_of_rank
        if self.state in END_STATES:
            facts = self.run.took_s, self._why_failed(), self.waiting, self._replays
            return verdict.ended_sentence(self.state, self.findings, self.step, *facts)
        if self.state == "stopping":
            return self._stopping(unix)
        lasting = [finding for finding in self.findings if finding.is_lasting]
        failed = next((finding for finding in lasting if finding.explains == "failed"), None)
        if failed:
            return verdict.of_finding(failed)
        if self.state == "waiting":
            return verdict.waiting_sentence(self.waiting)
        stall = next((finding for finding in lasting if finding.explains == "stalled"), None)
        if self.state == "stalled" and stall:
            return verdict.of_finding(stall)
        if self.state == "stalled":
            return verdict.stalled_sentence(
                now - (self._last_step_at or now),
                {rank: p.steps for rank, p in by_rank.items() if not p.left},
                {rank: OWN_PHASES[p.phase] for rank, p in by_rank.items() if not p.left},
                self.registry.world_size,
            )
        if self._replays:
            return verdict.replayed(now - (self._last_step_at or now))
        runs = verdict.running_sentence(self.findings, self.summary)
        if self.world and not self.registry.covers_all(self.world.ranks) and not runs.findings:
            runs = verdict.unheard_sentence(self.registry.unheard_ranks, self.registry.world_size)
        if self.unwritable and runs.severity == "info":
            runs = verdict.unwritable(self.unwritable)
        pausing = self.pausing(now)
        if pausing is None or runs.severity == "critical":
            return runs
        return verdict.pausing_sentence(pausing, self.registry.world_size, runs)

    def _stopping(self, unix: float) -> Verdict:
        processes = self.registry.process_of_rank.values()
        ended = sum(process.left or process.dead for process in processes)
        left_s = max(0.0, (self.run.kill_at or unix) - unix)
        killed = self.run.launcher if self.run.stopping_at is None else ""
        return verdict.stopping_sentence(ended, self.registry.world_size, left_s, killed)

    def _why_failed(self) -> tuple[str, str]:
        """Return the part of the verdict that names the failed rank or command, and the whole sentence."""
        run, first, size = self.run, self.first_failure, self.registry.world_size
        if run.error:
            return "", utf8(run.error)
        if first:
            return failing.who_failed_first(first, size), failing.sentence(first, size)
        return (
            failing.how_command_ended(run.launcher, run.exit_code, run.memory_kills),
            failing.of_command(run.launcher, run.exit_code, self.ending.launcher_line, run.memory_kills),
        )

    def _begin_attempt(self) -> None:
        """Discard the findings and verdict of the previous attempt, without announcing the end of these findings."""
        super()._begin_attempt()
        self.findings, self._judged = [], None
        self.state, self.verdict, self.verdict_since = "waiting", verdict.waiting_sentence(self.waiting), None
        self.ledger.begin_attempt(self.registry.attempt)
        self.__dict__.pop("_announcer", None)

    def _add_state_event(self, before: str, unix: float, announcements: Sequence[Finding]) -> None:
        """Add an event about a change of the state, unless the verdict's findings were just announced."""
        current = self.verdict
        if self.state == "stopping":
            self.add_event(unix, current.severity, current.text)
        elif self.state == "stalled" or self.state in END_STATES:
            if current.topic or not any(finding in announcements for finding in current.findings):
                self.add_event(unix, current.severity, current.text)
        elif before == "waiting":
            after_s = unix - self.run.created_at
            after = f" {duration(after_s)} after the attach" if self.run.attached else f" after {duration(after_s)}"
            self.add_event(unix, "info", f"first step{after if after_s >= 0 else ''}")
        elif before == "stalled":
            self.add_event(unix, "info", "steps go on" if self.state != "waiting" else "the ranks have started")

    def _idle_s(self, now: float) -> float:
        """Return the seconds since a rank last finished a step or gave a sign of life.

        If the run has ended, return the seconds from its last step to its end.
        """
        if self.run.ended_at is not None and self.world is not None:
            return self.run.ended_at - self.clock.unix_at(int(self.world.end_us[-1]))
        if self._last_step_at is None:
            return 0.0
        beats = (process.beat_at for process in self.registry.process_of_rank.values())
        return now - max(self._last_step_at, 0.0, *beats)
