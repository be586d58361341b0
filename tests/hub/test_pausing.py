"""A run that evaluates or writes a checkpoint is not stalled, is told so, and its steps stay what they are."""

import time

import msgspec
import pytest

from ddpmon.messages import CHECKPOINT, EVALUATION, STARTING_WORKERS, Pause
from ddpmon.runs import Process
from ddpmon.store.view import snapshot
from tests.store.made_up import made_store, train
from tests.worlds import own_times, records

STEPS = 100


@pytest.fixture
def store():
    store = made_store(age_s=50)
    train(store, own_times(STEPS, 2))
    return store


def judged(store, now, beats=(), pausing=(None, None)):
    """The state; of some ranks something was heard just now."""
    for rank, process in store.registry.process_of_rank.items():
        process.heard_at = now
        process.take_work(process.beats + (rank in beats), pausing[rank], now)
    store.judge(now, time.time())
    return store.state


def test_a_rank_that_evaluates_on_and_on_is_no_stall(store):
    for now in range(101, 200):
        assert judged(store, float(now), beats=[0], pausing=(EVALUATION, None)) == "running"
    assert store.verdict.text == "evaluation on rank 0 for 1m38s; the others wait"
    assert store.verdict.severity == "info"
    shown = snapshot(store, "e", 1, 199.0, time.time())
    assert (shown.pausing.kind, shown.pausing.ranks, shown.pausing.seconds) == ("evaluation", [0], 98.0)


def test_an_evaluation_that_a_checkpoint_interrupts_goes_on_after_it(store):
    seen = []
    for now, kind in ((110, EVALUATION), (140, CHECKPOINT), (150, EVALUATION), (160, CHECKPOINT), (170, None)):
        judged(store, float(now), beats=[0], pausing=(kind, None))
        seen.append(store.registry.process_of_rank[0].pausing_since)
    judged(store, 180.0, beats=[0], pausing=(EVALUATION, None))
    assert [*seen[:4], store.registry.process_of_rank[0].pausing_since] == [110.0, 140.0, 110.0, 160.0, 180.0]


def test_a_hang_inside_an_evaluation_is_a_stall(store):
    for now in range(101, 131):
        assert judged(store, float(now), beats=[0], pausing=(EVALUATION, EVALUATION)) == "running"
    assert judged(store, 139.0, pausing=(EVALUATION, EVALUATION)) == "running"
    assert judged(store, 146.0, pausing=(EVALUATION, EVALUATION)) == "stalled"


def test_training_that_is_heard_but_ends_no_step_is_no_stall(store):
    """Gradients of very many batches are added up."""
    for now in range(101, 160):
        assert judged(store, float(now), beats=[0, 1]) == "running"
    assert store.verdict.text == "all ranks within 2% of the others"


def test_a_checkpoint_that_is_written_is_no_stall_and_one_that_is_not_is(store):
    process = store.registry.process_of_rank[0]
    for now in range(101, 140):
        process.take_work(process.beats, CHECKPOINT, float(now), writes=True)
        assert judged(store, float(now), pausing=(CHECKPOINT, None)) == "running"
    assert judged(store, 156.0, pausing=(CHECKPOINT, None)) == "stalled"


def test_workers_that_start_are_no_stall_as_long_as_they_may_and_as_they_once_took(store):
    starts = (STARTING_WORKERS, STARTING_WORKERS)
    for now in (101.0, 115.0, 159.0):
        assert judged(store, now, pausing=starts) == "running"
    assert store.verdict.text == "starting DataLoader workers for 58 s"
    assert judged(store, 170.0, pausing=starts) == "stalled"
    first = msgspec.structs.replace(records(own_times(1, 1))[0][0], pauses=[Pause(STARTING_WORKERS, 0, 80_000_000)])
    store.add_steps(store.registry.process_of_rank[0], [first], 100.0)
    assert judged(store, 170.0, pausing=starts) == "running"
    assert judged(store, 170.0, pausing=(None, None)) == "stalled"


def test_what_lasts_for_less_than_a_second_is_not_told(store):
    assert judged(store, 101.0, beats=[0], pausing=(EVALUATION, None)) == "running"
    assert judged(store, 101.5, beats=[0], pausing=(EVALUATION, None)) == "running"
    assert store.verdict.text == "all ranks within 2% of the others"


def test_means_are_of_training_steps_and_the_evaluation_is_told(store):
    before = store.summary
    end_us = store.registry.processes[4_100_000].last_step
    told = records(own_times(20, 2), first=STEPS + 1, start_us=20_000_000)
    for rank, process in store.registry.process_of_rank.items():
        first, *rest = told[rank]
        pauses = [Pause(EVALUATION, 0, 12_000_000)] if rank == 0 else []
        first = msgspec.structs.replace(first, length_us=first.length_us + 12_000_000, pauses=pauses)
        store.add_steps(process, process.count_new_steps([first, *rest]), 113.0)
    store.add_arrived()
    store.judge(113.0, time.time())
    assert end_us == STEPS
    assert store.summary.step_ms_mean == pytest.approx(before.step_ms_mean, rel=0.05)
    assert store.summary.sums.efficiency.parallel == pytest.approx(before.sums.efficiency.parallel, rel=0.05)
    assert store.summary.window == (2, STEPS + 20)
    assert f"evaluation before step {STEPS + 1}: 12 s on rank 0" in [event.text for event in store.events]
    times = snapshot(store, "e", 1, 113.0, time.time()).times
    assert (times.paused_s, times.counts) == ({"evaluation": 12.0}, {"evaluation": 1})
    assert times.training_s == pytest.approx(118 * before.step_ms_mean / 1e3, rel=0.05)


def test_an_evaluation_after_the_last_step_counts_too(store):
    """A run that trains for one epoch has no other evaluation."""
    store.add_closing_pauses(store.registry.process_of_rank[0], [Pause(EVALUATION, 0, 3_000_000)])
    store.add_closing_pauses(
        store.registry.process_of_rank[1], [Pause(EVALUATION, 0, 2_000_000), Pause(CHECKPOINT, 0, 500_000)]
    )
    store.add_arrived(final=True)
    store.add_arrived(final=True)
    times = snapshot(store, "e", 1, 113.0, time.time()).times
    assert times.paused_s == {"evaluation": 3.0, "checkpoint": 0.5}
    assert times.counts == {"evaluation": 1, "checkpoint": 1}


def test_a_process_that_is_gone_pauses_no_more(store):
    judged(store, 101.0, pausing=(EVALUATION, None))
    store.registry.process_of_rank[0].process = Process(4_100_000, 1)
    assert store.pausing(150.0) is None
