"""Chooses the moment that is shown: the newest snapshot, one that is held or earlier, or a recording that plays."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import replace

from ddpmon.messages import Snapshot
from ddpmon.source import Source, TapePosition

HISTORY_SNAPSHOTS = 240
"""Snapshots of a small world that are kept to step back to: two minutes."""
HISTORY_RANKS = 8192
"""Ranks in all kept snapshots together, so that a large world's take no more memory."""
MIN_HISTORY_SNAPSHOTS = 4


class Playback:
    """Position in a source. A recording moves by itself; for a live run the last snapshots are kept."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.newest: Snapshot | None = None
        self.held: Snapshot | None = None
        """Snapshot that is shown instead of the newest."""
        self._history: deque[Snapshot] = deque(maxlen=HISTORY_SNAPSHOTS)

    def take_snapshot(self) -> None:
        """Take the newest snapshot from the source."""
        newest = self.newest = self.source.snapshot()
        if newest is None or self.source.tape is not None or (self._history and self._history[-1] is newest):
            return
        last = self._history[-1] if self._history else None
        if last is not None and last is not self.held and (last.epoch, last.version) == (newest.epoch, newest.version):
            self._history[-1] = newest  # the same moment, with what another screen wished for
            return
        self._history.append(newest)
        most = max(MIN_HISTORY_SNAPSHOTS, HISTORY_RANKS // max(1, newest.run.world_size))
        while len(self._history) > most:
            self._history.popleft()

    def switch_source(self, source: Source) -> None:
        """Show another source from now on."""
        self.source, self.held = source, None
        self._history.clear()
        self.take_snapshot()

    @property
    def news(self) -> bool:
        """Return whether the source has another snapshot than the one taken last."""
        return self.source.snapshot() is not self.newest

    @property
    def plays(self) -> bool:
        """Return whether the source is a recording, which moves by itself once a key has asked it to."""
        return self.source.tape is not None

    @property
    def shown(self) -> Snapshot | None:
        """The snapshot that is shown."""
        return self.held or self.newest

    @property
    def behind_s(self) -> float | None:
        """Return how much older the shown snapshot is than the newest; None: it is not held."""
        if self.held is None or self.newest is None:
            return None
        return max(0.0, float(round(self.newest.at - self.held.at)))

    @property
    def cursor(self) -> TapePosition | None:
        """Return where a recording plays, in whole seconds."""
        if self.source.tape is None:
            return None
        cursor = self.source.tape.cursor
        return replace(cursor, at_s=float(int(cursor.at_s)))

    def freeze(self) -> None:
        """Hold still, or go on."""
        if self.source.tape is not None:
            self.source.tape.toggle()
        else:
            self.held = self.newest if self.held is None else None

    def skip(self, by: int) -> None:
        """A piece of a recording, or a snapshot of a live run, back or on."""
        if self.source.tape is not None:
            self.source.tape.skip(by)
        elif self.shown is not None:
            place = next((i for i, snapshot in enumerate(self._history) if snapshot is self.shown), 0 if by < 0 else -1)
            self.held = self._history[max(0, min(place + by, len(self._history) - 1))]

    def jump(self, by: int) -> str:
        """To the event before or after what is shown; returns why not, or "" if so."""
        if self.source.tape is not None:
            self.source.tape.jump(by)
        elif self.shown is not None and self._history:
            return self._hold_at_event(self.shown, by)
        return ""

    def _hold_at_event(self, shown: Snapshot, by: int) -> str:
        """Hold what was shown first of the event before or after what is shown."""
        times = [snapshot.at for snapshot in self._history]
        current = bisect_left(times, shown.at)
        first_shown = {bisect_left(times, event.at) for event in self._history[-1].events if event.at > times[0]}
        candidates = [place for place in first_shown if (place - current) * by > 0 and place < len(times)]
        if not candidates:
            earlier = f"there is no earlier event in the {times[-1] - times[0]:.0f} s in memory"
            return earlier if by < 0 else "there is no later event yet"
        self.held = self._history[min(candidates, key=lambda place: abs(place - current))]
        return ""

    def one_step(self, by: int) -> None:
        """The step of a recording before or after, and pause."""
        if self.source.tape is not None:
            self.source.tape.step(by)

    def faster(self, by: int) -> None:
        """A recording twice or half as fast."""
        if self.source.tape is not None:
            self.source.tape.faster(by)
