"""Feeds a store from a recording as a live hub would: only with records that the ranks had sent by a given moment."""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections import deque

from ddpmon.analysis.processes.waiting import Waiting
from ddpmon.errors import RecordingError
from ddpmon.messages import MAX_STEP, STAGE_CONNECTED, STAGE_ENDED, STAGE_TRAINING, Step
from ddpmon.recording.recording import Recording
from ddpmon.runs import Run
from ddpmon.store.intake import WINDOW_STEPS
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store

PLAYBACK_DIGESTS = 10_000
DIGESTS_BEFORE = 100
"""Number of a rank's digests that are read from the time before the target of a jump."""
SAMPLED_US = 75_000_000
"""Time before the target of a jump from which samples are read, in microseconds. It exceeds a minute, because merged
samples are a minute apart."""
NOTICE_END_S = 1.5
"""Seconds that a hub needs to notice that a process has ended."""


class Track:
    """All records of one process, in order. Times are on the recording's clock, but times in steps are on the clock of
    the process's host.
    """

    def __init__(self, recording: Recording, at_end: RankProcess, span_us: tuple[int, int], read_steps: int) -> None:
        """Set the position before the first record.

        Args:
            recording: The recording.
            at_end: The process as it was at the end of the recording.
            span_us: Moments of the process's first and last record, on its host's clock.
            read_steps: Number of steps to read at a time.

        """
        self.at_end = at_end
        """The process as it was at the end of the recording."""
        self.behind_us = at_end.clock_behind_us or 0
        """Microseconds by which the clock of the process's host is behind the recording's clock."""
        self.begins_us, self.ends_us = (at_us + self.behind_us for at_us in span_us)
        self._recording = recording
        self._read_steps = read_steps
        self._ahead: deque[Step] = deque()
        self._next = 1
        self._sampled_us = -1
        self._digests = recording.digests(at_end.id, PLAYBACK_DIGESTS)
        self._digested = 0

    def first_step_after(self, at_us: int) -> int:
        """Return the number of the first step of the process that ends after a moment, or the last step + 1 if none
        does.
        """
        return self._recording.steps.first_step_after(self.at_end.id, at_us - self.behind_us, self.at_end.last_step)

    def first_end_us(self) -> int | None:
        """Return when the process's first step ended, or None if the process has no step."""
        end_us = self._recording.steps.first_end_us(self.at_end.id)
        return None if end_us is None else end_us + self.behind_us

    def end_us(self, step: int) -> int | None:
        """Return when a step of the process ended, or None if the step is not recorded."""
        steps = self._recording.steps.steps(self.at_end.id, step, step + 1)
        return steps[0].end_us + self.behind_us if steps else None

    def jump_to(self, after_us: int, now_us: int) -> RankProcess:
        """Jump to a moment, and return the process as it was at that moment.

        Args:
            after_us: Moment from which on steps are read.
            now_us: The target moment. Samples are read from SAMPLED_US before it on.

        """
        self._next = self.first_step_after(after_us)
        self._ahead.clear()
        self._sampled_us = now_us - self.behind_us - SAMPLED_US
        at_end = self.at_end
        before = self._next - 1
        passed = bisect.bisect_right(self._digests, before, key=lambda digest: digest.step)
        self._digested = max(0, passed - DIGESTS_BEFORE)
        return RankProcess(
            at_end.id, at_end.attempt, at_end.hello, stage=STAGE_CONNECTED, layouts=at_end.layouts, steps=before,
            last_step=before, records=before, total_steps=at_end.total_steps, heard_at=-math.inf,
            later_us=at_end.later_us,
        )  # fmt: skip

    def next_steps(self, until_us: int, most: int) -> list[Step]:
        """Return the next steps that had ended at a moment, at most `most` of them."""
        steps: list[Step] = []
        while len(steps) < most:
            if not self._ahead:
                self._ahead.extend(self._recording.steps.steps(self.at_end.id, self._next, most=self._read_steps))
                if not self._ahead:
                    break
                self._next = self._ahead[-1].step + 1
            if self._ahead[0].end_us + self.behind_us > until_us:
                break
            steps.append(self._ahead.popleft())
        return steps

    def update(self, store: Store, process: RankProcess, now_us: int) -> None:
        """Set a process's samples, digests, stack and exit to those of a moment. `next_steps` returns the process's
        steps.
        """
        at_end = self.at_end
        fresh = self._recording.samples(at_end.id, self._sampled_us, now_us - self.behind_us)
        process.samples.extend(fresh)
        store.add_samples(process, fresh)
        if fresh:
            self._sampled_us = fresh[-1].time_us
            process.heard_at = max(process.heard_at, store.clock.unix_at(self._sampled_us + self.behind_us))
        if process.last_step:
            process.stage = STAGE_TRAINING
        passed = bisect.bisect_right(self._digests, process.last_step, key=lambda digest: digest.step)
        store.add_digests(process, self._digests[self._digested : passed])
        self._digested = passed
        if process.steps >= at_end.unsynchronised_at:
            process.unsynchronised, process.unsynchronised_at = at_end.unsynchronised, at_end.unsynchronised_at
        if at_end.stack and at_end.stack.time_us <= now_us:
            process.stack, process.stack_at = at_end.stack, store.clock.unix_at(at_end.stack.time_us)
        if now_us > self.ends_us and at_end.left:
            process.left, process.stage = True, STAGE_ENDED
        process.dead = at_end.dead and now_us > self.ends_us + NOTICE_END_S * 1e6
        process.ended_us = at_end.ended_us if process.left or process.dead else None


