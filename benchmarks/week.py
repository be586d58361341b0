"""Measure how large the recording of a long run becomes: 64 ranks at 10 steps a second through the real recorder.

    python benchmarks/week.py                        a week with everything at a twentieth: time, and limits of size
    python benchmarks/week.py --scale 1 --days 1     a day at full scale: 55 million records, some ten minutes

The clock is simulated, and the ranks' data is written as fast as the disk accepts it, half a second of the run at a
time, as a live hub does. The output has the size of the file as it grows, and how long the recorder kept the hub busy.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from launching import options
from synthetic_ranks import CHANGING_NOISE, World, made_up_hello, made_up_sample

from ddpmon.messages import STAGE_TRAINING, SYNC_GRADIENTS, Batch, Digest, Event, Scalar, Step, Sync
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.thinning import KEPT_RECORDS, WHOLE_BYTES
from ddpmon.store.clock import Clock
from ddpmon.store.processes import RankProcess

DAY_S = 86_400
TICK_S = 0.5
POOL = 50
LATE_RANK = 7
EVENT_S = 600
DIGEST_STEPS = 500
Ticks = list[list[list[Step]]]
"""The steps of each tick and rank; their numbers and times are set when they are sent."""


def made_up_ticks(ranks: int, steps: int, seed: int) -> Ticks:
    """Return synthetic steps in half-second ticks, which are sent repeatedly."""
    rng = random.Random(seed)
    world = World(ranks, steps / TICK_S, 0, noise=CHANGING_NOISE, late_rank=LATE_RANK % ranks, seed=seed)

    def told(length_us: int, own_us: list[int]) -> Step:
        sync = Sync(SYNC_GRADIENTS, sum(own_us), length_us, 100 << 20)
        return Step(0, 0, length_us, *own_us, [sync], 2.0 + rng.random(), 64, 0, 1e-3, rng.randint(0, 500))

    ticks = []
    for _ in range(POOL):
        made = [step for _ in range(steps) if (step := world.next(sys.maxsize))]
        ticks.append([[told(length, own[rank].tolist()) for _, _, length, own in made] for rank in range(ranks)])
    return ticks


class Hub:
    """A recorder, and the ranks whose steps it gets."""

    def __init__(self, args: argparse.Namespace, path: Path) -> None:
        self.steps = max(1, round(args.rate * TICK_S))
        self._length_us = round(1e6 * TICK_S / self.steps)
        self._ticks = made_up_ticks(args.ranks, self.steps, args.seed)
        self._rng = random.Random(args.seed)
        sizes = {"whole_bytes": int(WHOLE_BYTES * args.scale), "kept_records": int(KEPT_RECORDS * args.scale)}
        self.recorder = Recorder(path, "made-up", Clock(0, 1_789_000_000.0), **sizes)
        hellos = [made_up_hello("made-up", rank, args.ranks, 0, 1000 + rank) for rank in range(args.ranks)]
        self._processes = [RankProcess(hello.rank + 1, 0, hello, stage=STAGE_TRAINING) for hello in hellos]
        self._now_us = 10_000_000_000
        self.step = 0
        self.wrote_s: list[float] = []
        self.merged_s: list[float] = []

    def tick(self, number: int) -> None:
        """Send half a second to the recorder, and write it."""
        for rank, process in enumerate(self._processes):
            told = self._ticks[number % POOL][rank]
            for i, step in enumerate(told):
                step.step, step.end_us = self.step + i + 1, self._now_us + (i + 1) * self._length_us
            process.last_step = process.steps = process.records = self.step + self.steps
            process.seq += 1
            self.recorder.record_batch(process, self._batch(rank, process, told, with_sample=bool(number % 2)), told)
        if number % round(EVENT_S / TICK_S) == 0:
            sentence = f"a sentence about what happened by step {self.step:,}"
            self.recorder.record_event([Event(self._now_us / 1e6, "info", sentence)])
        self.step += self.steps
        self._now_us += self.steps * self._length_us
        self._write()

    def _batch(self, rank: int, process: RankProcess, told: list[Step], *, with_sample: bool) -> Batch:
        seq, steps = process.seq, process.steps
        batch = Batch(rank, 1000 + rank, seq, self._now_us, STAGE_TRAINING, steps, 0, steps=told)
        if with_sample:
            batch.samples = [made_up_sample(self._now_us + rank, [self._rng.random() for _ in range(9)])]
        if rank == 0:
            batch.scalars = [Scalar(step.step, name, step.loss or 0.0) for step in told for name in ("loss", "acc")]
        if self.step // DIGEST_STEPS != (self.step + self.steps) // DIGEST_STEPS:
            batch.digests = [Digest(self.step, 0, 0x7FFFFFFF, "0", self.step)]
        return batch

    def _write(self) -> None:
        since = time.thread_time()
        self.recorder.write_soon()
        self.recorder.write()
        then = time.thread_time()
        self.wrote_s.append(then - since)
        while self.recorder.too_large:
            self.recorder.merge_oldest()
            now = time.thread_time()
            self.merged_s.append(now - then)
            then = now


def write(args: argparse.Namespace, path: Path) -> None:
    """Write a whole run, and print its size and the times that it took."""
    hub = Hub(args, path)
    count = round(args.days * args.scale * DAY_S / TICK_S)
    began, peak = time.monotonic(), 0
    for number in range(count):
        hub.tick(number)
        if number % max(1, count // 20) == 0 or number == count - 1:
            size = sum(part.stat().st_size for part in path.parent.glob(path.name + "*"))
            peak = max(peak, size)
            print(f"{(number + 1) * TICK_S / 3600:8.2f} h of the run  {hub.step * args.ranks:>12,} records  "
                  f"{size / 1e6:8.1f} MB  {time.monotonic() - began:6.0f} s", flush=True)  # fmt: skip
    hub.recorder.close()
    records = hub.step * args.ranks
    print(f"\n{records:,} records; the file: {path.stat().st_size / 1e6:.1f} MB, at most {peak / 1e6:.1f} MB")
    for name, took_s in (("a write", hub.wrote_s), ("merging", hub.merged_s or [0.0])):
        took_s.sort()
        print(f"{name} kept the hub for {took_s[len(took_s) // 2] * 1e3:.1f} ms (median), "
              f"{took_s[int(len(took_s) * 0.999)] * 1e3:.0f} ms (99.9%), {took_s[-1] * 1e3:.0f} ms at most; "
              f"{sum(took_s) / records * 1e6:.1f} µs of CPU a record")  # fmt: skip


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--scale", type=float, default=0.05, help="of time and of the room for it")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--rate", type=float, default=10.0, help="steps a second; two at least")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="where to write; a temporary one otherwise")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ddpmon-week-", dir=args.folder) as folder:
        write(args, Path(folder) / "telemetry.db")


if __name__ == "__main__":
    main()
