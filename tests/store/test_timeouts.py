"""Test how long a rank has waited, by the hub's clock, which is the test's: nothing waits."""

import dataclasses

import msgspec
import pytest

from ddpmon.messages import EVALUATION, Collective, Stack
from ddpmon.store.standstill import next_timeout
from tests.store.made_up import made_store, train

UNIX = 5_000_000.0
TIMEOUT_S = 600.0


@pytest.fixture
def store():
    """Two ranks that trained; each was heard at 100 by the hub's clock, when its last step ended."""
    store = made_store(age_s=50)
    train(store)
    for process in store.registry.process_of_rank.values():
        process.take_work(100, None, 100.0)
    return store


def stack(process, line, *, blocked=True, timeout_s=TIMEOUT_S):
    told = Stack(process.rank, process.hello.pid, 9, 100, 1, 4, [line, "train.py:9 main"], 0, issued={"0": 7})
    if not blocked:
        return told
    return msgspec.structs.replace(told, collective=Collective("all_reduce", "0", 7), blocked=True, timeout_s=timeout_s)


def evaluates(store, now, beat=True, **more):
    """Rank 0 evaluates, rank 1 waits for it."""
    first, second = (store.registry.process_of_rank[rank] for rank in (0, 1))
    for process in (first, second):
        process.heard_at = now
    first.take_work(first.beats + beat, EVALUATION, now)
    first.take_stack(stack(first, f"train.py:{now:.0f} evaluate", blocked=False), now)
    second.take_stack(stack(second, "train.py:7 main", **more), now)


def test_a_wait_began_when_its_rank_was_heard_last(store):
    """The first stack that tells of it may come long after."""
    assert next_timeout(store.registry, 101.0, UNIX) is None
    evaluates(store, 250.0)
    wait = next_timeout(store.registry, 252.0, UNIX)
    assert (wait.waited_s, wait.timeout_s, wait.ends_at) == (152.0, TIMEOUT_S, UNIX + TIMEOUT_S - 152.0)
    assert set(wait.standing.stacks) == {0, 1}


def test_a_rank_that_was_seen_elsewhere_after_it_was_heard_waits_since_then(store):
    second = store.registry.process_of_rank[1]
    second.take_stack(stack(second, "train.py:5 tokenize", blocked=False), 200.0)
    second.take_stack(stack(second, "train.py:6 tokenize", blocked=False), 220.0)
    evaluates(store, 222.0)
    evaluates(store, 224.0)
    assert next_timeout(store.registry, 225.0, UNIX).waited_s == 5.0


def test_before_anything_was_heard_of_a_rank_it_waits_since_it_said_so(store):
    for process in store.registry.process_of_rank.values():
        process.beats, process.beat_at = 0, 0.0
    evaluates(store, 150.0, beat=False)
    evaluates(store, 152.0, beat=False)
    assert next_timeout(store.registry, 153.0, UNIX).waited_s == 3.0


def test_the_wait_that_is_over_first_is_told(store):
    evaluates(store, 250.0)
    first = store.registry.process_of_rank[0]
    first.take_stack(stack(first, "train.py:8 main", timeout_s=30.0), 250.5)
    wait = next_timeout(store.registry, 251.0, UNIX)
    assert (wait.waited_s, wait.timeout_s) == (1.0, 30.0)


@pytest.mark.parametrize("why", ["unknown", "went on", "heard since", "long ago", "died"])
def test_where_nobody_is_known_to_wait_for_so_long_there_is_no_wait(store, why):
    evaluates(store, 250.0, timeout_s=None if why == "unknown" else TIMEOUT_S)
    second = store.registry.process_of_rank[1]
    if why == "went on":
        second.steps = 101
    if why == "heard since":
        second.take_work(second.beats + 1, None, 250.5)
    if why == "died":
        second.heard_at = 240.0  # its stack was the answer to a signal
        second.dead = True
    assert next_timeout(store.registry, 260.0 if why == "long ago" else 251.0, UNIX) is None


def judged(store, now, **more):
    evaluates(store, now, **more)
    store.judge(now, UNIX + now)
    return [finding for finding in store.findings if finding.kind == "timeout_near"]


def test_an_evaluation_on_one_rank_that_nears_the_timeout_is_told_though_it_is_no_stall(store):
    found = {now: judged(store, float(now)) for now in range(102, 650, 2)}
    assert store.state == "running"
    assert {now for now, told in found.items() if told} == set(range(400, 650, 2))
    assert found[400][0].evidence["ends_at"] == found[640][0].evidence["ends_at"] == UNIX + 100 + TIMEOUT_S
    assert (found[638][0].severity, found[640][0].severity) == ("warn", "critical")
    assert found[400][0].ranks == [0]
    assert store.verdict.text == "all wait for rank 0: the timeout (10 min) ends the run in 50 s"
    assert store.verdict.severity == "critical"
    assert [event.severity for event in store.events if "timeout" in event.text] == ["warn", "critical"]


def test_what_a_run_does_instead_of_training_is_told_with_when_it_ends(store):
    for now in range(102, 462, 2):
        judged(store, float(now))
    assert store.verdict.text == "evaluation on rank 0 for 5m58s; the others wait; timeout in 4 min"
    assert store.verdict.severity == "warn"


def test_of_a_run_that_is_over_nothing_is_said(store):
    for now in range(102, 500, 2):
        judged(store, float(now))
    store.run = dataclasses.replace(store.run, exit_code=1, ended_at=UNIX)
    assert judged(store, 500.0) == []
