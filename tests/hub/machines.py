"""Hubs of two machines on this one, over loopback TCP: made-up ranks tell them of each other, as the probe does."""

import contextlib
import time

import msgspec
import psutil
import pytest
import zmq

from ddpmon import runs
from ddpmon.messages import STAGE_TRAINING, Card, Meeting, encode
from ddpmon.recording.recording import Recording
from tests.hub.conftest import Stage
from tests.worlds import own_times, records

HOUR_US = 3_600_000_000


class Machine(Stage):
    """A run of one machine of several, on this one. Its ranks live in containers: they have another host name."""

    def __init__(self, context, number):
        super().__init__(context)
        self.number = number
        self.save(nnodes=2, name=f"node{number}")

    def ranks(self, first, pid=None, **changes):
        """Two ranks. pid: the same on both machines, as in containers. changes: of their Hello."""
        ranks = [self.rank(first + local, pid=(pid or 4_000_000) + local, host=f"box{self.number}") for local in (0, 1)]
        for local, rank in enumerate(ranks):
            rank.join(node_rank=self.number, local_rank=local, **changes)
        return ranks

    towards = "127.0.0.1"

    def meet(self, rank, nodes=2, **known):
        """Hand in what the probe reads in the process group's store; return the hub's card for it."""
        rank.socket.send(encode(Meeting(rank.rank, rank.pid, int(rank.rank > 0), nodes, self.towards, **known)))
        return rank.answer(Card)


@pytest.fixture
def machines(home):
    context = zmq.Context()
    made = [Machine(context, number) for number in range(2)]
    yield made
    for machine in made:
        machine.close()
    context.term()
    assert not [machine.log() for machine in made if "Traceback" in machine.log()]


def introduce(root, node, first, second):
    """Let two hubs find each other; returns their cards."""
    card = node.meet(second)
    root.meet(first)
    admitting = root.meet(first, keys={1: card.key})
    node.meet(second, root=admitting)
    return admitting, card


def world(machines, pid=None, before=()):
    """Both hubs with two ranks each, introduced. before: see `Machine.hub`, of the second."""
    root, node = machines
    root.hub()
    node.hub(before=before)
    ranks = [*root.ranks(0, pid, world="first"), *node.ranks(2, pid, world="first")]
    introduce(root, node, ranks[0], ranks[2])
    return ranks


def tell(ranks, told, begin, end, later_us=0):
    """Have each rank send steps of its own. later_us: how far the clock of the second machine is ahead."""
    for rank in ranks:
        ahead = later_us if rank.rank > 1 else 0
        steps = [step for step in told[rank.rank] if begin <= step.step < end]
        steps = [msgspec.structs.replace(step, end_us=step.end_us + ahead) for step in steps]
        rank.batch(steps, now_us=time.monotonic_ns() // 1000 + ahead, stage=STAGE_TRAINING)


def late_world(steps=80):
    own = own_times(steps, 4, noise=0.02)
    own[:, 3, 0] += 15  # data
    return records(own, transfer=2.0, first=1, start_us=time.monotonic_ns() // 1000 - HOUR_US // 10)


def seen_whole(snapshot):
    return all(rank.health == "ok" for rank in snapshot.ranks) and len(snapshot.ranks) == 4


def have_told(steps):
    """Return whether every rank of the world was heard, and has told of so many steps."""
    return lambda snapshot: seen_whole(snapshot) and all(rank.steps == steps for rank in snapshot.ranks)


def recorded_steps(machine):
    """{rank: how many of its steps are in the recording}"""
    with contextlib.suppress(Exception), Recording(runs.load(machine.run.id)) as recording:
        return {process.rank: process.records for process in recording.processes()}
    return {}


def listening(pid):
    """Addresses at which a process listens."""
    return {at.laddr.ip for at in psutil.Process(pid).net_connections("inet") if at.status == psutil.CONN_LISTEN}
