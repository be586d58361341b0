"""Replays a recording: makes the snapshot of any moment of a run, with the same store as a live hub."""

from __future__ import annotations

import bisect
import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddpmon.analysis.episodes import as_of
from ddpmon.errors import RecordingError
from ddpmon.messages import Event, Snapshot, ViewRequest
from ddpmon.recording.checked import UNREADABLE
from ddpmon.recording.playback import TICK_S, Playback
from ddpmon.recording.recording import Recording
from ddpmon.recording.restoring import judged_store, whole_heat
from ddpmon.runs import Run
from ddpmon.store.intake import EVENTS
from ddpmon.store.parts import with_parts
from ddpmon.store.store import Store
from ddpmon.store.view import snapshot

TICKS_MOST = 100
"""Largest number of times that the run's state is computed during one move. In a long move, the intervals between them
are longer."""
MARK_S = 5.0
"""Shortest interval in seconds between two marks, which are moments from which playing can continue."""
MARKS_MOST = 2000
REPLAY_EPOCH = "replay"
NO_REQUEST = ViewRequest()


@dataclass(frozen=True)
class _Mark:
    """The parts of a store that cannot be computed from its last steps. Playing can start at the moment of a mark."""

    at: float
    state: str
    verdict_since: float | None


class Player:
    """A recording and a position in it. Times are Unix seconds; the player has no clock of its own.

    The findings at a position are read from the recording. A move forward plays the records in between. A move back or
    far ahead starts from a mark that an earlier move set, or a few thousand records before the position.
    """

    def __init__(self, run: Run) -> None:
        """Open a run's recording, or raise a RecordingError that says what is wrong or that the recording is empty."""
        self._recording = Recording(run)
        try:
            with self._readable():
                self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self._playback = Playback(self._recording)
        self.begin, self.end = self._playback.begin, self._playback.end
        self.first_step = self._playback.first_step
        """Moment at which the first step ended."""
        self._run = self._playback.run
        self.events = self._recording.events(1 << 20)
        """All events of the run, in order."""
        self._last = judged_store(self._recording, lambda _: self.end)
        self._findings = self._last.ledger.episodes()
        self._final = snapshot(self._last, REPLAY_EPOCH, 1, self.end, self.end)
        self._has_whole_heat = False
        self._marks: list[_Mark] = []
        self._mark_s = max(MARK_S, (self.end - self.begin) / MARKS_MOST)
        self._store: Store | None = None
        self._now = self.begin
        self._version = 1

    def close(self) -> None:
        self._recording.close()

    def snapshot_at(self, unix: float, view_request: ViewRequest = NO_REQUEST) -> Snapshot:
        """Return the snapshot of a moment, with the requested parts. For moments after the run's end, return the last
        snapshot.

        Raises:
            RecordingError: the recording is damaged.

        """
        if unix >= self.end:
            if view_request.heat is not None and not self._has_whole_heat:
                self._has_whole_heat = True
                self._last.heat = whole_heat(self._recording)
            return with_parts(self._final, self._last, view_request)
        with self._readable():
            store = self._play_to(max(unix, self.begin))
        store.events = deque(self._events_until(self._now), maxlen=EVENTS)
        store.events.extend(self._how_exactly(store))
        store.histories.logged_of(self._last.histories, self._now - self._run.created_at)
        self._version += 1
        return with_parts(snapshot(store, REPLAY_EPOCH, self._version, self._now, self._now), store, view_request)

    def step_from(self, unix: float, by: int) -> float:
        """Return the moment at which the next step ends (`by` 1) or the step before the last one ended (`by` -1)."""
        begins = self._playback.first_moment
        track = max(
            self._playback.tracks, key=lambda each: (begins(each) <= unix, each.at_end.attempt, -each.at_end.rank)
        )
        with self._readable():
            number = track.first_step_after(self._playback.us_at(unix))
            end_us = track.end_us(max(1, number if by > 0 else number - 2))
        if end_us is None:
            return self.end if by > 0 else self.begin
        return self._recording.clock.unix_at(end_us + 1)

    def event_from(self, unix: float, by: int) -> float:
        """Return the moment of the next event after a moment (`by` 1) or of the last event before it (`by` -1)."""
        times = sorted({event.at for event in self.events if self.begin <= event.at < self.end})
        if by > 0:
            place = bisect.bisect_right(times, unix)
            return times[place] if place < len(times) else self.end
        place = bisect.bisect_left(times, unix)
        return times[place - 1] if place else self.begin

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        """Convert errors about impossible values to a RecordingError of one line."""
        try:
            yield
        except UNREADABLE as error:
            raise RecordingError(f"{self._recording.path} cannot be read: {error}") from None

    def _events_until(self, unix: float) -> Sequence[Event]:
        return self.events[: bisect.bisect_right(self.events, unix, key=lambda event: event.at)]

    def _how_exactly(self, store: Store) -> list[Event]:
        """Return an event which says that this moment's steps were merged into means, or [] if they were not merged."""
        first = min(store.registry.process_of_rank.values(), key=lambda process: process.rank, default=None)
        resolution = self._recording.steps.resolution_at(first.id, first.last_step) if first else ""
        if not resolution:
            return []
        sentence = f"the recording has only means over {resolution} for these steps, and no single steps"
        return [Event(self._now, "info", sentence)]

    def _play_to(self, to: float) -> Store:
        reach = max(self._playback.feed_from(to), self.begin)
        store = self._store
        if store is None or not reach <= self._now <= to:
            store = self._restart(reach, to)
        spacing = max(TICK_S, (to - self._now) / TICKS_MOST)
        while self._now < to:
            self._tick(store, min(self._now + spacing, to))
        return store

    def _restart(self, reach: float, to: float) -> Store:
        """Return the store as it was at the last mark between `reach` and `to`, or an empty store at `reach` without
        such a mark.
        """
        place = bisect.bisect_right(self._marks, to, key=lambda mark: mark.at)
        mark = self._marks[place - 1] if place and self._marks[place - 1].at > reach else None
        at = mark.at if mark else reach
        source = self._last if self._store is None or self._now < at else self._store
        self._store = store = self._playback.store_between(at, self._playback.feed_from(at) if mark else at)
        self._now = at
        store.histories = source.histories.as_of(at - self._run.created_at)
        if mark:
            store.state, store.verdict_since = mark.state, mark.verdict_since
        return store

    def _tick(self, store: Store, to: float) -> None:
        self._now = to = self._playback.advance(store, self._now, to)
        seconds = to - self._run.created_at
        store.restore_findings(as_of(self._findings, to, store.registry.attempt, store.step, seconds), to, to)
        place = bisect.bisect_right(self._marks, to, key=lambda mark: mark.at)
        if not place or to - self._marks[place - 1].at >= self._mark_s:
            self._marks.insert(place, _Mark(to, store.state, store.verdict_since))
