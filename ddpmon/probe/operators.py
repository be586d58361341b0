"""Summarises the events of torch's profiler: the time of operators by phase, and time slices for a trace.

The summary is computed on the background thread. Times are CLOCK_MONOTONIC nanoseconds.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from ddpmon.messages import (
    MAX_OPERATORS,
    MAX_SLICES,
    OUTSIDE_OPERATORS,
    OWN_PHASES,
    SYNC_KINDS,
    WAITS_FOR_RANKS,
    Operator,
    Track,
)
from ddpmon.messages.profiles import MAX_OPERATOR_CHARS, MAX_TRACKS
from ddpmon.plain import utf8
from ddpmon.probe.records import OTHER, RawSync

ANCHOR = "ddpmon"
"""Name of the event that shows which of the profiler's threads is the training thread."""
TRAINING_THREAD, COLLECTIVES = "training thread", "collectives"
OF_AUTOGRAD = "autograd::engine::evaluate_function"
"""Prefix of the names of autograd's operators. For tensors on a GPU, autograd runs them on another thread, and the
training thread waits."""
OF_PROFILER = frozenset({
    "Activity Buffer Request", "Buffer Flush", "Command Buffer Full", "Instrumentation", "Resource", "INVALID",
})  # fmt: skip
"""Names of events that are the profiler's own work, or unknown calls (observed with torch 2.11 on an H200)."""


_KEY_OF_SYNC = -1
"""Key of a synchronisation's slice, which launches no kernel."""


class Slice(NamedTuple):
    """A span of time on one track."""

    track: str
    start: int
    end: int
    name: str
    key: int
    """Number that a kernel shares with the operator that launched it; 0 if there is none."""


class Recorded(NamedTuple):
    """Slices from the profiler's events, by kind."""

    operators: list[Slice]
    kernels: list[Slice]
    collectives: list[Slice]


