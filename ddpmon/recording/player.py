"""Plays a recording: what the dashboard showed at any moment of a run, through the very store that a live hub feeds."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddpmon.analysis.evidence import BadLoss
from ddpmon.analysis.verdict import Waiting
from ddpmon.errors import RecordingError
from ddpmon.messages import (
    MAX_STEP,
    Event,
    Finding,
    Snapshot,
    Wish,
)
from ddpmon.recording.checked import UNREADABLE
from ddpmon.recording.merged import Merged
from ddpmon.recording.recording import Recording
from ddpmon.recording.restoring import judged_store
from ddpmon.recording.track import Track
from ddpmon.runs import Run
from ddpmon.store.intake import EVENTS, WINDOW_STEPS
from ddpmon.store.parts import with_parts
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store
from ddpmon.store.view import snapshot

TICK_S = 0.5
"""How often findings are judged, as in a live hub."""
TICKS_MOST = 100
"""Ticks in one move: over a longer stretch findings are judged less often."""
LEAD_RECORDS = 24_000
"""Records that are read before the moment that is jumped to, at most: a fraction of a second."""
MARK_S = 5.0
"""Between two marks, from which playing can go on, at least."""
MARKS_MOST = 2000
FEED_STEPS = 1000
"""Steps of a rank that are fed at a time, so that few wait for the other ranks'."""
READ_STEPS = 500
"""Steps of a rank that are read at a time."""
READ_RECORDS = 32_768
"""Steps of all ranks that are read ahead."""
EPOCH = "replay"
NO_WISH = Wish()


class _AsItRan(Run):
    """A run that has ended, seen from before its end."""

    def state(self) -> str:
        return "running"


@dataclass(frozen=True)
class _Mark:
    """A mark: the parts of a store that follow from the past alone, so that playing can begin here."""

    at: float
    findings: list[Finding]
    state: str
    verdict_since: float | None
    bad_losses: dict[int, BadLoss]


