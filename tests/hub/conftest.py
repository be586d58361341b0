"""A real hub in a process of its own, and made-up ranks and viewers that talk to it over real sockets."""

import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
import zmq

from ddpmon import runs
from ddpmon.messages import (
    PROTOCOL,
    STAGE_GROUP,
    STAGE_TRAINING,
    Ack,
    Batch,
    Bye,
    Hello,
    Next,
    Welcome,
    decode_to_rank,
    encode,
)
from ddpmon.messages.changes import apply_changes
from tests import forked
from tests.conftest import short_folder
from tests.deadlines import Deadline

DEADLINE_S = 20.0


def until(condition, what, deadline_s=DEADLINE_S):
    """Wait for a condition; returns its value."""
    deadline = Deadline(deadline_s)
    while not deadline.passed:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {deadline_s} s: {what}")


class Rank:
    """A rank as the hub sees one: says what it is told to say.

    Pids are made up, as those of a container with a host name of its own: nobody looks such a process up.
    """

    def __init__(self, context, run, rank, world_size=4, pid=None, host="elsewhere"):
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(runs.ingest_address(run.id))
        self.run, self.rank, self.world_size, self.host = run, rank, world_size, host
        self.pid = pid or 4_000_000 + rank
        self.seq = self.step = 0

    def hello(self, **changes):
        facts = dict(
            protocol=PROTOCOL, run_id=self.run.id, rank=self.rank, local_rank=self.rank, world_size=self.world_size,
            node_rank=0, host=self.host, pid=self.pid, stage=STAGE_GROUP,
        )  # fmt: skip
        self.socket.send(encode(Hello(**facts | changes)))

    def batch(self, steps=(), *, seq=None, **changes):
        """Send a batch; returns it, to be sent again as it is."""
        self.seq = seq or self.seq + 1
        self.step = max([self.step, *(step.step for step in steps)])
        facts = dict(
            rank=self.rank, pid=self.pid, seq=self.seq, now_us=time.monotonic_ns() // 1000, stage=STAGE_TRAINING,
            step=self.step, dropped=0, steps=list(steps),
        )  # fmt: skip
        batch = Batch(**facts | changes)
        self.socket.send(encode(batch))
        return batch

    def train(self, steps=(), **changes):
        """Send a batch of steps, and wait until it is recorded."""
        self.batch(steps, **changes)
        self.acknowledged(self.seq)

    def leave(self):
        """Say goodbye, and wait until all that was sent is recorded."""
        self.bye()
        self.acknowledged(self.seq)

    def bye(self, **changes):
        self.socket.send(encode(Bye(**dict(rank=self.rank, pid=self.pid, seq=self.seq) | changes)))

    def answer(self, kind, deadline_s=DEADLINE_S):
        """The next answer of a kind; others are skipped."""
        deadline = Deadline(deadline_s)
        while not deadline.passed:
            if self.socket.poll(1000):
                message = decode_to_rank(self.socket.recv())
                if isinstance(message, kind):
                    return message
        raise AssertionError(f"rank {self.rank} got no {kind.__name__} within {deadline_s} s")

    def acknowledged(self, seq):
        while self.answer(Ack).seq < seq:
            pass

    def join(self, **changes):
        self.hello(**changes)
        while not self.answer(Welcome).has_hello:
            pass


RELAY = """
import sys, zmq
context = zmq.Context()
ends = [context.socket(kind) for kind in (zmq.PAIR, zmq.DEALER)]
for end, address in zip(ends, sys.argv[1:]):
    end.connect(address)
zmq.proxy(*ends)
"""


