"""Synthetic ranks that send a real hub the messages of real ones over its own socket, for programs that need a busy
run.

    python benchmarks/synthetic_ranks.py RUN RANKS       feed the hub of a run until killed

There are eight ranks to a host, and about five steps a second. Every phase of every rank differs in each step, so that
no value on a screen stays the same; rank 13 is late. The last minutes of the run are sent at the start, so that series
over time have their full length. With --root, the ranks belong to a node, and give its hub the root's card.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import zmq
from launching import hub_log, kill, make_run, own_home, start_hub

from ddpmon import runs
from ddpmon.messages import (
    PROTOCOL,
    STAGE_TRAINING,
    SYNC_GRADIENTS,
    Batch,
    Card,
    Hello,
    Meeting,
    Next,
    Sample,
    Snapshot,
    Step,
    Sync,
    encode,
)
from ddpmon.messages.changes import apply_changes

PHASES_SHARE = (0.08, 0.22, 0.42, 0.03, 0.02)
"""Shares of a step that the five phases take on a rank of normal speed."""
TRANSFER_SHARE = 0.1
CHANGING_NOISE, LATE_RANK, LATE_SHARE = 0.25, 13, 0.3
PER_HOST = 8
STEPS_PER_S = 5.0
SENDS_S = 0.5
"""Interval, in seconds, at which each rank sends its steps; the ranks send one after the other, as real ones do."""
TURNS = 10
TOLD_STEPS = 440
"""Number of past steps that are sent at the start, so that series over time are nearly at full length."""
AT_ONCE = 20
"""Steps that each rank sends at once: a hub treats ranks that send no steps for seconds as lost."""
FIRST_PID = 4_000_000


class World:
    """Generates the steps of all ranks: the same steps in every process that plays some of the ranks."""

    def __init__(
        self,
        world_size: int,
        steps_per_s: float,
        start_us: int,
        *,
        noise: float = 0.02,
        late_rank: int | None = None,
        late_share: float = 0.12,
        late_after_s: float = 0.0,
        seed: int = 100,
    ) -> None:
        """Create a world.

        Args:
            world_size: Number of ranks.
            steps_per_s: Steps a second without the late rank.
            start_us: When the first step begins, in µs.
            noise: Relative size of the noise of each phase.
            late_rank: The late rank, if there is one.
            late_share: Share of a step that the late rank spends in data in addition.
            late_after_s: Seconds after which the rank becomes late.
            seed: Seed of the noise.
        """
        self._size, self._noise, self._rng = world_size, noise, np.random.default_rng(seed)
        period_us = 1e6 / steps_per_s
        self._phases_us = np.array(PHASES_SHARE) * period_us
        self._transfer_us = TRANSFER_SHARE * period_us
        self._late_rank, self._late_us = late_rank, round(late_share * period_us)
        self._end_us = start_us
        self._late_at = start_us + round(late_after_s * 1e6)
        self.step = 0
        self.late_since: int | None = None
        self._next: tuple[np.ndarray, int, int] | None = None
        self.step_us: list[int] = []
        self.mended_us: list[int] = []
        """Length that each step would have had without the late rank's delay."""
        self.ends_us: list[int] = []

    def next(self, now_us: int) -> tuple[int, int, int, np.ndarray] | None:
        """Return the next step once it has ended: its number, end and length, and [R, 5] phases; all in µs."""
        if self._next is None:
            noise = 1 + self._noise * np.abs(self._rng.standard_normal((self._size, 5)))
            own = (self._phases_us * noise).astype(np.int64)
            mended = int(own.sum(axis=1).max())
            if self._late_rank is not None and self._end_us >= self._late_at:
                self.late_since = self.late_since or self.step + 1
                own[self._late_rank, 0] += self._late_us
            transfer = int(self._transfer_us * self._rng.uniform(0.9, 1.1))
            self._next = own, int(own.sum(axis=1).max()) + transfer, mended + transfer
        own, length, mended = self._next
        if self._end_us + length > now_us:
            return None
        self._next = None
        self._end_us += length
        self.step += 1
        self.step_us.append(length)
        self.mended_us.append(mended)
        self.ends_us.append(self._end_us)
        return self.step, self._end_us, length, own


def made_up_hello(run_id: str, rank: int, world_size: int, node: int, pid: int, **more: Any) -> Hello:
    """Return the hello of a rank of a synthetic GPU machine. `more` sets further fields."""
    local = rank % PER_HOST
    return Hello(
        PROTOCOL, run_id, rank, local, world_size, node, f"node{node:04}", pid, STAGE_TRAINING,
        device=f"cuda:{local}", device_name="Made-up 80 GB", backend="nccl", torch_version="2.13.0",
        parameters=124_000_000, gradient_bytes=1 << 26, cores=128, compute_threads=8, **more,
    )  # fmt: skip


def made_up_sample(time_us: int, share: Sequence[float]) -> Sample:
    """Return the state of a rank's devices, from nine random numbers."""
    return Sample(
        time_us, 90 + 20 * share[0], int(2e9 + 1e7 * share[1]), 80 + 20 * share[2], int(6e10 + 1e9 * share[3]),
        80 << 30, 300 + 100 * share[4], 60 + 10 * share[5], 1700 + 50 * share[6], 0.01 * share[7], 0.0, 120 * share[8],
        1e6 * share[8], 1e5 * share[0], 40, "", 4, True, 1e8 * share[1], 1e8 * share[2],
    )  # fmt: skip


