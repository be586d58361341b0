"""A made-up run of two ranks on this machine. Its hub's clock is the test's: nothing waits."""

import time

from ddpmon.messages import PROTOCOL, STAGE_MODEL, Hello
from ddpmon.runs import Run
from ddpmon.store.clock import Clock
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store
from tests.worlds import own_times, records

PID = 4_100_000
"""The pid of rank 0; the next rank has the next one."""


def made_store(world_size=2, age_s=0.0):
    """A run that began so many seconds ago, of which nothing has come."""
    run = Run("run", "made-up", ["true"], "train.py", [], "/", "here", "", time.time() - age_s, world_size)
    return Store(run, Registry("run", world_size, "here"), Clock(0, run.created_at), live=True)


def greet(store, now=90.0, pids=(PID, PID + 1), stage=STAGE_MODEL, **facts):
    """Each rank says hello."""
    hellos = [
        Hello(PROTOCOL, "run", rank, rank, len(pids), 0, "here", pid, stage, **facts) for rank, pid in enumerate(pids)
    ]
    return [store.registry.register(hello, b"%d" % hello.pid, now) for hello in hellos]


def train(store, own=None):
    """Steps of some 33 ms; the last one ends at 100 by the hub's clock."""
    own = own_times(100, 2) if own is None else own
    told = records(own, first=1)
    for process in greet(store):
        process.steps = len(own)
        store.add_steps(process, process.count_new_steps(told[process.rank]), 100.0)
    store.add_arrived()