TICK_S = 0.5
"""Interval in seconds at which a live hub analyses the run."""
LEAD_RECORDS = 24_000
"""Largest number of step records before the target of a jump that are read, which takes a fraction of a second."""
FEED_STEPS = 1000
"""Number of a rank's steps that are fed to the store at a time, so that few steps wait for those of other ranks."""
READ_STEPS = 500
"""Largest number of a rank's steps that are read at a time."""
READ_RECORDS = 32_768
"""Number of steps that are read ahead, over all ranks."""


class _AsItRan(Run):
    """A run that has ended but is presented as still running, to replay a moment before its end."""

    def state(self) -> str:
        return "running"


class Playback:
    """The records of all processes of a recording, in order. Times are Unix seconds."""

    def __init__(self, recording: Recording) -> None:
        """Set the position before the first record, or raise RecordingError if no step is recorded."""
        run, clock = recording.run, recording.clock
        self._recording, self._clock = recording, clock
        processes = [process for process in recording.processes() if process.attempt >= 0]
        read_steps = max(4, min(READ_STEPS, READ_RECORDS // max(1, len(processes))))
        self.tracks = [
            Track(recording, process, span, read_steps)
            for process in processes
            if (span := recording.steps.span_us(process.id))
        ]
        firsts = [end for track in self.tracks if (end := track.first_end_us()) is not None]
        if not firsts:
            nothing = f"{recording.path} contains no step of {run.name}, so there is nothing to replay"
            raise RecordingError(f"{nothing}; `ddpmon report {run.id}` says how far it came")
        last = clock.unix_at(max(track.ends_us for track in self.tracks))
        self.begin = min(run.created_at, clock.unix_at(min(track.begins_us for track in self.tracks)))
        self.end = max(last, run.ended_at or last)
        self.first_step = clock.unix_at(min(firsts))
        """Moment at which the first step ended."""
        self._failures = recording.failures()
        values = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
        self.run = _AsItRan(**values | {"ended_at": None, "exit_code": None, "error": None, "stopping": False})

    def us_at(self, unix: float) -> int:
        """Convert a moment to the recording's clock, in microseconds."""
        return round((unix - self._clock.unix) * 1e6) + self._clock.monotonic_us

    def first_moment(self, track: Track) -> float:
        """Return the moment of a process's first record."""
        return self._clock.unix_at(track.begins_us)

    def feed_from(self, unix: float) -> float:
        """Return the moment from which on steps must be fed to the store, to show the run at the moment `unix`.

        From there to `unix` there is a window of steps, or as many steps as LEAD_RECORDS allows if that is more.
        """
        begun = [track for track in self.tracks if self.first_moment(track) <= unix and track.at_end.last_step]
        if not begun:
            return self.begin
        track = max(begun, key=lambda each: each.at_end.attempt)
        number = track.first_step_after(self.us_at(unix))
        end_us = track.end_us(number - max(WINDOW_STEPS, LEAD_RECORDS // len(self.tracks)))
        return self.first_moment(track) if end_us is None else self._clock.unix_at(end_us)

    def store_between(self, at: float, since: float) -> Store:
        """Return a store with the ranks' steps from the moment `since` to the moment `at`, without histories."""
        registry = Registry(self.run.id, self.run.world_size, self.run.host)
        self._seat(registry, at, self.us_at(since))
        store = Store(self.run, registry, self._clock, live=True)
        store.silences = self._recording.silences()
        store.history_step = MAX_STEP  # The restored histories already include these steps.
        self._feed(store, self.us_at(at))
        store.history_step = store.step
        return store

    def advance(self, store: Store, now: float, to: float) -> float:
        """Feed a store the records from the moment `now` to the moment `to`, and return the moment that was reached.

        The reached moment is earlier than `to` if another process begins before `to`.
        """
        starts = [begins for track in self.tracks if now < (begins := self.first_moment(track)) < to]
        to = min(starts, default=to)  # An attempt ends where the next one begins.
        self._seat(store.registry, to, -1)
        self._feed(store, self.us_at(to))
        store.failures = [f for f in self._failures if store.clock.unix_at(f.time_us) <= to]
        stages = {rank: process.stage for rank, process in store.registry.process_of_rank.items()}
        store.waiting = Waiting(
            store.registry.world_size, launcher=True, attached=len(store.run.attached), stages=stages
        )
        return to

    def _seat(self, registry: Registry, at: float, since_us: int) -> None:
        """Assign the processes that had begun before a moment to their ranks.

        Args:
            registry: The registry to fill.
            at: The moment.
            since_us: Moment from which on steps of new processes are read, by the recording's clock.

        """
        begun = [track for track in self.tracks if self.first_moment(track) <= at]
        attempt = max((track.at_end.attempt for track in begun), default=0)
        if attempt != registry.attempt:
            registry.attempt, registry.process_of_rank = attempt, {}
        for track in begun:
            at_end = track.at_end
            if at_end.attempt == attempt and at_end.rank not in registry.process_of_rank:
                process = track.jump_to(since_us, self.us_at(at))
                registry.world_size = at_end.hello.world_size
                registry.process_of_rank[at_end.rank] = registry.processes[process.key] = process

    def _feed(self, store: Store, until_us: int) -> None:
        """Feed a store the records that its ranks had sent up to a moment, a few steps of each rank in turn."""
        by_rank = store.registry.process_of_rank
        pairs = [(track, by_rank[track.at_end.rank]) for track in self.tracks if _has_rank(track, by_rank)]
        more = True
        while more:
            more = False
            for track, process in pairs:
                steps = track.next_steps(until_us, FEED_STEPS)
                if steps:
                    more = True
                    process.steps = steps[-1].step
                    process.heard_at = store.clock.unix_at(steps[-1].end_us + track.behind_us)
                    store.add_steps(process, process.count_new_steps(steps), process.heard_at)
            store.add_arrived()
        for track, process in pairs:
            track.update(store, process, until_us)


def _has_rank(track: Track, by_rank: dict[int, RankProcess]) -> bool:
    process = by_rank.get(track.at_end.rank)
    return process is not None and process.id == track.at_end.id
