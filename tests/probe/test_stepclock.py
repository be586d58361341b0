"""The clock of the training thread accounts every nanosecond of a step once."""

from __future__ import annotations

import pytest

from ddpmon.probe import stepclock
from ddpmon.probe.stepclock import BACKWARD, DATA, FORWARD, OPTIMIZER, OTHER, RawSync, StepClock


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time, in the hands of the test."""
    time = [1000]
    monkeypatch.setattr(stepclock, "monotonic_ns", lambda: time[0])
    return time


def spend(clock: StepClock, now: list[int], phase: int, duration: int) -> None:
    clock.enter(phase)
    now[0] += duration
    clock.leave()


def test_phases_are_exclusive_and_add_up(now: list[int]) -> None:
    clock = StepClock()
    for phase, duration in ((DATA, 5), (FORWARD, 7), (BACKWARD, 11), (OPTIMIZER, 3)):
        spend(clock, now, phase, duration)
        now[0] += 1
    clock.close(now[0])
    step = clock.finished.popleft()
    assert step.phases == [5, 7, 11, 3, 4]
    assert sum(step.phases) == step.end - step.start == 30


def test_a_synchronisation_inside_a_phase_is_not_the_phase(now: list[int]) -> None:
    clock = StepClock()
    clock.enter(FORWARD)
    now[0] += 5
    arrival = clock.block()
    now[0] += 40
    clock.unblock(1, arrival, 64)
    now[0] += 2
    clock.leave()
    clock.close(now[0])
    step = clock.finished.popleft()
    assert step.phases[FORWARD] == 7
    assert step.syncs == [RawSync(1, 1005, 1045, 64)]


def test_the_end_of_backward_was_the_all_reduce(now: list[int]) -> None:
    clock = StepClock()
    spend(clock, now, BACKWARD, 50)
    clock.blocked_at_the_end(0, now[0] - 20, now[0], 8, BACKWARD)
    clock.close(now[0])
    step = clock.finished.popleft()
    assert step.phases[BACKWARD] == 30
    assert step.syncs == [RawSync(0, 1030, 1050, 8)]


def test_an_arrival_before_the_backward_cannot_take_more_than_it(now: list[int]) -> None:
    clock = StepClock()
    now[0] += 10
    spend(clock, now, BACKWARD, 5)
    clock.blocked_at_the_end(0, 0, now[0], 8, BACKWARD)
    clock.close(now[0])
    step = clock.finished.popleft()
    assert step.phases == [0, 0, 0, 0, 10]
    assert step.syncs[0].arrival == 1010


def test_inside_an_optimizer_a_closures_phases_return_to_it(now: list[int]) -> None:
    clock = StepClock()
    clock.base = OPTIMIZER
    clock.enter(OPTIMIZER)
    now[0] += 1
    spend(clock, now, FORWARD, 10)
    now[0] += 2
    assert clock.phase == OPTIMIZER
    clock.base = OTHER
    clock.leave()
    clock.close(now[0])
    assert clock.finished.popleft().phases == [0, 10, 0, 3, 0]


def fetch(clock: StepClock, now: list[int], iterator: int, duration: int) -> None:
    began = clock.enter(DATA)
    now[0] += duration
    clock.fetched(iterator, began)


def test_batches_that_are_never_trained_on_are_other(now: list[int]) -> None:
    """An evaluation between two steps must not make the next one look short of data."""
    clock = StepClock()
    for _ in range(3):
        fetch(clock, now, iterator=1, duration=100)
    fetch(clock, now, iterator=2, duration=5)
    clock.evaluated()
    fetch(clock, now, iterator=3, duration=7)
    clock.close(now[0])
    step = clock.finished.popleft()
    assert step.phases[DATA] == 7
    assert step.phases[OTHER] == 305


def test_batches_fetched_ahead_are_data(now: list[int]) -> None:
    """Hugging Face's Trainer fetches all batches of an accumulated step before its first forward."""
    clock = StepClock()
    for _ in range(3):
        fetch(clock, now, iterator=1, duration=100)
    clock.trained()
    clock.close(now[0])
    assert clock.finished.popleft().phases[DATA] == 300


def test_an_evaluation_that_no_forward_was_heard_of_is_other(now: list[int]) -> None:
    """The script evaluates with the bare module, or there is no DDP model at all."""
    clock = StepClock()
    for _ in range(3):
        fetch(clock, now, iterator=1, duration=100)
    for iterator in (2, 3):
        fetch(clock, now, iterator, duration=5)
    clock.trained()
    clock.close(now[0])
    step = clock.finished.popleft()
    assert step.phases[DATA] == 10
    assert step.phases[OTHER] == 300


def test_steps_count_from_one_without_holes(now: list[int]) -> None:
    clock = StepClock()
    for _ in range(5):
        now[0] += 10
        clock.close(now[0])
    assert [raw.step for raw in clock.finished] == [1, 2, 3, 4, 5]
    assert all(raw.end - raw.start == 10 for raw in clock.finished)
