"""Test the advice about data that all ranks wait for: how many workers keep up, and whether the cores are there."""

import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.processes.loaders import Worker, advice
from tests.findings import judged
from tests.worlds import own_times, world_with


def ranks(count=4, **values):
    return [Conditions(rank, "here", **values) for rank in range(count)]


@pytest.mark.parametrize(
    ("workers", "data_ms", "step_ms", "enough"),
    [
        (0, 40, 70, 2),  # 40 ms to load, 30 to train
        (0, 10, 40, 1),
        (1, 40, 70, 3),  # one worker takes 70 ms for a batch
        (4, 40, 70, 10),
        (3, 1, 100, 4),
    ],
)
def test_so_many_workers_are_enough(workers, data_ms, step_ms, enough):
    said = advice(data_ms, step_ms, ranks(loader_workers=workers))
    assert f"num_workers={enough} would hide this time" in said
    has = "no workers" if workers == 0 else f"{workers} DataLoader worker"
    assert has in said


def test_what_is_not_known_of_the_workers_is_told_both_ways():
    said = advice(40, 70, ranks())
    assert "num_workers=2 would hide this time. If it has W workers, 2.3 times W" in said


@pytest.mark.parametrize(
    ("cores", "words"),
    [
        (16, "with 4 ranks on a host, this makes 12 processes on 16 cores"),
        (8, "12 processes on 8. If loading"),
        (0, "hide this time. "),
    ],
)
def test_the_cores_that_it_takes_are_told(cores, words):
    assert words in advice(40, 70, ranks(loader_workers=0, cores=cores))


def test_the_host_with_the_fewest_cores_for_a_rank_counts():
    hosts = [Conditions(0, "large", cores=64, loader_workers=0), Conditions(1, "small", cores=2, loader_workers=0)]
    assert "3 processes on 2. If loading" in advice(40, 70, hosts)


@pytest.mark.parametrize(("pinned", "told"), [(False, True), (True, False), (None, False)])
def test_memory_that_is_not_pinned_is_told_of_where_there_is_a_gpu(pinned, told):
    assert ("pin_memory=True" in advice(40, 70, ranks(loader_workers=2, loader_pinned=pinned))) is told


def test_workers_that_are_bound_to_few_cores_are_told_which():
    bound = ranks(2, loader_workers=2, cores=8, worker_cores=frozenset({0}))
    assert "The 4 DataLoader workers on here may use only core 0 of 8" in advice(40, 70, bound)
    free = ranks(2, loader_workers=2, cores=8, worker_cores=frozenset(range(8)))
    assert "num_workers=5 would hide this time" in advice(40, 70, free)


@pytest.mark.parametrize(
    ("worker", "place", "todo"),
    [
        (Worker(7), "the worker does not send the next batch", "py-spy dump --pid 7"),
        (Worker(7, None, "", "a.py:3 get"), "in a.py:3 get", "Find out what the worker does"),
        (Worker(7, 0.0, "futex_do_wait", "a.py:3 get"), "in a.py:3 get, without using a core", "spawn"),
        (Worker(7, 0.0, "folio_wait_bit"), "without using a core", "in the kernel (folio_wait_bit)"),
        (Worker(7, 0.0, "do_signal_stop"), "without using a core", "kill -CONT 7"),
        (Worker(7, 1.0, "", "a.py:3 get"), "in a.py:3 get, using 1.0 cores", "computes"),
    ],
)
def test_a_worker_that_is_waited_for_is_told_by_its_line_and_what_it_uses(worker, place, todo):
    assert worker.place == place
    assert todo in worker.advice


def test_the_sentence_names_the_cores_that_workers_are_bound_to():
    own = own_times(60, 2)
    own[..., 0] = 60.0
    bound = ranks(2, loader_workers=2, cores=8, worker_cores=frozenset({0}))
    (finding,) = [each for each in judged(world_with(own), Evidence(conditions=bound)) if each.kind == "data_bound"]
    assert finding.text.endswith("of it; workers on core 0 alone")
