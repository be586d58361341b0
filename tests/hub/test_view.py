"""Test what the snapshot contains about all-reduce, efficiency and the machines."""

import dataclasses
from collections import deque

from ddpmon.messages import STAGE_TRAINING, Environment, Hello, Sample, decode_snapshot, encode
from ddpmon.runs import Run
from ddpmon.store.clock import Clock
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store
from ddpmon.store.view import snapshot
from tests.worlds import own_times, records

RUN = Run(
    id="20261120-141502-7f3a", name="mnist", argv=[], script="mnist.py", script_args=[], cwd="/", host="n0",
    boot_id="", created_at=1000.0, world_size=4, ended_at=1060.0, exit_code=0,
)  # fmt: skip


def shown(told, world_size=4):
    """The snapshot of a run whose ranks told this, as a viewer receives it."""
    registry = Registry(RUN.id, world_size, RUN.host)
    store = Store(RUN, registry, Clock(0, RUN.created_at))
    for rank, steps in told.items():
        hello = Hello(
            1, RUN.id, rank, rank, world_size, 0, "n0", 100 + rank, STAGE_TRAINING,
            device_name="H200", cores=16, compute_threads=4, torch_version="2.13.0", backend="gloo", parameters=7,
            gradient_bytes=28, buffer_bytes=8, restart=1,
        )  # fmt: skip
        samples = deque([Sample(5, loader_workers=3)])
        process = RankProcess(
            rank + 1, 0, hello, stage=STAGE_TRAINING, steps=len(steps) + 1, left=True, samples=samples
        )
        registry.add_recorded([process])
        store.add_steps(process, process.count_new_steps(steps))
    store.add_arrived(final=True)
    store.judge(1060.0, 1060.0)
    return decode_snapshot(encode(snapshot(store, "e", 1, 1060.0, 1060.0)))


def test_a_rank_says_what_it_runs_on():
    seen = shown(records(own_times(10, 2)), world_size=3)
    assert seen.ranks[1].environment == Environment("H200", 16, 4, "2.13.0", "gloo", 7, 28, 8, 1, 3)
    assert seen.ranks[2].environment is None


def test_what_the_run_could_not_be_given_is_a_note():
    run = dataclasses.replace(RUN, notes=["grace: too long"])
    store = Store(run, Registry(run.id, 4, run.host), Clock(0, run.created_at))
    assert snapshot(store, "epoch", 1, 1.0, 1.0).notes == ["grace: too long"]
