"""Places steps on a GPU's own timeline, by events that the training thread recorded, once the GPU has passed them.

Nothing here waits for the GPU: a step is placed later if the GPU has not passed all its events yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from ddpmon.probe.records import BLOCKED, Mark, RawStep, RawSync


def has_passed(step: RawStep) -> bool:
    """Return whether the device has passed every mark of a step."""
    # Query the last mark first: on one stream, the device has passed all marks once it has passed the last one.
    return all(mark.event.query() for mark in reversed(step.marks))


def steps_reached(steps: int, finished: Sequence[RawStep], current: Sequence[Mark]) -> list[int]:
    """Return how many steps the device has finished, and how many marks of the next step it has passed.

    Args:
        steps: Number of steps that the host has finished.
        finished: Finished steps that were not read yet, the oldest first.
        current: Marks of the host's current step.

    """
    for place, step in enumerate(finished):
        if not has_passed(step):
            return [steps - len(finished) + place, sum(mark.event.query() for mark in step.marks)]
    return [steps, sum(mark.event.query() for mark in current)]


class DeviceTimeline:
    """Follows one device, and converts steps from the host's clock to the device's."""

    def __init__(self) -> None:
        self._elapsed = 0.0
        """Nanoseconds of device time since the first mark."""
        self._offset: float | None = None
        """Best estimate so far of the host time of the first mark."""

    def place_step(self, step: RawStep) -> RawStep:
        """Return the step by the device's clock. The device must have passed all its marks.

        The device time between two marks belongs to the phase of the first mark. So host time during which the device
        was still busy with earlier work is not counted, and time during which the device waited for the host is. The
        step's end in host time is an estimate. The device never passes a mark before the host records it, so the
        largest difference between the two clocks so far is the best estimate of their offset.
        """
        marks = step.marks
        begin = self._elapsed
        phases = [0.0] * 6
        syncs: list[RawSync] = []
        now = begin
        self._see(marks[0], now)
        for mark, following in pairwise(marks):
            after = now + max(0.0, mark.event.elapsed_time(following.event) * 1e6)
            self._see(following, after)
            if mark.code == BLOCKED:
                fact = step.syncs[len(syncs)]
                syncs.append(RawSync(fact.kind, int(now), int(after), fact.payload_bytes))
            else:
                phases[mark.code] += after - now
            now = after
        self._elapsed = now
        offset = int(self._offset or 0.0)
        return replace(
            step,
            start=int(begin) + offset,
            end=int(now) + offset,
            phases=[int(phase) for phase in phases],
            syncs=[replace(sync, arrival=sync.arrival + offset, end=sync.end + offset) for sync in syncs],
        )

    def _see(self, mark: Mark, elapsed: float) -> None:
        difference = mark.host - elapsed
        if self._offset is None or difference > self._offset:
            self._offset = difference
