"""Chooses the snapshot that is shown: the newest, a held or earlier one, or one of a recording that plays."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import replace

from ddpmon.messages import Snapshot
from ddpmon.source import Source, TapePosition

HISTORY_SNAPSHOTS = 240
"""Largest number of past snapshots in memory, to which the user can go back: two minutes, or less if HISTORY_RANKS is
exceeded."""
HISTORY_RANKS = 8192
"""Largest number of ranks in all past snapshots together, so that a large world needs no more memory."""
MIN_HISTORY_SNAPSHOTS = 4


class Playback:
    """Position in a run's source. A recording moves on by itself; of a live run, the latest snapshots stay
    in memory.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.newest: Snapshot | None = None
        self.held: Snapshot | None = None
        """The snapshot that is shown instead of the newest; None if the newest is shown."""
        self._history: deque[Snapshot] = deque(maxlen=HISTORY_SNAPSHOTS)

    def take_snapshot(self) -> None:
        """Read the newest snapshot from the source."""
        newest = self.newest = self.source.snapshot()
        if newest is None or self.source.tape is not None or (self._history and self._history[-1] is newest):
            return
        last = self._history[-1] if self._history else None
        if last is not None and last is not self.held and (last.epoch, last.version) == (newest.epoch, newest.version):
            self._history[-1] = newest  # the same snapshot, completed with parts that another screen requested
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
    def has_new_snapshot(self) -> bool:
        """Return whether the source has a newer snapshot than the one that was read last."""
        return self.source.snapshot() is not self.newest

    @property
    def is_recording(self) -> bool:
        """Return whether the source is a recording. Its reader thread changes the position after a key."""
        return self.source.tape is not None

    @property
    def shown(self) -> Snapshot | None:
        """Return the snapshot that is shown."""
        return self.held or self.newest

    @property
    def behind_s(self) -> float | None:
        """Return how many seconds the shown snapshot is older than the newest; None if no snapshot is held."""
        if self.held is None or self.newest is None:
            return None
        return max(0.0, float(round(self.newest.at - self.held.at)))

    @property
    def cursor(self) -> TapePosition | None:
        """Return the position in a recording, rounded to seconds; None if no recording plays."""
        if self.source.tape is None:
            return None
        cursor = self.source.tape.cursor
        return replace(cursor, at_s=float(int(cursor.at_s)))

    def toggle_pause(self) -> None:
        """Pause or resume: toggle a recording, or hold the newest snapshot of a live run."""
        if self.source.tape is not None:
            self.source.tape.toggle()
        else:
            self.held = self.newest if self.held is None else None

    def skip(self, by: int) -> None:
        """Move back (-1) or forward (1) by a part of a recording or, in a live run, by one snapshot."""
        if self.source.tape is not None:
            self.source.tape.skip(by)
        elif self.shown is not None:
            place = next((i for i, snapshot in enumerate(self._history) if snapshot is self.shown), 0 if by < 0 else -1)
            self.held = self._history[max(0, min(place + by, len(self._history) - 1))]

    def jump(self, by: int) -> str:
        """Move to the previous (-1) or next (1) event; return why that is impossible, or ""."""
        if self.source.tape is not None:
            self.source.tape.jump(by)
        elif self.shown is not None and self._history:
            return self._hold_at_event(self.shown, by)
        return ""

    def _hold_at_event(self, shown: Snapshot, by: int) -> str:
        """Show the first snapshot with the previous or next event, and hold it. Return why that is
        impossible, or "".
        """
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
        """Move a recording to the previous (-1) or next (1) step, and pause it there."""
        if self.source.tape is not None:
            self.source.tape.step(by)

    def faster(self, by: int) -> None:
        """Double (1) or halve (-1) the speed of a recording."""
        if self.source.tape is not None:
            self.source.tape.faster(by)