class Ranks:
    """All ranks of a run in one process. Their pids are invented, and their hosts are other than this one."""

    def __init__(self, run_id: str, world_size: int, rate: float, root: Card | None) -> None:
        self.run_id, self.world_size, self._root = run_id, world_size, root
        self._rng = np.random.default_rng(1)
        self._seq = [0] * world_size
        self._waiting: list[list[Step]] = [[] for _ in range(world_size)]
        late = LATE_RANK if world_size > LATE_RANK else None
        start_us = _now_us() - round(TOLD_STEPS / rate * 1e6)
        self._world = World(
            world_size, rate, start_us, noise=CHANGING_NOISE, late_rank=late, late_share=LATE_SHARE, seed=1
        )
        context = zmq.Context()
        context.set(zmq.MAX_SOCKETS, world_size + 16)
        self._sockets = [context.socket(zmq.DEALER) for _ in range(world_size)]
        for each in self._sockets:
            each.setsockopt(zmq.LINGER, 0)
            each.connect(runs.ingest_address(run_id))

    def hello(self) -> None:
        for rank in range(self.world_size):
            node = rank // PER_HOST + (self._root is not None)
            facts = made_up_hello(self.run_id, rank, self.world_size, node, FIRST_PID + rank)
            self._sockets[rank].send(encode(facts))
        if self._root is not None:  # Rank 0 would make its hub the root.
            meeting = Meeting(1, FIRST_PID + 1, 1, 2, "127.0.0.1", root=self._root)
            self._sockets[1].send(encode(meeting))

    def make_steps(self) -> bool:
        """Create a few of the steps that have ended since the last call; return whether these are all."""
        for _ in range(AT_ONCE):
            if (step := self._world.next(_now_us())) is None:
                return True
            number, end_us, length, own = step
            losses = 1 + 3 * np.exp(-number / 400) + 0.1 * self._rng.standard_normal(self.world_size)
            for rank, waiting in enumerate(self._waiting):
                phases = own[rank].tolist()
                sync = Sync(SYNC_GRADIENTS, sum(phases), length, 1 << 26)
                waiting.append(Step(number, end_us, length, *phases, [sync], float(losses[rank]), 64))
        return False

    def send(self, part: slice) -> None:
        """Send the steps of some ranks, and the state of their devices."""
        for rank in range(self.world_size)[part]:
            steps, self._waiting[rank] = self._waiting[rank], []
            self._seq[rank] += 1
            batch = Batch(
                rank, FIRST_PID + rank, self._seq[rank], _now_us(), STAGE_TRAINING, self._world.step, 0, steps=steps,
                samples=[made_up_sample(_now_us(), self._rng.random(9).tolist())], total_steps=50_000,
            )  # fmt: skip
            self._sockets[rank].send(encode(batch))
            while self._sockets[rank].poll(0):
                self._sockets[rank].recv()  # The hub's acknowledgements are not used.

    def serve(self) -> None:
        """Send steps to the hub until killed."""
        self.hello()
        turn = 0
        due = time.monotonic()
        while True:
            if not self.make_steps():
                self.send(slice(None))
                continue
            self.send(slice(turn, None, TURNS))
            turn = (turn + 1) % TURNS
            due = max(due + SENDS_S / TURNS, time.monotonic() - SENDS_S)
            time.sleep(max(0.0, due - time.monotonic()))


def _now_us() -> int:
    return time.monotonic_ns() // 1000


class NoAnswerError(Exception):
    """Reports that the hub does not answer, or has ended."""


class Viewer:
    """Requests snapshots from a hub, one after the other."""

    def __init__(self, run: runs.Run) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(runs.view_address(run.id))
        self._newest: Snapshot | None = None

    def next(self, **view_request: object) -> tuple[bytes, Snapshot]:
        """Return the next snapshot, as it was received and decoded. `view_request` has further fields of Next."""
        newest = self._newest
        asked = (
            Next(newest.version, newest.epoch, base=newest.version, **view_request)
            if newest
            else Next(base=0, **view_request)
        )
        self._socket.send(encode(asked))
        if not self._socket.poll(20_000):
            raise NoAnswerError
        frame = self._socket.recv()
        self._newest = apply_changes(newest, frame)
        return frame, self._newest

    def close(self) -> None:
        self._socket.close()
        self._context.term()


def allow_many_files() -> None:
    """Raise the limit of open files, because a socket uses several."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def start_ranks(run: runs.Run, ranks: int, *words: str) -> subprocess.Popen[bytes]:
    """Start made-up ranks of a run in a process of their own."""
    return subprocess.Popen([sys.executable, __file__, run.id, str(ranks), *words])


@contextlib.contextmanager
def world_at_work(world_size: int) -> Iterator[runs.Run]:
    """Yield a run with a real hub and synthetic ranks at work, in a DDPMON_HOME of its own."""
    allow_many_files()
    with own_home():
        run = make_run("synthetic", world_size, nnodes=-(-world_size // PER_HOST), age_s=200)
        started = [start_hub(run)]
        try:
            viewer = Viewer(run)
            viewer.next()
            started.append(start_ranks(run, world_size))
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
            kill(started)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("ranks", type=int)
    parser.add_argument("--rate", type=float, default=STEPS_PER_S, help="steps a second")
    parser.add_argument("--root", type=lambda text: msgspec.json.decode(text, type=Card), help="the root hub's card")
    args = parser.parse_args()
    Ranks(args.run, args.ranks, args.rate, args.root).serve()


if __name__ == "__main__":
    main()
