"""Test when a run counts as stalled, by the hub's clock, which is the test's: nothing waits."""

import dataclasses
import os
import time

import msgspec
import pytest

from ddpmon.messages import STEPS, Collective, Failure, Stack
from ddpmon.runs import Process
from tests.store import made_up
from tests.store.made_up import PID, greet, made_store
from tests.worlds import own_times

REDUCE = "DDP's gradient all-reduce"


@pytest.fixture
def store():
    return made_store()


def train(store, pause_ms=0.0, pause_at=150, steps=200):
    """One of the steps has a pause."""
    own = own_times(steps, 2)
    own[pause_at - 1, :, 4] += pause_ms
    made_up.train(store, own)


def judged(store, now):
    for process in store.registry.process_of_rank.values():
        process.heard_at = now
    store.judge(now, time.time())
    return store.state


def test_steps_that_stop_are_a_stall_within_15_s(store):
    train(store)
    assert judged(store, 105.0) == "running"
    assert judged(store, 114.0) == "stalled"
    assert time.time() - store.verdict_since >= 114.0 - 100.0, "it counts from the last step, not from its detection"


def test_a_run_whose_steps_a_cuda_graph_replays_is_not_stalled(store):
    train(store)
    for process in store.registry.process_of_rank.values():
        process.hello.missing = {STEPS: "a CUDA graph has captured the training"}
    assert judged(store, 105.0) == "running"
    assert "replays" not in store.verdict.text, "the graph may contain only a part of each step"
    assert judged(store, 130.0) == "running"
    assert store.verdict.text == "a CUDA graph replays the training, and ddpmon cannot count its steps: none for 30 s"


@pytest.mark.parametrize(("after_s", "more"), [(5.0, ""), (60.0, " and those that a CUDA graph replayed")])
def test_a_run_that_ends_in_a_cuda_graph_says_that_it_made_more_steps(store, after_s, more):
    train(store)
    for process in store.registry.process_of_rank.values():
        process.hello.missing = {STEPS: "a CUDA graph has captured the training"}
        process.left = True
    ended_at = store.clock.unix_at(int(store.world.end_us[-1])) + after_s
    store.run = dataclasses.replace(store.run, created_at=ended_at - 90.0, ended_at=ended_at, exit_code=0)
    assert judged(store, 101.0) == "done"
    assert store.verdict.text == f"done: {store.step} steps{more} in 1m30s"


def test_a_pause_that_the_run_made_before_is_none(store):
    train(store, pause_ms=60_000)
    assert judged(store, 185.0) == "running"
    assert judged(store, 195.0) == "stalled"


def test_a_slow_warm_up_justifies_no_pause_later(store):
    train(store, pause_ms=60_000, pause_at=2)
    assert judged(store, 114.0) == "stalled"


def stack(process, *frames, blocked=False):
    collective = Collective(REDUCE) if blocked else None
    return Stack(process.rank, process.hello.pid, 9, 0, 1, 4, list(frames), 0, collective, blocked, {"0": 3})


def tell(store, now, line="train.py:5 load"):
    first, second = store.registry.process_of_rank.values()
    first.take_stack(stack(first, "train.py:9 main", blocked=True), now)
    second.take_stack(stack(second, line, "train.py:9 main"), now)


def test_a_first_step_that_stands_still_is_a_stall_and_names_who_is_missing(store):
    greet(store, 0.0)
    store.idle = frozenset({1})
    for now in range(5, 30, 2):
        tell(store, float(now))
        assert judged(store, float(now)) == ("waiting" if now < 20 else "stalled"), now
    assert store.verdict.text == f"rank 1 does not reach {REDUCE}: in train.py:5 load"
    assert [event.text for event in store.events].count(store.verdict.text) == 1
    tell(store, 31.0, "train.py:6 load")
    assert judged(store, 31.0) == "waiting"
    assert store.events[-1].text == "the ranks have started"


def test_a_slow_start_is_waited_for(store):
    greet(store, 0.0)
    for now in range(5, 60, 2):
        tell(store, float(now))
        assert judged(store, float(now)) == "waiting"
    for process in store.registry.process_of_rank.values():  # its first step began when the process did
        process.stack = msgspec.structs.replace(process.stack, time_us=60_000_000)
    store.run = dataclasses.replace(store.run, stopping=True, exit_code=1, ended_at=time.time())
    assert judged(store, 60.0) == "stopped"
    assert store.findings == []