class RankProcess(Rank):
    """A rank that speaks as a process of its own on this machine: the kernel knows its pid."""

    def __init__(self, context, run, rank, world_size=4, environment=None, before=()):
        """before: what its command line begins with."""
        self.folder = short_folder()
        self.socket = context.socket(zmq.PAIR)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(f"ipc://{self.folder}/s")
        self.process = subprocess.Popen(
            [*before, sys.executable, "-c", RELAY, f"ipc://{self.folder}/s", runs.ingest_address(run.id)],
            env=os.environ | (environment or {}),
        )
        self.run, self.rank, self.world_size, self.host = run, rank, world_size, run.host
        self.pid = self.process.pid
        self.seq = self.step = 0

    def kill(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Viewer:
    """A viewer that asks for one snapshot after the other, as the dashboard does."""

    def __init__(self, context, run):
        self.base = None
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(runs.view_address(run.id))

    def ask(self, after=None):
        base = self.base.version if self.base else 0
        self.socket.send(encode(Next(after.version, after.epoch, base=base) if after else Next()))

    def get(self, after=None, deadline_s=DEADLINE_S):
        self.ask(after)
        assert self.socket.poll(deadline_s * 1000), "no snapshot"
        self.base = apply_changes(self.base, self.socket.recv())
        return self.base

    def until(self, condition, what):
        """Ask for one snapshot after the other until one fulfils the condition."""
        deadline = Deadline(DEADLINE_S)
        snapshot = self.get()
        while not condition(snapshot):
            assert not deadline.passed, f"{what}: {snapshot.state}, {snapshot.verdict}, {snapshot.notes}"
            snapshot = self.get(snapshot)
        return snapshot


class Stage:
    """A run without a launcher: the test plays supervisor, ranks and viewers."""

    def __init__(self, context):
        self.context = context
        self.hubs = []
        self.peers = []
        self.supervisor = subprocess.Popen(["sleep", "600"])
        self.run = runs.Run(
            id=runs.new_id(),
            name="made-up",
            argv=["true"],
            script="train.py",
            script_args=[],
            cwd="/",
            host=socket.gethostname(),
            boot_id=runs.boot_id(),
            created_at=time.time(),
            world_size=4,
            supervisor=runs.Process.of(self.supervisor.pid),
        )
        self.dir = runs.create(self.run)

    def save(self, **changes):
        self.run = dataclasses.replace(self.run, **changes)
        runs.save(self.run)

    def hub(self, ready=True, before=()):
        """Start a hub by forking, or as a program whose command line begins with `before` if that is given."""
        path = self.dir / "logs" / "hub.log"
        if before:
            with path.open("ab") as log:
                line = [*before, sys.executable, "-m", "ddpmon.hub", self.run.id]
                hub = subprocess.Popen(line, stdout=log, stderr=log)
        else:
            hub = forked.hub(self.run.id, path)
        self.hubs.append(hub)
        if ready:
            self.viewer().get()
        return hub

    def start(self, count=2, kind="rank", **hello):
        """Start a hub, and have so many ranks of a kind join; returns the ranks."""
        self.save(world_size=count)
        self.hub()
        ranks = [getattr(self, kind)(rank) for rank in range(count)]
        for rank in ranks:
            rank.join(**hello)
        return ranks

    def kill_hub(self):
        self.hubs[-1].kill()
        self.hubs[-1].wait()

    def log(self):
        path = self.dir / "logs" / "hub.log"
        return path.read_text() if path.exists() else ""

    def rank(self, rank, **kwargs):
        self.peers.append(Rank(self.context, self.run, rank, **{"world_size": self.run.world_size} | kwargs))
        return self.peers[-1]

    def rank_process(self, rank, **kwargs):
        self.peers.append(RankProcess(self.context, self.run, rank, **{"world_size": self.run.world_size} | kwargs))
        return self.peers[-1]

    def viewer(self, **kwargs):
        self.peers.append(Viewer(self.context, self.run, **kwargs))
        return self.peers[-1]

    def end(self, exit_code=0, **changes):
        """Write the end of the command, as the supervisor does."""
        self.save(ended_at=time.time(), exit_code=exit_code, **changes)
        self.hubs[-1].send_signal(signal.SIGTERM)

    def finish(self, exit_code=0, **changes):
        self.end(exit_code, **changes)
        assert self.hubs[-1].wait(DEADLINE_S) == 0, self.log()

    def close(self):
        for hub in self.hubs:
            if hub.poll() is None:
                hub.kill()
            hub.wait()
        self.supervisor.kill()
        self.supervisor.wait()
        for peer in self.peers:
            if isinstance(peer, RankProcess):
                peer.kill()
            peer.socket.close()


@pytest.fixture
def stage(home):
    context = zmq.Context()
    stage = Stage(context)
    yield stage
    stage.close()
    context.term()
    assert "Traceback" not in stage.log()
