"""Made-up ranks that tell a real hub what real ones would, over its own socket: for programs that need a world at work.

    python benchmarks/synthetic_ranks.py RUN RANKS       feed the hub of a run until killed

Eight ranks to a host, about five steps a second. Every phase of every rank is another one in each step, so that no
value on a screen stays what it was; rank 13 is late. The last minutes of the run are told at the start, so that series
over time are as long as they become.
"""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import zmq
from made_up_runs import hub_log, make_run, own_home, start_hub

from ddpmon import runs
from ddpmon.messages import (
    PROTOCOL,
    STAGE_TRAINING,
    SYNC_GRADIENTS,
    Batch,
    Hello,
    Next,
    Sample,
    Snapshot,
    Step,
    Sync,
    encode,
)
from ddpmon.messages.changes import changed

PHASES_MS = (10.0, 50.0, 70.0, 5.0, 5.0)
NOISE = 0.25
LATE_RANK, LATE_MS = 13, 60.0
TRANSFER_MS = 20.0
PER_HOST = 8
SENDS_S = 0.5
"""Each rank sends what it has this often; the world's ranks one after the other, as real ones do."""
TURNS = 10
TOLD_STEPS = 440
"""Before the first that is told when it ends: so that series are nearly as long as they become."""
AT_ONCE = 20
"""Steps that each rank sends at once: a hub treats ranks that send no steps for seconds as lost."""


class Ranks:
    """All ranks of a run in one process. Their pids are made up, and their hosts are others than this one."""

    def __init__(self, run_id: str, world_size: int) -> None:
        self.run_id, self.world_size = run_id, world_size
        self._rng = np.random.default_rng(1)
        self._step = 0
        self._seq = [0] * world_size
        self._waiting: list[list[Step]] = [[] for _ in range(world_size)]
        mean_us = int((sum(PHASES_MS) * (1 + NOISE) + LATE_MS + TRANSFER_MS) * 1e3)
        self._end_us = _now_us() - TOLD_STEPS * mean_us
        context = zmq.Context()
        context.set(zmq.MAX_SOCKETS, world_size + 16)
        self._sockets = [context.socket(zmq.DEALER) for _ in range(world_size)]
        for each in self._sockets:
            each.setsockopt(zmq.LINGER, 0)
            each.connect(runs.ingest_address(run_id))

    def hello(self) -> None:
        for rank in range(self.world_size):
            node, local = divmod(rank, PER_HOST)
            facts = Hello(
                PROTOCOL, self.run_id, rank, local, self.world_size, node, f"node{node:03}", 4_000_000 + rank,
                STAGE_TRAINING, device=f"cuda:{local}", device_name="Made-up 80 GB", backend="nccl",
                torch_version="2.13.0", parameters=124_000_000, gradient_bytes=1 << 26, cores=128, compute_threads=8,
            )  # fmt: skip
            self._sockets[rank].send(encode(facts))

    def make_steps(self) -> bool:
        """Return those that ended since, a few of them; says whether that is all."""
        for _ in range(AT_ONCE):
            if (length := self._one_step()) is None:
                return True
            self._end_us += length
        return False

    def _one_step(self) -> int | None:
        """Length of the next step in µs, once it has ended."""
        state = self._rng.bit_generator.state
        noise = 1 + NOISE * np.abs(self._rng.standard_normal((self.world_size, 5)))
        own = (np.array(PHASES_MS) * noise * 1e3).astype(int)
        if self.world_size > LATE_RANK:
            own[LATE_RANK, 2] += int(LATE_MS * 1e3)
        arrivals = own.sum(axis=1)
        length = int(arrivals.max() + TRANSFER_MS * self._rng.uniform(0.5, 1.5) * 1e3)
        end = self._end_us + length
        if end > _now_us():
            self._rng.bit_generator.state = state
            return None
        self._step += 1
        losses = 1 + 3 * np.exp(-self._step / 400) + 0.1 * self._rng.standard_normal(self.world_size)
        for rank, waiting in enumerate(self._waiting):
            sync = Sync(SYNC_GRADIENTS, int(arrivals[rank]), length, 1 << 26)
            waiting.append(Step(self._step, end, length, *own[rank].tolist(), [sync], float(losses[rank]), 64))
        return length

    def send(self, part: slice) -> None:
        """Send the steps of some ranks, and the state of their devices."""
        for rank in range(self.world_size)[part]:
            steps, self._waiting[rank] = self._waiting[rank], []
            self._seq[rank] += 1
            batch = Batch(
                rank, 4_000_000 + rank, self._seq[rank], _now_us(), STAGE_TRAINING, self._step, 0, steps=steps,
                samples=[self._sample()], total_steps=50_000,
            )  # fmt: skip
            self._sockets[rank].send(encode(batch))
            while self._sockets[rank].poll(0):
                self._sockets[rank].recv()  # what the hub has recorded is of no interest

    def _sample(self) -> Sample:
        share = self._rng.random(9).tolist()
        return Sample(
            _now_us(), 90 + 20 * share[0], int(2e9 + 1e7 * share[1]), 80 + 20 * share[2], int(6e10 + 1e9 * share[3]),
            80 << 30, 300 + 100 * share[4], 60 + 10 * share[5], 1700 + 50 * share[6], 0.01 * share[7], 0.0, 0.0,
            1e6 * share[8], 1e5 * share[0], 40, "",
        )  # fmt: skip

    def serve(self) -> None:
        """Until killed."""
        self.hello()
        turn = 0
        due = time.monotonic()
        while True:
            done = self.make_steps()
            if not done:
                self.send(slice(None))
                continue
            self.send(slice(turn, None, TURNS))
            turn = (turn + 1) % TURNS
            due = max(due + SENDS_S / TURNS, time.monotonic() - SENDS_S)
            time.sleep(max(0.0, due - time.monotonic()))


