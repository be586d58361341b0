"""The clock of the training thread accounts every nanosecond of a step once."""

from __future__ import annotations

import pytest

from ddpmon.messages import MAX_PHASE_NAMES, STARTING_WORKERS
from ddpmon.probe.records import BACKWARD, DATA, FORWARD, OPTIMIZER, OTHER, PAUSED
from ddpmon.probe.stepclock import StepClock
from tests.probe.conftest import close


def spend(clock: StepClock, now: list[int], phase: int, duration: int) -> None:
    clock.enter_phase(phase)
    now[0] += duration
    clock.leave_phase()


def test_an_arrival_before_the_backward_cannot_take_more_than_it(now: list[int]) -> None:
    clock = StepClock(lambda: now[0])
    now[0] += 10
    spend(clock, now, BACKWARD, 5)
    clock.blocked_at_the_end(0, 0, now[0], 8, BACKWARD)
    close(clock, now[0])
    step = clock.finished.popleft()
    assert step.phases[:5] == [0, 0, 0, 0, 10]
    assert step.syncs[0].arrival == 1010


def test_inside_an_optimizer_a_closures_phases_return_to_it(now: list[int]) -> None:
    clock = StepClock(lambda: now[0])
    clock.base = OPTIMIZER
    clock.enter_phase(OPTIMIZER)
    now[0] += 1
    spend(clock, now, FORWARD, 10)
    now[0] += 2
    assert clock.phase == OPTIMIZER
    clock.base = OTHER
    clock.leave_phase()
    close(clock, now[0])
    assert clock.finished.popleft().phases[:5] == [0, 10, 0, 3, 0]


def fetch(clock: StepClock, now: list[int], iterator: int, duration: int) -> None:
    began = clock.enter_phase(DATA)
    now[0] += duration
    clock.fetched(iterator, began)


def fetch_from_new_workers(clock: StepClock, now: list[int], iterator: int) -> None:
    clock.enter_phase(DATA)
    now[0] += 20
    clock.begin_pause(STARTING_WORKERS)
    now[0] += 500
    clock.end_pause()
    clock.fetched(iterator, now[0])


def test_a_step_adds_up_after_a_pass_over_a_loader_whose_workers_start(now: list[int]) -> None:
    """The time between the request of a batch and the wait for new workers is part of no fetch's duration."""
    clock = StepClock(lambda: now[0])
    fetch(clock, now, iterator=1, duration=100)
    clock.trained()
    close(clock, now[0])
    clock.finished.popleft()
    fetch_from_new_workers(clock, now, iterator=2)
    fetch(clock, now, iterator=2, duration=5)
    clock.fetch_failed(2, clock.enter_phase(DATA))
    fetch_from_new_workers(clock, now, iterator=3)
    clock.trained()
    spend(clock, now, FORWARD, 30)
    close(clock, now[0])
    step = clock.finished.popleft()
    assert sum(pause.end - pause.start for pause in step.pauses) == step.phases[PAUSED] == 1025


def test_batches_that_are_never_trained_on_are_other(now: list[int]) -> None:
    """An evaluation between two steps must not make the next one look short of data."""
    clock = StepClock(lambda: now[0])
    for _ in range(3):
        fetch(clock, now, iterator=1, duration=100)
    clock.evaluates(explained=True)
    fetch(clock, now, iterator=2, duration=5)
    clock.forward_without_gradients()
    fetch(clock, now, iterator=3, duration=7)
    clock.trained()
    close(clock, now[0])
    step = clock.finished.popleft()
    assert step.phases[DATA] == 7
    assert step.phases[OTHER:] == [300, 5]


@pytest.mark.parametrize("batches", [1, 2], ids=["batch", "batches"])
def test_forwards_without_gradients_on_what_is_trained_on_are_part_of_the_step(now: list[int], batches: int) -> None:
    """A teacher's, or those that guess labels, however long they take."""
    clock = StepClock(lambda: now[0])
    for iterator in range(batches):
        fetch(clock, now, iterator, duration=100)
        clock.forward_without_gradients()
        spend(clock, now, FORWARD, 5_000_000_000)
    clock.trained()
    close(clock, now[0])
    step = clock.finished.popleft()
    assert step.phases == [100 * batches, 5_000_000_000 * batches, 0, 0, 0, 0]
    assert step.pauses == []


def named(clock: StepClock, now: list[int]) -> dict[str, int]:
    close(clock, now[0])
    return clock.finished.pop().named


def test_names_nest_and_phases_keep_their_time(now: list[int]) -> None:
    clock = StepClock(lambda: now[0])
    clock.enter_phase(DATA)
    clock.enter_named("load")
    now[0] += 3
    for _ in range(2):
        clock.enter_named("augment")
        now[0] += 5
        clock.exit_named("augment")
    clock.exit_named("load")
    clock.leave_phase()
    now[0] += 1
    close(clock, now[0])
    step = clock.finished.popleft()
    assert step.named == {"augment": 10, "load": 13}
    assert step.phases[:5] == [13, 0, 0, 0, 1]
    assert named(clock, now) == {}, "nothing named in the next step"


def test_names_that_are_left_in_another_order_keep_their_own_time(now: list[int]) -> None:
    """Generators and callbacks may leave the outer one first; leaving what was never entered is nothing."""
    clock = StepClock(lambda: now[0])
    clock.exit_named("never")
    clock.enter_named("a")
    now[0] += 2
    clock.enter_named("b")
    now[0] += 3
    clock.exit_named("a")
    now[0] += 4
    clock.exit_named("b")
    clock.exit_named("b")
    assert named(clock, now) == {"a": 5, "b": 7}


def test_time_blocked_in_a_synchronisation_belongs_to_no_name(now: list[int]) -> None:
    """A rank that waits there for a late one must not look late itself."""
    clock = StepClock(lambda: now[0])
    clock.enter_named("metrics")
    now[0] += 2
    arrival = clock.begin_sync()
    now[0] += 50
    clock.end_sync(2, arrival, 0)
    now[0] += 3
    clock.exit_named("metrics")
    clock.enter_named("train")
    spend(clock, now, BACKWARD, 30)
    clock.blocked_at_the_end(0, now[0] - 10, now[0], 8, BACKWARD)
    assert named(clock, now) == {"metrics": 5, "train": 20}


def test_a_step_keeps_only_so_many_names(now: list[int]) -> None:
    clock = StepClock(lambda: now[0])
    kept = []
    for number in range(MAX_PHASE_NAMES + 2):
        clock.enter_named(str(number))
        now[0] += 1
        kept.append(clock.exit_named(str(number)))
    clock.enter_named("0")
    now[0] += 1
    assert clock.exit_named("0")
    assert kept == [True] * MAX_PHASE_NAMES + [False] * 2
    assert named(clock, now) == {"0": 2} | {str(number): 1 for number in range(1, MAX_PHASE_NAMES)}


def test_batches_that_are_trained_on_tell_samples_and_those_of_an_evaluation_do_not(now: list[int]) -> None:
    clock = StepClock(lambda: now[0])
    for iterator in (1, 1, 2):
        clock.fetched(iterator, clock.enter_phase(DATA), samples=100, tokens=700)
    clock.fetched(3, clock.enter_phase(DATA), samples=8, tokens=56)
    clock.trained()
    close(clock, now[0])
    assert clock.finished[0].samples == 108, "one batch of another loader, as a GAN has it; two are an evaluation"
    clock.evaluates(explained=True)
    clock.fetched(1, clock.enter_phase(DATA), samples=100)
    clock.forward_without_gradients()
    clock.trained()
    close(clock, now[0])
    assert clock.finished[1].samples == 0
