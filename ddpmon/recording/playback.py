"""Feeds a recording to a store as a live hub feeds its own: what ranks had sent by a moment, and no more."""

from __future__ import annotations

import dataclasses

from ddpmon.analysis.verdict import Waiting
from ddpmon.errors import RecordingError
from ddpmon.messages import MAX_STEP
from ddpmon.recording.merged import Merged
from ddpmon.recording.recording import Recording
from ddpmon.recording.track import Track
from ddpmon.runs import Run
from ddpmon.store.intake import WINDOW_STEPS
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store

TICK_S = 0.5
"""Interval at which a live hub judges."""
LEAD_RECORDS = 24_000
"""Records that are read before the moment that is jumped to, at most: a fraction of a second."""
FEED_STEPS = 1000
"""Steps of a rank that are fed at a time, so that few wait for the other ranks'."""
READ_STEPS = 500
"""Steps of a rank that are read at a time."""
READ_RECORDS = 32_768
"""Steps of all ranks that are read ahead."""


class _AsItRan(Run):
    """A run that has ended, seen from before its end."""

    def state(self) -> str:
        return "running"


class Playback:
    """Everything that each process of a recording sent, in its order. Times are Unix seconds."""

    def __init__(self, recording: Recording, merged: Merged) -> None:
        """RecordingError if no step is recorded."""
        run, clock = recording.run, recording.clock
        self._recording, self._clock = recording, clock
        processes = [process for process in recording.processes() if process.attempt >= 0]
        read_steps = max(4, min(READ_STEPS, READ_RECORDS // max(1, len(processes))))
        self.tracks = [
            Track(recording, merged, process, span, read_steps)
            for process in processes
            if (span := merged.span_us(process.id))
        ]
        firsts = [end for track in self.tracks if (end := track.first_end_us()) is not None]
        if not firsts:
            raise RecordingError(f"{recording.path} contains no step of {run.name}, so there is nothing to replay")
        last = clock.unix_at(max(track.ends_us for track in self.tracks))
        self.begin = min(run.created_at, clock.unix_at(min(track.begins_us for track in self.tracks)))
        self.end = max(last, run.ended_at or last)
        self.first_step = clock.unix_at(min(firsts))
        """Moment at which the first step ended."""
        self._failures = recording.failures()
        values = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
        self.run = _AsItRan(**values | {"ended_at": None, "exit_code": None, "error": None, "stopping": False})

    def us_at(self, unix: float) -> int:
        """A moment by the recording's clock, in microseconds."""
        return round((unix - self._clock.unix) * 1e6) + self._clock.monotonic_us

    def begins(self, track: Track) -> float:
        """Return when a process was first heard of."""
        return self._clock.unix_at(track.begins_us)

    def lead(self, unix: float) -> float:
        """Return from when on steps are fed for a moment: at least a window of steps, at most LEAD_RECORDS."""
        begun = [track for track in self.tracks if self.begins(track) <= unix and track.at_end.last_step]
        if not begun:
            return self.begin
        track = max(begun, key=lambda each: each.at_end.attempt)
        number = track.first_step_after(self.us_at(unix))
        end_us = track.end_us(number - max(WINDOW_STEPS, LEAD_RECORDS // len(self.tracks)))
        return self.begins(track) if end_us is None else self._clock.unix_at(end_us)

    def store(self, at: float, since: float) -> Store:
        """A store with the steps of its ranks from one moment to another, and no histories."""
        registry = Registry(self.run.id, self.run.world_size, self.run.host)
        self._seat(registry, at, self.us_at(since))
        store = Store(self.run, registry, self._clock, live=True)
        store.silences = self._recording.silences()
        store.history_step = MAX_STEP  # what the window holds is in the histories already
        self._feed(store, self.us_at(at))
        store.history_step = store.step
        return store

    def advance(self, store: Store, now: float, to: float) -> float:
        """Feed what was sent after one moment and up to another; returns up to when: an attempt ends what it feeds."""
        starts = [begins for track in self.tracks if now < (begins := self.begins(track)) < to]
        to = min(starts, default=to)  # an attempt ends where the next one begins
        self._seat(store.registry, to, -1)
        self._feed(store, self.us_at(to))
        store.failures = [f for f in self._failures if store.clock.unix_at(f.time_us) <= to]
        stages = {rank: process.stage for rank, process in store.registry.seats.items()}
        store.waiting = Waiting(
            store.registry.world_size, launcher=True, attached=len(store.run.attached), stages=stages
        )
        return to

    def _seat(self, registry: Registry, at: float, since_us: int) -> None:
        """Seat the processes that had begun by a moment. since_us: from when on steps of new ones are read."""
        begun = [track for track in self.tracks if self.begins(track) <= at]
        attempt = max((track.at_end.attempt for track in begun), default=0)
        if attempt != registry.attempt:
            registry.attempt, registry.seats = attempt, {}
        for track in begun:
            at_end = track.at_end
            if at_end.attempt == attempt and at_end.rank not in registry.seats:
                process = track.begin(since_us, self.us_at(at))
                registry.world_size = at_end.hello.world_size
                registry.seats[at_end.rank] = registry.everyone[process.key] = process

    def _feed(self, store: Store, until_us: int) -> None:
        """Feed the store what its ranks had sent by a moment, all of them side by side."""
        seats = store.registry.seats
        pairs = [(track, seats[track.at_end.rank]) for track in self.tracks if _sits(track, seats)]
        more = True
        while more:
            more = False
            for track, process in pairs:
                steps = track.take(until_us, FEED_STEPS)
                if steps:
                    more = True
                    process.steps = steps[-1].step
                    process.heard_at = store.clock.unix_at(steps[-1].end_us + track.behind_us)
                    store.add_steps(process, process.fresh(steps), process.heard_at)
            store.digest()
        for track, process in pairs:
            track.update(store, process, until_us)


def _sits(track: Track, seats: dict[int, RankProcess]) -> bool:
    process = seats.get(track.at_end.rank)
    return process is not None and process.id == track.at_end.id
