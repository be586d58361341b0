"""A leak stays in the report of a run that ended normally, and is over where only its rank has left."""

import dataclasses
import time

import pytest

from ddpmon.messages import STAGE_TRAINING, GpuUser, Sample
from ddpmon.store.view import snapshot
from tests.store.made_up import greet, made_store

SECOND = 1_000_000


@pytest.fixture
def store():
    """Two ranks that have trained for 100 s; the memory of rank 1 grows by 10% in the last half minute."""
    store = made_store()
    for rank, process in enumerate(greet(store, 100.0, stage=STAGE_TRAINING)):
        process.trains_since_us, process.last_end_us, process.steps = SECOND, 100 * SECOND, 1000
        for second in range(2, 101):
            sample = Sample(second * SECOND, rss_bytes=(1 << 30) + rank * second * (4 << 20), memory_left_bytes=1 << 34)
            process.samples.append(sample)
            store.recent_samples.summary_of(process)
    return store


def growth(store, now):
    store.judge(now, time.time())
    return [(f.severity, f.ranks, f.is_lasting) for f in store.findings if f.kind == "memory_growth"]


def give_up(process):
    process.samples.append(Sample(101 * SECOND, rss_bytes=1 << 20))
    process.mark_ended(101.0, left=True)


def test_a_leak_lasts_until_the_run_has_ended(store):
    assert growth(store, 100.5) == [("warn", [1], True)]
    for process in store.registry.process_of_rank.values():
        give_up(process)
        assert growth(store, 101.0) == [("warn", [1], True)]
    store.run = dataclasses.replace(store.run, exit_code=0, ended_at=time.time())
    assert growth(store, 102.0) == [("warn", [1], True)]
    assert store.state == "done"


def test_a_leak_is_over_once_its_rank_has_left_and_others_go_on(store):
    assert growth(store, 100.5) == [("warn", [1], True)]
    give_up(store.registry.process_of_rank[1])
    assert growth(store, 101.0) == [("info", [1], False)]


def test_a_process_on_a_gpu_that_is_a_rank_of_the_run_is_told_as_that_rank(store):
    first, second = store.registry.process_of_rank[0], store.registry.process_of_rank[1]
    first.hello.gpu, second.hello.gpu = "a", "b"
    first.hello.gpu_users = [GpuUser(4_100_001, "python", 1 << 29, of_run=True), GpuUser(77, "vllm", 1 << 30)]
    shot = snapshot(store, "e", 1, 101.0, time.time())
    assert [user.rank for user in shot.ranks[0].gpu_users] == [1, -1]
    store.judge(101.0, time.time())
    told = {finding.text for finding in store.findings if finding.kind == "gpu_shared"}
    assert told == {"rank 1 also holds 512 MiB on rank 0's GPU", "pid 77 (vllm) holds 1.0 GiB on rank 0's GPU"}
