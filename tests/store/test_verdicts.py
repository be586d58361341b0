"""The verdict of a run follows from the findings that stand beside it, at every moment at which a viewer may look."""

import dataclasses
import time

import msgspec
import pytest

from ddpmon.analysis.processes.launcher import Ended
from ddpmon.messages import PROTOCOL, STAGE_MODEL, Failure, Hello
from ddpmon.store.endings import Ending
from ddpmon.store.view import snapshot
from tests.store.made_up import made_store
from tests.worlds import own_times, records


@pytest.fixture
def store():
    return made_store(age_s=50)


def greet(store, restart, **told):
    ranks = []
    for rank in range(2):
        pid = 4_100_000 + 10 * restart + rank
        hello = Hello(PROTOCOL, "run", rank, rank, 2, 0, "here", pid, STAGE_MODEL, restart=restart)
        hello = msgspec.structs.replace(hello, **{name: value.format(rank) for name, value in told.items()})
        ranks.append(store.registry.register(hello, b"%d" % pid, 90.0 + restart))
    return ranks


def shown(store):
    return snapshot(store, "epoch", 1, 100.0, time.time())


def test_a_restarted_run_does_not_speak_of_the_attempt_before(store):
    told = records(own_times(20, 2), first=1)
    first = greet(store, 0)
    for process in first:
        store.add_steps(process, process.count_new_steps(told[process.rank]), 100.0)
    store.failures.append(Failure(1, first[1].hello.pid, 90, "ValueError: no such class", "Traceback …"))
    store.add_arrived()
    store.judge(100.0, time.time())
    assert shown(store).verdict == "rank 1 failed: ValueError: no such class"
    for process in first:
        process.dead = True
    for process in greet(store, 1):
        store.add_steps(process, [], 101.0)
    between = shown(store)
    assert (between.state, between.findings, between.severity) == ("waiting", [], "info")
    assert "failed" not in between.verdict


def test_the_cause_follows_the_launchers_table_though_the_end_was_judged_before(store):
    told = records(own_times(20, 2), first=1)
    ranks = greet(store, 0)
    for process in ranks:
        store.add_steps(process, process.count_new_steps(told[process.rank]), 100.0)
    store.failures.append(Failure(1, ranks[1].hello.pid, 90, "ValueError: no such class", "Traceback …"))
    store.add_arrived()
    store.run = dataclasses.replace(store.run, exit_code=1, ended_at=time.time())
    store.judge(100.0, time.time())
    store.ending = Ending([Ended(0, 0, ranks[0].hello.pid, -11, root=True)])
    store.judge(101.0, time.time())
    last = shown(store)
    assert last.verdict.startswith("rank 0 failed first: killed by SIGSEGV")
    assert last.findings[0].ranks == [0]


@pytest.mark.parametrize(("gpu", "advised"), [("GPU-{}", True), ("GPU-0", False)])
def test_long_transfers_of_gloo_between_gpus_are_advised_to_use_nccl(store, gpu, advised):
    told = records(own_times(100, 2), transfer=30, first=1)
    for process in greet(store, 0, backend="gloo", device="cuda:{}", gpu=gpu):
        store.add_steps(process, process.count_new_steps(told[process.rank]), 100.0)
    store.add_arrived()
    store.judge(100.0, time.time())
    (found,) = (one for one in shown(store).findings if one.kind == "communication_bound")
    assert ("use the backend nccl" in found.advice) == advised


def test_each_attempt_says_once_that_its_ranks_connected_though_no_step_has_arrived(store):
    told = records(own_times(20, 2), first=1)
    for restart in range(2):
        ranks = greet(store, restart)
        store.connected(100.0 + restart)

    def said():
        return [event.text for event in store.events if "connected" in event.text]

    assert said() == ["both ranks connected", "both ranks connected, attempt 2"]
    for process in ranks:  # Now the store discards the steps of the attempt before.
        store.add_steps(process, process.count_new_steps(told[process.rank]), 102.0)
    store.connected(103.0)
    assert len(said()) == 2
