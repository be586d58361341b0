"""Ranks of two machines told to one root in this process: the second machine's clock is hours ahead."""

import dataclasses

import msgspec
import numpy as np

from ddpmon import runs
from ddpmon.messages import PROTOCOL, STAGE_TRAINING, Batch, Hello, Sample, encode
from ddpmon.recording.collector import Collector
from ddpmon.recording.recorder import Checkpoint, Recorder
from ddpmon.recording.recording import recording_path
from ddpmon.store.clock import Clock
from ddpmon.store.peers import Peer
from ddpmon.store.registry import Registry
from ddpmon.store.store import Store

BEGAN = 1_789_000_000.0
AHEAD_US = 5 * 3_600_000_000
FIRST_US = 5_000_000
"""Microseconds from the start of the run to its first step."""
SECOND = 1_000_000
PIDS = 4_000_000


class Root:
    """The hub of rank 0 without its sockets: a store and a recorder, fed by hand. Ranks of `here` are on its host."""

    def __init__(self, ranks=4, here=2, ahead_us=AHEAD_US, **changes):
        self.run = runs.Run(
            id="20260909-120000-7f3b", name="told", argv=["torchrun"], script="train.py", script_args=[], cwd="/",
            host="host0", boot_id=runs.boot_id(), created_at=BEGAN, world_size=ranks, nnodes=2,
        )  # fmt: skip
        self.run = dataclasses.replace(self.run, **changes)
        runs.create(self.run)
        self.ahead_us, self.here = ahead_us, here
        clock = Clock(0, BEGAN)
        self.store = Store(self.run, Registry(self.run.id, ranks, self.run.host), clock, live=True)
        self.recorder = Recorder(recording_path(self.run.id), self.run.id, clock)
        self.collector = Collector(self.store, self.recorder, "", lambda identity, message: None)
        self.seq = {}

    def elsewhere(self, rank):
        return rank >= self.here

    def _take(self, rank, message, now):
        through = int(self.elsewhere(rank))
        peer = Peer(0, 1) if through else None
        later_us = -self.ahead_us if through else 0
        self.collector.process_message([b"%d" % rank, encode(message)], now, BEGAN + now, peer, later_us=later_us)

    def join(self, rank, now=1.0):
        node = int(self.elsewhere(rank))
        hello = Hello(
            PROTOCOL, self.run.id, rank, rank, self.run.world_size, node, f"host{node}", PIDS + rank, STAGE_TRAINING
        )
        self._take(rank, hello, now)

    def tell(self, rank, steps, percent=90.0, *, lost=False):
        """Steps of a rank, and a sample in each second of them; lost: without records. Times are the root's."""
        ahead = self.ahead_us if self.elsewhere(rank) else 0
        end_us = steps[-1].end_us
        begin_us = steps[0].end_us - steps[0].length_us
        seconds = range(begin_us // SECOND * SECOND + SECOND // 2, end_us, SECOND)
        seq = self.seq[rank] = self.seq.get(rank, 0) + 1
        batch = Batch(
            rank, PIDS + rank, seq, end_us + ahead, STAGE_TRAINING, steps[-1].step, 0,
            steps=[msgspec.structs.replace(step, end_us=step.end_us + ahead) for step in steps if not lost],
            samples=[Sample(at + ahead, percent, 1 << 30) for at in seconds if at >= begin_us],
        )  # fmt: skip
        self._take(rank, batch, end_us / 1e6)

    def turn(self, *, save=False):
        """Do what a hub does several times a second. save: write a checkpoint too."""
        self.store.add_arrived()
        self.recorder.record_silences(self.store.silences.take_changed())
        if save:
            store = self.store
            self.recorder.checkpoint(
                Checkpoint(
                    store.registry.attempt,
                    store.history_step,
                    store.since_start.sums,
                    store.histories.saved(),
                    store.pause_filter.times,
                )
            )
        self.recorder.write_soon()
        self.recorder.write()

    def train(self, told, first, last, ranks=None, *, block=20, percent=lambda rank: 90.0, losing=()):
        """Have ranks tell of the steps from `first` to `last`, a block at a time, as they come.

        losing: ranks whose records are lost on their way.
        """
        for begin in range(first, last + 1, block):
            for rank in told if ranks is None else ranks:
                steps = [step for step in told[rank] if begin <= step.step < min(begin + block, last + 1)]
                self.tell(rank, steps, percent(rank), lost=rank in losing)
            self.turn()

    def end(self, *, judge=False):
        """The run is over; returns it. judge: its end was judged."""
        self.store.live = False
        self.store.add_arrived(final=True)
        ended = self.run.created_at + max(p.last_end_us - (p.hello.through and self.ahead_us)
                                          for p in self.store.registry.processes.values()) / 1e6  # fmt: skip
        self.run = dataclasses.replace(self.run, ended_at=ended, exit_code=0)
        runs.save(self.run)
        if judge:
            self.store.run = self.run
            self.store.judge(ended - BEGAN, ended)
            self.recorder.record_findings(self.store.ledger)
        self.turn(save=True)
        self.recorder.close()
        return self.run


def series(store, name):
    """Low, high and the worst rank of a quantity over the whole run, where there is a value."""
    shown = store.histories.view(name, None, None, 1000)
    return [
        (low, high) for low, high in zip(shown.low, shown.high, strict=True) if low is not None and not np.isnan(low)
    ]
