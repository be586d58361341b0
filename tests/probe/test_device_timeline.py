"""Steps on a device's own timeline, from made-up events whose times are known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ddpmon.probe.device_timeline import DeviceTimeline, has_passed, steps_reached
from ddpmon.probe.records import BACKWARD, DATA, FORWARD, OPTIMIZER, Mark
from ddpmon.probe.stepclock import StepClock
from tests.probe.conftest import close

MS = 1_000_000


class Moment:
    """An event whose device time the test knows."""

    def __init__(self, device: Gpu, time_ms: float) -> None:
        self.device = device
        self.time_ms = time_ms

    def query(self) -> bool:
        return self.time_ms <= self.device.reached_ms

    def elapsed_time(self, later: Moment) -> float:
        return later.time_ms - self.time_ms


class Gpu:
    """A device with a queue: an event is passed when the work before it is done, and not before it is recorded."""

    def __init__(self, now: list[int]) -> None:
        self.now = now
        self.free_at_ms = 0.0
        self.reached_ms = 0.0
        self.ahead_ms = 1000.0
        """Its clock is not the host's."""

    def work(self, duration_ms: float) -> None:
        self.free_at_ms = max(self.free_at_ms, self.now[0] / MS) + duration_ms

    def event(self) -> Moment:
        return Moment(self, max(self.free_at_ms, self.now[0] / MS) + self.ahead_ms)


@pytest.fixture
def now() -> list[int]:
    return [5 * MS]


def one_step(clock: StepClock, gpu: Gpu, now: list[int], *, data_ms: float, reduce_ms: float) -> None:
    """A step whose launches take the host 1 ms a phase, and the device 10, 20 and 3 ms and the all-reduce."""
    began = clock.enter_phase(DATA)
    now[0] += int(data_ms * MS)
    clock.fetched(1, began)
    clock.trained()
    clock.enter_phase(FORWARD)
    now[0] += MS
    gpu.work(10)
    clock.leave_phase()
    clock.enter_phase(BACKWARD)
    now[0] += MS
    gpu.work(20)
    ready = gpu.event()
    gpu.work(reduce_ms)
    end = clock.leave_phase()
    clock.blocked_at_the_end(0, end, end, 64, BACKWARD, ready)
    close(clock, end)
    clock.enter_phase(OPTIMIZER)
    now[0] += MS
    gpu.work(3)
    clock.leave_phase()


def test_a_host_that_runs_ahead_does_not_hide_the_devices_work(now: list[int]) -> None:
    """The host needs 3 ms a step, the device 40: the step is the device's, and the data came for nothing."""
    gpu, clock, timeline = Gpu(now), StepClock(lambda: now[0]), DeviceTimeline()
    clock.follow(gpu)
    for _ in range(4):
        one_step(clock, gpu, now, data_ms=2, reduce_ms=7)
    gpu.reached_ms = float("inf")
    steps = [timeline.place_step(step) for step in clock.finished]
    for step in steps[1:]:
        assert [phase / MS for phase in step.phases[:5]] == [0, 10, 20, 3, 0]
        assert (step.end - step.start) / MS == pytest.approx(40)
        (sync,) = step.syncs
        assert (sync.end - sync.arrival) / MS == pytest.approx(7)
        assert sync.end == step.end
    assert [step.start for step in steps[1:]] == [step.end for step in steps[:-1]]


def test_a_device_that_waits_for_data_shows_it(now: list[int]) -> None:
    gpu, clock, timeline = Gpu(now), StepClock(lambda: now[0]), DeviceTimeline()
    clock.follow(gpu)
    for _ in range(4):
        one_step(clock, gpu, now, data_ms=100, reduce_ms=7)
    gpu.reached_ms = float("inf")
    for step in [timeline.place_step(step) for step in clock.finished][1:]:
        data, forward, *_ = (phase / MS for phase in step.phases)
        # The fetch began when the host had queued its work; what the device was idle of it is data.
        assert data == pytest.approx(62, abs=1)
        assert forward == pytest.approx(11, abs=1)
        assert sum(step.phases) + sum(s.end - s.arrival for s in step.syncs) == pytest.approx(step.end - step.start)


