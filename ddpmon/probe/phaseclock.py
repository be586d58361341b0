"""Divides the training thread's time into exclusive phases, the synchronisations in them, and spans named by scripts.

Times are CLOCK_MONOTONIC nanoseconds. On a GPU every change of phase also leaves a mark on the device's timeline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ddpmon.messages import MAX_PHASE_NAMES
from ddpmon.probe.records import BLOCKED, OTHER, PAUSED, Device, DeviceEvent, Mark, RawStep, RawSync


class PhaseClock:
    """Measures the time of each phase. Each call ends a phase, and adds the time since the last call to it."""

    def __init__(self, time: Callable[[], int]) -> None:
        """Begin at the current time. time: returns nanoseconds of CLOCK_MONOTONIC."""
        self._time = time
        self.phase = OTHER
        self.base = OTHER
        """Phase to return to: `optimizer` inside an optimizer's step (closures), else `other`."""
        self.device: Device | None = None
        self.part = RawStep(0)
        """Current part of a step."""
        self.paused = False
        """True during a pause, when time belongs to no phase of training."""
        self._entered: deque[tuple[int, int]] = deque(maxlen=8)
        """The latest phases, as (time of entry, phase)."""
        self._blocked = 0
        """Total nanoseconds blocked in synchronisations so far."""
        self._open: list[tuple[str, int]] = []
        """Open spans named by the script: (name, time of entry minus the total blocked time at entry)."""

    def begin_part(self, start: int) -> None:
        """Begin a new part of a step at `start`."""
        before, self.part = self.part, RawStep(start)
        self.phases, self.syncs = self.part.phases, self.part.syncs
        """Lists to which time is added: the lists of the current part, or of a separately measured evaluation."""
        self._last = start
        if self._open:
            self._open = [(name, start - self._blocked) for name, _ in self._open]
        if before.marks:  # On the device, too, a step begins where the last one ended.
            last = before.marks[-1]
            self.part.marks.append(Mark(OTHER, last.event, last.host))

    def _mark(self, code: int, now: int) -> None:
        event = self.device.event() if self.device is not None else None
        if event is not None:
            self.part.marks.append(Mark(code, event, now))

    def enter_phase(self, phase: int) -> int:
        """Enter `phase`: time is added to it from now on, unless the training is paused. Return the current time."""
        now = self._time()
        self.phases[self.phase] += now - self._last
        self._last = now
        self.phase = PAUSED if self.paused else phase
        self._entered.append((now, self.phase))
        if self.device is not None:
            self._mark(self.phase, now)
        return now

    def phase_at(self, moment: int) -> int | None:
        """Return the phase at a time in ns; None if the time is older than the phases that are remembered."""
        return next((phase for since, phase in reversed(self._entered) if since <= moment), None)

    def leave_phase(self) -> int:
        """End the phase, and return to `base`. Return the current time."""
        return self.enter_phase(self.base)

    def enter_after_gap(self, phase: int, gap: int) -> int:
        """Enter `phase`, and add the time in `other` just before the phase to `gaps`. gap: index into `gaps`."""
        if self.phase != OTHER:
            return self.enter_phase(phase)
        last = self._last
        now = self.enter_phase(phase)
        before, between = self.part.gaps
        self.part.gaps = (before, between + now - last) if gap else (before + now - last, between)
        return now

    # --- synchronisations --------------------------------------------------------------------------------------

    def begin_sync(self) -> int:
        """Begin a synchronisation inside the current phase; return its arrival time."""
        arrival = self.enter_phase(self.phase)
        marks = self.part.marks
        if marks and marks[-1].host == arrival:
            marks[-1].code = BLOCKED
        return arrival

    def block_not(self) -> None:
        """Undo `begin_sync` for a call that blocked no rank, such as an asynchronous collective."""
        marks = self.part.marks
        if marks and marks[-1].code == BLOCKED:
            marks[-1].code = self.phase

    def end_sync(self, kind: int, arrival: int, payload_bytes: int) -> None:
        """End the synchronisation that began at `arrival`."""
        self._last = self._time()
        self._blocked += self._last - arrival
        self.syncs.append(RawSync(kind, arrival, self._last, payload_bytes))
        if self.device is not None:
            self._mark(self.phase, self._last)

    def blocked_at_the_end(
        self, kind: int, arrival: int, end: int, payload_bytes: int, phase: int, event: DeviceEvent | None = None
    ) -> None:
        """Count the end of a finished `phase`, from `arrival` on, as a synchronisation.

        event: the arrival on the device's timeline. Without an event, the blocked time on the device is unknown.
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
        """Enter a span that the script has named. Its time is counted beside the phases. Spans nest."""
        self._open.append((name, self._time() - self._blocked))

    def exit_named(self, name: str) -> bool:
        """Leave a named span, if it was entered. Return False if the step already has too many names."""
        now = self._time() - self._blocked
        opened = self._open
        for place in range(len(opened) - 1, -1, -1):
            if opened[place][0] == name:
                return self._add_named(name, now - opened.pop(place)[1])
        return True

    def _add_named(self, name: str, duration: int) -> bool:
        """Add time to a name. Return False if the step already has too many names."""
        for outer, _ in self._open:
            if outer == name:
                return True  # The span is inside another span with its name, and only the outer span counts.
        named = self.part.named
        if name not in named and len(named) >= MAX_PHASE_NAMES:
            return False
        named[name] = named.get(name, 0) + max(0, duration)
        return True

    def _cut_named(self, end: int) -> None:
        """Split the open named spans at the end of a step. Their time so far belongs to the step that ends."""
        now = end - self._blocked
        still, self._open = self._open, []
        for name, since in still:
            self._add_named(name, now - since)
            self._open.append((name, now))