class Phases:
    """The phases of the training thread over time."""

    def __init__(self, changes: Sequence[tuple[int, int]], begin: int, end: int) -> None:
        """Build the slices of the phases.

        Args:
            changes: (time, phase) for each change of the phase, in order of time.
            begin: Begin of the profile.
            end: End of the profile.

        """
        self._moments = [moment for moment, _ in changes]
        self._phases = [min(phase, OTHER) for _, phase in changes]
        moments = [*self._moments, end]
        self.slices = [
            Slice("phases", max(begin, since), min(end, until), OWN_PHASES[phase], 0)
            for since, until, phase in zip(moments, moments[1:], self._phases, strict=False)
            if max(begin, since) < min(end, until)
        ]

    def split_by_phase(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield (phase, length) for each phase between two times."""
        for place in range(max(0, bisect_right(self._moments, begin) - 1), len(self._moments)):
            since = max(begin, self._moments[place])
            if since >= end:
                return
            until = self._moments[place + 1] if place + 1 < len(self._moments) else end
            yield self._phases[place], min(end, until) - since

    def phase_at(self, moment: int) -> int:
        """Return the phase at a time."""
        place = bisect_right(self._moments, moment) - 1
        return self._phases[place] if place >= 0 else OTHER

    def of(self, one: Slice) -> int:
        """Return the phase at the middle of an operator. DDP.forward and Optimizer.step begin before their phases."""
        return self.phase_at((one.start + one.end) // 2)


def slices_of_events(events: Iterable[Any], ahead: int, cpu: object, make_way: Callable[[], None]) -> Recorded:
    """Convert the events of torch's profiler to slices.

    Args:
        events: Kineto events of torch's profiler.
        ahead: Nanoseconds by which the clock of the events, Unix time, is ahead of CLOCK_MONOTONIC.
        cpu: The device type of the CPU.
        make_way: Called after each event.

    """
    listed = list(events)
    anchor = next((event for event in listed if event.name() == ANCHOR), None)
    trains = anchor.start_thread_id() if anchor is not None else 0
    found = Recorded([], [], [])
    for event in listed:
        make_way()
        name, start = utf8(event.name())[:MAX_OPERATOR_CHARS], event.start_ns() - ahead
        if event is anchor:
            continue
        end = start + event.duration_ns()
        if event.device_type() != cpu:
            # Annotations repeat the time of the kernels inside them. Older versions of torch do not mark annotations.
            if not (hasattr(event, "is_user_annotation") and event.is_user_annotation()):
                stream = f"GPU {event.device_index()} stream {event.device_resource_id()}"
                key = event.linked_correlation_id() or event.correlation_id()
                found.kernels.append(Slice(stream, start, end, name, key))
        elif event.is_async():
            found.collectives.append(Slice(COLLECTIVES, start, end, name, 0))
        else:
            thread = event.start_thread_id()
            track = TRAINING_THREAD if thread == trains else f"thread {thread}"
            found.operators.append(Slice(track, start, end, name, event.correlation_id()))
    return found


def pass_ends(passes: Sequence[int], found: Recorded) -> list[int]:
    """Return the end of each pass. A pass lasts until the GPU has finished the work that was launched during the pass.

    The training thread runs ahead of the GPU, and may finish all passes before the GPU finishes the first one.

    Args:
        passes: Time at which the training thread finished each pass.
        found: Operators, and the kernels that they launched.

    """
    launched = {one.key: one.start for one in found.operators if one.key}
    ends = list(passes)
    for kernel in found.kernels:
        place = bisect_left(passes, launched.get(kernel.key, kernel.start))
        if place < len(ends):
            ends[place] = max(ends[place], kernel.end)
    return list(accumulate(ends, max))


class Totals:
    """Sums up the calls and the time of each operator in each phase."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases
        self._sums: dict[tuple[str, int], list[int]] = {}
        """Calls, CPU time and GPU time by name and phase."""
        self._phase_of: dict[int, int] = {}
        """Phase of each operator, by its key."""
        self._covered = [0] * len(OWN_PHASES)
        """Time that the training thread spent in operators or blocked, by phase."""

    def add(self, found: Recorded, syncs: Iterable[RawSync], make_way: Callable[[], None]) -> None:
        """Add all operators and kernels, and the synchronisations of the training thread.

        Without a GPU, synchronisations block the thread, also inside operators: DDP.forward, say, broadcasts buffers.
        """
        by_track: dict[str, list[Slice]] = {}
        for sync in syncs:
            if found.kernels:
                self._covered[self._phases.phase_at(sync.arrival)] += sync.end - sync.arrival
            else:
                name = f"{WAITS_FOR_RANKS}: {SYNC_KINDS[sync.kind]})"
                by_track.setdefault(TRAINING_THREAD, []).append(
                    Slice(TRAINING_THREAD, sync.arrival, sync.end, name, _KEY_OF_SYNC)
                )
        for one in found.operators:
            by_track.setdefault(one.track, []).append(one)
        for track, slices in by_track.items():
            slices.sort(key=lambda one: (one.start, -one.end))
            self._add_nested(slices, make_way, trains=track == TRAINING_THREAD)
        for kernel in found.kernels:
            make_way()
            phase = self._phase_of.get(kernel.key, self._phases.phase_at(kernel.start))
            self._count(kernel.name, phase, 0, kernel.end - kernel.start)

    def _add_nested(self, slices: Sequence[Slice], make_way: Callable[[], None], *, trains: bool) -> None:
        """Add the operators of a thread, each without the time of the operators inside it."""
        outer: list[Slice] = []
        covered_until = 0
        for one in slices:
            make_way()
            while outer and outer[-1].end <= one.start:
                outer.pop()
            phase = self._phase_of[one.key] = self._phases.of(one)
            length = one.end - one.start
            self._count(one.name, phase, length, 0)
            if outer:
                around = outer[-1]
                self._sums[around.name, self._phases.of(around)][1] -= min(length, around.end - one.start)
            if trains or (not outer and one.name.startswith(OF_AUTOGRAD)):
                for covered, part in self._phases.split_by_phase(max(one.start, covered_until), one.end):
                    self._covered[covered] += part
                covered_until = max(covered_until, one.end)
            outer.append(one)

    def _count(self, name: str, phase: int, cpu: int, device: int) -> None:
        sums = self._sums.setdefault((name, phase), [0, 0, 0])
        sums[0] += 1
        sums[1] += cpu
        sums[2] += device

    def operators(self) -> list[Operator]:
        """Return the operators with the most time, and for each phase the time outside of operators."""
        outside = [-covered for covered in self._covered]
        for one in self._phases.slices:
            outside[OWN_PHASES.index(one.name)] += one.end - one.start
        made = [
            Operator(name, phase, calls, max(0, cpu) // 1000, device // 1000)
            for (name, phase), (calls, cpu, device) in self._sums.items()
            if name not in OF_PROFILER
        ]
        made += [
            Operator(OUTSIDE_OPERATORS, phase, 0, left // 1000, 0) for phase, left in enumerate(outside) if left > 0
        ]
        return heapq.nlargest(MAX_OPERATORS, made, key=lambda one: one.self_us + one.device_us)


def named_tracks(slices: Sequence[Slice], begin: int) -> tuple[list[str], list[Track], int]:
    """Return names, tracks, and the number of slices left out. If there are too many, the shortest are left out."""
    kept = heapq.nlargest(MAX_SLICES, slices, key=lambda one: one.end - one.start)
    names: dict[str, int] = {}
    made: dict[str, Track] = {}
    at: dict[str, int] = {}
    for one in sorted(kept, key=lambda one: (one.start, -one.end)):
        track = made.get(one.track)
        if track is None:
            if len(made) == MAX_TRACKS:
                continue
            track = made[one.track] = Track(one.track, [], [], [])
        start = max(0, one.start - begin) // 1000
        track.names.append(names.setdefault(one.name, len(names)))
        track.starts_us.append(start - at.get(one.track, 0))
        track.lengths_us.append(max(0, one.end - begin) // 1000 - start)
        at[one.track] = start
    return list(names), list(made.values()), len(slices) - sum(len(track.names) for track in made.values())


def blocked_spans(syncs: Iterable[RawSync]) -> list[Slice]:
    """Return the times in which the training thread waited for other ranks and for transfers."""
    return [Slice("wait and transfer", sync.arrival, sync.end, SYNC_KINDS[sync.kind], 0) for sync in syncs]
