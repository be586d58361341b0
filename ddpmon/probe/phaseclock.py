"""Divides the training thread's time into exclusive phases, synchronisations that cut them, and named parts of the
script.

Times are CLOCK_MONOTONIC nanoseconds. On a GPU every change of phase also leaves a mark on the device's timeline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ddpmon.messages import MAX_NAMES
from ddpmon.probe.records import BLOCKED, OTHER, PAUSED, Device, DeviceEvent, Mark, RawStep, RawSync


class PhaseClock:
    """Accounts time to phases, from one moment that it is given to the next."""

    def __init__(self, time: Callable[[], int]) -> None:
        """time: where it reads nanoseconds of CLOCK_MONOTONIC."""
        self._time = time
        self.phase = OTHER
        self.base = OTHER
        """The phase to come back to: `optimizer` inside an optimizer's step (closures), else `other`."""
        self.device: Device | None = None
        self.part = RawStep(0)
        """The part of a step that runs."""
        self.paused = False
        """True if time belongs to no phase, as the script does something else than training."""
        self._entered: deque[tuple[int, int]] = deque(maxlen=8)
        """The latest phases, each after the moment at which it was entered."""
        self._blocked = 0
        """Nanoseconds blocked in synchronisations so far."""
        self._open: list[tuple[str, int]] = []
        """Names that the script is in, each with the moment since when, less all that was blocked before it."""

    def begin_part(self, start: int) -> None:
        """A new part of a step begins at `start`."""
        before, self.part = self.part, RawStep(start)
        self.phases, self.syncs = self.part.phases, self.part.syncs
        """Where time goes now: to the part that runs, unless some is kept apart from it."""
        self._last = start
        if self._open:
            self._open = [(name, start - self._blocked) for name, _ in self._open]
        if before.marks:  # the end of one step is the start of the next on the device too
            last = before.marks[-1]
            self.part.marks.append(Mark(OTHER, last.event, last.host))

    def _mark(self, code: int, now: int) -> None:
        event = self.device.event() if self.device is not None else None
        if event is not None:
            self.part.marks.append(Mark(code, event, now))

    def enter(self, phase: int) -> int:
        """Enter `phase`: time belongs to it from now on, unless the script pauses. Returns the moment."""
        now = self._time()
        self.phases[self.phase] += now - self._last
        self._last = now
        self.phase = PAUSED if self.paused else phase
        self._entered.append((now, self.phase))
        if self.device is not None:
            self._mark(self.phase, now)
        return now

    def phase_at(self, moment: int) -> int | None:
        """Return the phase at a moment of the latest few phases; None: it was earlier."""
        return next((phase for since, phase in reversed(self._entered) if since <= moment), None)

    def leave(self) -> int:
        """The phase ends; time belongs to what surrounds it. Returns the moment."""
        return self.enter(self.base)

    def enter_after_gap(self, phase: int, gap: int) -> int:
        """The same as `enter`; time that went to `other` since the last phase is remembered as that gap."""
        if self.phase != OTHER:
            return self.enter(phase)
        last = self._last
        now = self.enter(phase)
        before, between = self.part.gaps
        self.part.gaps = (before, between + now - last) if gap else (before + now - last, between)
        return now

    # --- synchronisations --------------------------------------------------------------------------------------

    def block(self) -> int:
        """A synchronisation begins inside the current phase; returns the moment of arrival."""
        arrival = self.enter(self.phase)
        marks = self.part.marks
        if marks and marks[-1].host == arrival:
            marks[-1].code = BLOCKED
        return arrival

    def block_not(self) -> None:
        """Undo `block`: it blocked nobody, as with an asynchronous collective."""
        marks = self.part.marks
        if marks and marks[-1].code == BLOCKED:
            marks[-1].code = self.phase

    def unblock(self, kind: int, arrival: int, payload_bytes: int) -> None:
        """The synchronisation that began at `arrival` is over."""
        self._last = self._time()
        self._blocked += self._last - arrival
        self.syncs.append(RawSync(kind, arrival, self._last, payload_bytes))
        if self.device is not None:
            self._mark(self.phase, self._last)

    def blocked_at_the_end(
        self, kind: int, arrival: int, end: int, payload_bytes: int, phase: int, event: DeviceEvent | None = None
    ) -> None:
        """The last part of a finished `phase`, from `arrival` on, was a synchronisation after all.

        event: the arrival on the device's timeline; without it nothing is known of the blocked time there.
        """
        arrival = max(arrival, end - self.phases[phase])
        self.phases[phase] -= end - arrival
        self._blocked += end - arrival
        self.syncs.append(RawSync(kind, arrival, end, payload_bytes))
        marks = self.part.marks
        if marks:
            marks.insert(-1, Mark(BLOCKED, event or marks[-1].event, marks[-1].host))

    # --- names -------------------------------------------------------------------------------------------------

    def enter_named(self, name: str) -> None:
        """Enter a named part of the script: time also belongs to it from now on. Names nest."""
        self._open.append((name, self._time() - self._blocked))

    def exit_named(self, name: str) -> bool:
        """Time no longer belongs to that name, if it did. False: the step has too many names already."""
        now = self._time() - self._blocked
        opened = self._open
        for place in range(len(opened) - 1, -1, -1):
            if opened[place][0] == name:
                return self._add_named(name, now - opened.pop(place)[1])
        return True

    def _add_named(self, name: str, duration: int) -> bool:
        """False: the step has too many names already."""
        for outer, _ in self._open:
            if outer == name:
                return True  # inside itself: the outer one tells
        named = self.part.named
        if name not in named and len(named) >= MAX_NAMES:
            return False
        named[name] = named.get(name, 0) + max(0, duration)
        return True

    def _cut_named(self, end: int) -> None:
        """A step ends inside names: each one's time so far is this step's, the rest the next one's."""
        now = end - self._blocked
        still, self._open = self._open, []
        for name, since in still:
            self._add_named(name, now - since)
            self._open.append((name, now))