def test_ranks_that_stood_at_one_line_when_the_run_was_stopped_are_still_told(store):
    processes = greet(store, 0.0)
    store.idle = frozenset({0, 1})
    for now in range(1, 40, 3):
        for process in processes:
            at = stack(process, "filelock/_acquire.py:9 acquire", "train.py:5 load")
            process.take_stack(msgspec.structs.replace(at, own=1), float(now))
        state = judged(store, float(now))
    assert state == "stalled"
    asked = store.clock.unix_at(41_000_000)
    store.run = dataclasses.replace(store.run, stopping=True, stopping_at=asked, exit_code=1, ended_at=asked + 1)
    for process in processes:
        process.stood = msgspec.structs.replace(process.stood, time_us=38_000_000)
        process.mark_ended(42.0, left=False)
    assert judged(store, 42.0) == "stopped"
    (finding,) = store.findings
    assert finding.is_lasting
    assert ": all ranks are at" in finding.text
    assert "Delete the file" in finding.advice


def test_a_rank_that_only_lost_its_peer_is_not_one_that_ended_its_script():
    store = made_store(3)
    first, second, third = greet(store, 0.0, (PID, PID + 1, PID + 2))
    store.idle = frozenset({0})
    third.mark_ended(4.0, left=True)
    store.failures.append(Failure(1, 4_100_001, 4_500_000, "RuntimeError: Connection closed by peer", ""))
    second.mark_ended(5.0, left=True)
    for now in (6.0, 13.0, 21.0):
        first.take_stack(stack(first, "train.py:9 main", blocked=True), now)
        judged(store, now)
    told = [finding.text for finding in store.findings if finding.kind == "hang"]
    assert told == [f"rank 2 ended its script before its first step; rank 0 waits in {REDUCE}"]


def test_a_rank_that_left_before_the_first_step_is_waited_for_once_the_run_was_stopped(store):
    first, second = greet(store, 0.0)
    store.idle = frozenset({0})
    second.mark_ended(5.0, left=True)
    for now in (6.0, 13.0, 21.0):
        first.take_stack(stack(first, "train.py:9 main", blocked=True), now)
        state = judged(store, now)
    assert state == "stalled"
    told = store.verdict.text
    assert told == f"rank 1 ended its script before its first step; rank 0 waits in {REDUCE}"
    asked = store.clock.unix_at(22_000_000)
    store.run = dataclasses.replace(store.run, stopping=True, stopping_at=asked, exit_code=1, ended_at=asked + 1)
    first.stack = msgspec.structs.replace(first.stack, time_us=21_000_000)
    first.mark_ended(23.0, left=False)
    assert judged(store, 23.0) == "stopped"
    assert [finding.text for finding in store.findings] == [told]


def test_a_silent_rank_that_does_nothing_before_the_first_step_is_found(store):
    first, second = greet(store, 0.0, (PID, os.getpid()))
    second.process = Process.of(os.getpid())
    store.idle = frozenset({1})
    for now in (5.0, 12.0, 20.5):
        first.take_stack(stack(first, "train.py:9 main", blocked=True), now)
        first.heard_at = now
        store.judge(now, time.time())
    assert store.state == "stalled"
    assert store.verdict.text == f"rank 1 is silent though its process is alive; rank 0 waits in {REDUCE}"


def test_a_rank_that_its_killed_peer_set_free_does_not_hide_who_was_missing(store):
    train(store)
    first, second = store.registry.process_of_rank.values()

    def at(process, *frames, blocked):
        return msgspec.structs.replace(stack(process, *frames, blocked=blocked), time_us=9_000_000, step=200)

    first.take_stack(at(first, "train.py:9 main", blocked=True), 109.0)
    second.take_stack(at(second, "train.py:5 load", "train.py:9 main", blocked=False), 109.0)
    assert judged(store, 111.0) == "stalled"
    first.take_stack(at(first, "train.py:30 clean_up", blocked=False), 111.5)
    store.run = dataclasses.replace(store.run, stopping=True, exit_code=1, ended_at=time.time())
    for process in (first, second):
        process.dead = True
    store.judge(112.0, time.time())
    (finding,) = [finding for finding in store.findings if finding.kind == "hang"]
    assert (store.state, finding.ranks) == ("stopped", [1])
    assert "train.py:5 load" in finding.text