def _now_us() -> int:
    return time.monotonic_ns() // 1000


class NoAnswerError(Exception):
    """The hub has nothing to say, or ended."""


class Viewer:
    """Asks a hub for snapshots, one after the other."""

    def __init__(self, run: runs.Run) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(runs.view_address(run.id))
        self._newest: Snapshot | None = None

    def next(self, **wish: object) -> tuple[bytes, Snapshot]:
        """The next snapshot, as it came and decoded. wish: of Next."""
        newest = self._newest
        asked = Next(newest.version, newest.epoch, base=newest.version, **wish) if newest else Next(base=0, **wish)
        self._socket.send(encode(asked))
        if not self._socket.poll(20_000):
            raise NoAnswerError
        frame = self._socket.recv()
        self._newest = changed(newest, frame)
        return frame, self._newest

    def close(self) -> None:
        self._socket.close()
        self._context.term()


@contextlib.contextmanager
def world_at_work(world_size: int) -> Iterator[runs.Run]:
    """A run with a real hub and made-up ranks at work, in a DDPMON_HOME of its own for as long as it is entered."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a rank's socket takes two files
    with own_home():
        run = make_run("synthetic", world_size, nnodes=-(-world_size // PER_HOST), age_s=200)
        started = [start_hub(run)]
        try:
            viewer = Viewer(run)
            viewer.next()
            started.append(subprocess.Popen([sys.executable, __file__, run.id, str(world_size)]))
            deadline = time.monotonic() + 300
            while viewer.next()[1].step < TOLD_STEPS:
                if time.monotonic() > deadline or any(process.poll() is not None for process in started):
                    raise NoAnswerError
            viewer.close()
            yield run
            if any(process.poll() is not None for process in started):
                raise NoAnswerError
        except NoAnswerError:
            raise SystemExit(f"the hub does not come on; it said: {hub_log(run).read_text()}") from None
        finally:
            for process in started:
                process.kill()
                process.wait()


if __name__ == "__main__":
    Ranks(sys.argv[1], int(sys.argv[2])).serve()
