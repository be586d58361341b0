"""An app over one source, and the keys that move it through time: hold still, step back, play a recording."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from textual.timer import Timer

from ddpmon.messages import Snapshot
from ddpmon.source import Cursor, Source, Tape
from ddpmon.tui.in_order import InOrder

LOOK_S = 0.02
LOOKS = 50
"""How often, and how many times, the source is looked at for what a key has asked of it."""
KEPT = 240
"""Snapshots of a small world that are kept to step back to: two minutes."""
KEPT_RANKS = 8192
"""Ranks in all kept snapshots together, so that a large world's take no more memory."""
KEPT_LEAST = 4


class Passage(InOrder):
    """What is shown may be older than the newest snapshot: held still, or a place in a recording."""

    def __init__(self, source: Source, ansi_color: bool | None) -> None:
        super().__init__(ansi_color=ansi_color)
        self.source = source
        self.newest: Snapshot | None = None
        self.held: Snapshot | None = None
        """What is shown instead of the newest."""
        self._kept: deque[Snapshot] = deque(maxlen=KEPT)
        self._looking: Timer | None = None

    def tick(self) -> None:
        """One frame."""
        raise NotImplementedError

    def show(self) -> None:
        """Show what is to be shown now."""
        raise NotImplementedError

    def say(self, text: str) -> None:
        """Show a line in the key bar for a few seconds."""
        raise NotImplementedError

    def show_answer(self) -> None:
        """A frame now, and one as soon as what the source was asked for is there."""
        self.tick()
        self.await_answer()

    def await_answer(self) -> None:
        """A frame as soon as what the source was asked for is there."""
        if self._looking is not None:
            self._looking.stop()
        self._looking = self.set_interval(LOOK_S, self._look, repeat=LOOKS)

    def _look(self) -> None:
        if self.source.snapshot() is not self.newest:
            self.tick()

    def take(self) -> None:
        """Take the newest snapshot from the source."""
        newest = self.newest = self.source.snapshot()
        if newest is None or self.source.tape is not None or (self._kept and self._kept[-1] is newest):
            return
        last = self._kept[-1] if self._kept else None
        if last is not None and last is not self.held and (last.epoch, last.version) == (newest.epoch, newest.version):
            self._kept[-1] = newest  # the same moment, with what another screen wished for
            return
        self._kept.append(newest)
        most = max(KEPT_LEAST, KEPT_RANKS // max(1, newest.run.world_size))
        while len(self._kept) > most:
            self._kept.popleft()

    def watch_other(self, source: Source) -> None:
        """Watch another source from now on."""
        self.source, self.held, self.newest = source, None, source.snapshot()
        self._kept.clear()

    @property
    def shown(self) -> Snapshot | None:
        """The snapshot that is shown."""
        return self.held or self.newest

    @property
    def behind_s(self) -> float | None:
        """How much older the shown snapshot is than the newest; None: it is not held."""
        if self.held is None or self.newest is None:
            return None
        return max(0.0, float(round(self.newest.at - self.held.at)))

    @property
    def passage(self) -> Cursor | None:
        """Where a recording plays, in whole seconds."""
        if self.source.tape is None:
            return None
        cursor = self.source.tape.cursor
        return replace(cursor, at_s=float(int(cursor.at_s)))

    def action_freeze(self) -> None:
        if self.source.tape is not None:
            self._play(lambda tape: tape.toggle())
            return
        self.held = self.newest if self.held is None else None
        self.show()

    def action_skip(self, by: int) -> None:
        if self.source.tape is not None:
            self._play(lambda tape: tape.skip(by))
        elif self.shown is not None:
            place = next((i for i, kept in enumerate(self._kept) if kept is self.shown), 0 if by < 0 else -1)
            self.held = self._kept[max(0, min(place + by, len(self._kept) - 1))]
            self.show()

    def action_jump(self, by: int) -> None:
        if self.source.tape is not None:
            self._play(lambda tape: tape.jump(by))
        elif self.shown is not None and self._kept:
            self._hold_at_event(self.shown, by)

    def _hold_at_event(self, shown: Snapshot, by: int) -> None:
        """Hold what was shown first of the event before or after what is shown."""
        times = [kept.at for kept in self._kept]
        here = bisect_left(times, shown.at)
        told = {bisect_left(times, event.at) for event in self._kept[-1].events if event.at > times[0]}
        there = [place for place in told if (place - here) * by > 0 and place < len(times)]
        if not there:
            earlier = f"no earlier event in the {times[-1] - times[0]:.0f} s that are kept"
            self.say(earlier if by < 0 else "no later event yet")
            return
        self.held = self._kept[min(there, key=lambda place: abs(place - here))]
        self.show()

    def action_one_step(self, by: int) -> None:
        self._play(lambda tape: tape.step(by))

    def action_faster(self, by: int) -> None:
        self._play(lambda tape: tape.faster(by))

    def _play(self, wish: Callable[[Tape], None]) -> None:
        """Ask the recording that plays, if one does; it is shown as soon as it is there."""
        if self.source.tape is not None:
            wish(self.source.tape)
            self.show_answer()