class Player:
    """A recording and a place in it. Times are Unix seconds; no clock of its own.

    Going forward plays what lies between. Going back, or far ahead, starts from a mark that was set in passing, or a
    few thousand records before the place: findings then seem to begin there.
    """

    def __init__(self, run: Run) -> None:
        """Open a run's recording; RecordingError says what is wrong with it, or that there is nothing in it."""
        self._recording = Recording(run)
        self._merged = Merged(self._recording)
        try:
            with self._readable():
                self._open(run)
        except BaseException:
            self.close()
            raise

    def _open(self, run: Run) -> None:
        recording = self._recording
        processes = [process for process in recording.processes() if process.attempt >= 0]
        read_steps = max(4, min(READ_STEPS, READ_RECORDS // max(1, len(processes))))
        self._tracks = [
            Track(recording, self._merged, process, span, read_steps)
            for process in processes
            if (span := self._merged.span_us(process.id))
        ]
        firsts = [end for track in self._tracks if (end := track.first_end_us()) is not None]
        if not firsts:
            raise RecordingError(f"{recording.path} holds no step of {run.name}: there is nothing to replay")
        clock = recording.clock
        last = clock.unix_at(max(track.ends_us for track in self._tracks))
        self.begin = min(run.created_at, clock.unix_at(min(track.begins_us for track in self._tracks)))
        self.end = max(last, run.ended_at or last)
        self._failures = recording.failures()
        self._silences = recording.silences
        self.events = recording.events(1 << 20)
        """All that happened to the run, in its order."""
        self.first_step = clock.unix_at(min(firsts))
        """When the first step ended."""
        values = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
        before = {"ended_at": None, "exit_code": None, "error": None, "stopping": False}
        self._run = _AsItRan(**values | before)
        self._last = judged_store(recording, lambda _: self.end)
        self._final = snapshot(self._last, EPOCH, 1, self.end, self.end)
        self._marks: list[_Mark] = []
        self._mark_s = max(MARK_S, (self.end - self.begin) / MARKS_MOST)
        self._store: Store | None = None
        self._now = self.begin
        self._version = 1

    def close(self) -> None:
        self._recording.close()

    def at(self, unix: float, wish: Wish = NO_WISH) -> Snapshot:
        """The snapshot of a moment; at the end of the run, the last one. RecordingError if the recording is damaged."""
        if unix >= self.end:
            return with_parts(self._final, self._last, wish)
        with self._readable():
            store = self._play_to(max(unix, self.begin))
        store.events = deque(self._events_until(self._now), maxlen=EVENTS)
        store.events.extend(self._how_exactly(store))
        store.histories.logged_of(self._last.histories, self._now - self._run.created_at)
        self._version += 1
        return with_parts(snapshot(store, EPOCH, self._version, self._now, self._now), store, wish)

    def step_from(self, unix: float, by: int) -> float:
        """When the next step ends, or the step before the last one that has ended (by: 1 or -1)."""
        track = max(self._tracks, key=lambda each: (self._begins(each) <= unix, each.at_end.attempt, -each.at_end.rank))
        now_us = self._us(unix)
        with self._readable():
            number = track.first_step_after(now_us)
            end_us = track.end_us(max(1, number if by > 0 else number - 2))
        if end_us is None:
            return self.end if by > 0 else self.begin
        return self._recording.clock.unix_at(end_us + 1)

    def event_from(self, unix: float, by: int) -> float:
        """When the next thing happened after a moment, or the last before it (by: 1 or -1)."""
        times = sorted({event.at for event in self.events if self.begin <= event.at < self.end})
        if by > 0:
            place = bisect.bisect_right(times, unix)
            return times[place] if place < len(times) else self.end
        place = bisect.bisect_left(times, unix)
        return times[place - 1] if place else self.begin

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        """Turns errors over impossible values into a RecordingError of one line."""
        try:
            yield
        except UNREADABLE as error:
            raise RecordingError(f"{self._recording.path} cannot be read: {error}") from None

    def _us(self, unix: float) -> int:
        clock = self._recording.clock
        return round((unix - clock.unix) * 1e6) + clock.monotonic_us

    def _begins(self, track: Track) -> float:
        return self._recording.clock.unix_at(track.begins_us)

    def _events_until(self, unix: float) -> Sequence[Event]:
        return self.events[: bisect.bisect_right(self.events, unix, key=lambda event: event.at)]

    def _how_exactly(self, store: Store) -> list[Event]:
        """A note where the steps of this moment were merged to means; none where they were not."""
        first = min(store.registry.seats.values(), key=lambda process: process.rank, default=None)
        tier = self._merged.tier_at(first.id, first.last_step) if first else ""
        if not tier:
            return []
        sentence = f"steps of this moment are kept as means of {tier}: none can be told from its neighbours"
        return [Event(self._now, "info", sentence)]

    def _play_to(self, to: float) -> Store:
        reach = max(self._lead(to), self.begin)
        store = self._store
        if store is None or not reach <= self._now <= to:
            store = self._restart(reach, to)
        spacing = max(TICK_S, (to - self._now) / TICKS_MOST)
        while self._now < to:
            self._tick(store, min(self._now + spacing, to))
        return store

    def _lead(self, unix: float) -> float:
        """How far back playing starts for a moment: at least a window of steps, at most LEAD_RECORDS."""
        begun = [track for track in self._tracks if self._begins(track) <= unix and track.at_end.last_step]
        if not begun:
            return self.begin
        track = max(begun, key=lambda each: each.at_end.attempt)
        number = track.first_step_after(self._us(unix))
        end_us = track.end_us(number - max(WINDOW_STEPS, LEAD_RECORDS // len(self._tracks)))
        return self._begins(track) if end_us is None else self._recording.clock.unix_at(end_us)

    def _restart(self, reach: float, to: float) -> Store:
        """A store as it was at the last mark before a moment, or an empty one at `reach` where there is none since."""
        place = bisect.bisect_right(self._marks, to, key=lambda mark: mark.at)
        mark = self._marks[place - 1] if place and self._marks[place - 1].at > reach else None
        at = mark.at if mark else reach
        source = self._last if self._store is None or self._now < at else self._store
        registry = Registry(self._run.id, self._run.world_size, self._run.host)
        self._seat(registry, at, self._us(self._lead(at) if mark else at))
        store = Store(self._run, registry, self._recording.clock, live=True)
        store.silences = self._silences()
        self._store, self._now = store, at
        store.history_step = MAX_STEP  # what the window holds is in the histories already
        self._feed(store, self._us(at))
        store.history_step = store.step
        seconds = at - self._run.created_at
        store.histories = source.histories.until(seconds)
        if mark:
            store.findings, store.state, store.verdict_since = mark.findings, mark.state, mark.verdict_since
            store.bad_losses = dict(mark.bad_losses)
        return store

    def _tick(self, store: Store, to: float) -> None:
        starts = [begins for track in self._tracks if self._now < (begins := self._begins(track)) < to]
        to = min(starts, default=to)  # an attempt ends where the next one begins
        self._now = to
        self._seat(store.registry, to, -1)
        self._feed(store, self._us(to))
        store.failures = [f for f in self._failures if store.clock.unix_at(f.time_us) <= to]
        stages = {rank: process.stage for rank, process in store.registry.seats.items()}
        store.waiting = Waiting(store.registry.world_size, launcher=True, stages=stages)
        store.judge(to, to)
        store.new_events.clear()  # the recording has its own events
        place = bisect.bisect_right(self._marks, to, key=lambda mark: mark.at)
        if not place or to - self._marks[place - 1].at >= self._mark_s:
            mark = _Mark(to, store.findings, store.state, store.verdict_since, dict(store.bad_losses))
            self._marks.insert(place, mark)

    def _seat(self, registry: Registry, at: float, since_us: int) -> None:
        """Seat the processes that had begun by a moment. since_us: from when on steps of new ones are read."""
        begun = [track for track in self._tracks if self._begins(track) <= at]
        attempt = max((track.at_end.attempt for track in begun), default=0)
        if attempt != registry.attempt:
            registry.attempt, registry.seats = attempt, {}
        for track in begun:
            at_end = track.at_end
            if at_end.attempt == attempt and at_end.rank not in registry.seats:
                process = track.begin(since_us, self._us(at))
                registry.world_size = at_end.hello.world_size
                registry.seats[at_end.rank] = registry.everyone[process.key] = process

    def _feed(self, store: Store, until_us: int) -> None:
        """Feed the store what its ranks had sent by a moment, all of them side by side."""
        seats = store.registry.seats
        pairs = [(track, seats[track.at_end.rank]) for track in self._tracks if _sits(track, seats)]
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