def test_a_step_that_the_device_has_not_passed_waits(now: list[int]) -> None:
    gpu, clock = Gpu(now), StepClock(lambda: now[0])
    clock.follow(gpu)
    one_step(clock, gpu, now, data_ms=1, reduce_ms=7)
    gpu.reached_ms = gpu.ahead_ms + 30
    assert not has_passed(clock.finished[0])
    gpu.reached_ms = gpu.ahead_ms + 50
    assert has_passed(clock.finished[0])


def test_without_an_arrival_nothing_is_known_of_the_blocked_time(now: list[int]) -> None:
    gpu, clock, timeline = Gpu(now), StepClock(lambda: now[0]), DeviceTimeline()
    clock.follow(gpu)
    clock.enter_phase(BACKWARD)
    gpu.work(20)
    end = clock.leave_phase()
    clock.blocked_at_the_end(0, end, end, 64, BACKWARD)
    close(clock, end)
    gpu.reached_ms = float("inf")
    step = timeline.place_step(clock.finished[0])
    assert [phase / MS for phase in step.phases[:5]] == [0, 0, 20, 0, 0]
    assert step.syncs[0].arrival == step.syncs[0].end == step.end


def test_batches_for_evaluation_are_other_on_the_device_too(now: list[int]) -> None:
    gpu, clock, timeline = Gpu(now), StepClock(lambda: now[0]), DeviceTimeline()
    clock.follow(gpu)
    for iterator, duration in ((1, 50), (2, 23)):
        began = clock.enter_phase(DATA)
        now[0] += duration * MS
        clock.fetched(iterator, began)
        if iterator == 1:
            clock.evaluates(explained=True)
            clock.forward_without_gradients()
            clock.enter_phase(FORWARD)
            gpu.work(20)
            now[0] += MS
            clock.leave_phase()
    clock.trained()
    end = clock.enter_phase(FORWARD)
    close(clock, end)
    gpu.reached_ms = float("inf")
    step = timeline.place_step(clock.finished[0])
    assert [spent / MS for spent in step.phases] == [4, 0, 0, 0, 50, 20]


def test_a_collective_that_blocked_nobody_leaves_no_blocked_time(now: list[int]) -> None:
    """An asynchronous one, or one that raised: the mark of its beginning is taken back."""
    gpu, clock, timeline = Gpu(now), StepClock(lambda: now[0]), DeviceTimeline()
    clock.follow(gpu)
    clock.enter_phase(FORWARD)
    gpu.work(4)
    clock.begin_sync()
    clock.block_not()
    gpu.work(6)
    clock.leave_phase()
    arrival = clock.begin_sync()
    gpu.work(5)
    clock.end_sync(2, arrival, 8)
    close(clock, clock.leave_phase())
    gpu.reached_ms = float("inf")
    step = timeline.place_step(clock.finished[0])
    assert [phase / MS for phase in step.phases[:5]] == [0, 10, 0, 0, 0]
    assert [(sync.kind, (sync.end - sync.arrival) / MS) for sync in step.syncs] == [(2, 5)]


def test_how_far_a_device_has_come_is_told_by_its_last_passed_mark(now: list[int]) -> None:
    device = Gpu(now)
    device.reached_ms = 4.0
    marks = [Mark(FORWARD, Moment(device, float(at)), 0) for at in range(1, 9)]
    whole, half = (SimpleNamespace(marks=marks[:3]), SimpleNamespace(marks=marks[3:6]))
    assert steps_reached(20, [whole, half], marks[6:]) == [19, 1]
    device.reached_ms = 7.0
    assert steps_reached(20, [whole, half], marks[6:]) == [20, 1]
    assert steps_reached(20, [], marks[6:]) == [20, 1]
