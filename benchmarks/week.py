"""Measure how large the recording of a long run becomes: 64 ranks at 10 steps a second through the real recorder.

    python benchmarks/week.py                        a week with everything a twentieth: time, and room for it
    python benchmarks/week.py --scale 1 --days 1     a day as it is: 55 million records, some ten minutes

The clock is made up, and what the ranks tell is written as fast as the disk takes it, half a second of the run at a
time, as a live hub does. Printed are the size of the file as it grows, at the end the rows and bytes of each table, and
how long the recorder kept the hub busy at once.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import tempfile
import time
from pathlib import Path

from ddpmon.messages import (
    PROTOCOL,
    STAGE_TRAINING,
    SYNC_GRADIENTS,
    Batch,
    Digest,
    Event,
    Hello,
    Sample,
    Scalar,
    Step,
    Sync,
)
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


def pool(ranks: int, steps: int, length_us: int, seed: int) -> list[list[list[Step]]]:
    """Made-up ticks: of each rank its steps, whose numbers and times are set when they are told."""
    rng = random.Random(seed)
    ticks = []
    for _ in range(POOL):
        worlds = []
        for _ in range(steps):
            own = [[rng.randint(int(0.1 * part), int(part)) for part in _PARTS(length_us)] for _ in range(ranks)]
            own[LATE_RANK % ranks][1] += length_us // 10
            worlds.append(own)
        ticks.append([
            [
                Step(0, 0, length_us, *own[rank], [Sync(SYNC_GRADIENTS, sum(own[rank]), length_us, 100 << 20)],
                     2.0 + rng.random(), 64, 0, 1e-3, rng.randint(0, 500))
                for own in worlds
            ]
            for rank in range(ranks)
        ])  # fmt: skip
    return ticks


def _PARTS(length_us: int) -> tuple[float, ...]:  # noqa: N802
    return tuple(length_us * share for share in (0.05, 0.25, 0.4, 0.05, 0.02))


def sample(at_us: int, rng: random.Random) -> Sample:
    return Sample(
        at_us, 99.5 + rng.random(), (3 << 30) + rng.randint(0, 1 << 24), 90 + 9 * rng.random(), 60 << 30, 80 << 30,
        600 + rng.random(), 61.0, 1980.0, 0.01 * rng.random(), 0.0, 100 * rng.random(), 0.0, 0.0, 40, "", 4, True,
    )  # fmt: skip


def write(args: argparse.Namespace, path: Path) -> None:
    rng = random.Random(args.seed)
    steps = max(1, round(args.rate * TICK_S))
    length_us = round(1e6 * TICK_S / steps)
    ticks = pool(args.ranks, steps, length_us, args.seed)
    recorder = Recorder(
        path,
        "made-up",
        Clock(0, 1_789_000_000.0),
        whole_bytes=int(WHOLE_BYTES * args.scale),
        kept_records=int(KEPT_RECORDS * args.scale),
    )
    processes = []
    for rank in range(args.ranks):
        hello = Hello(PROTOCOL, "made-up", rank, rank, args.ranks, 0, "here", 1000 + rank, STAGE_TRAINING)
        processes.append(RankProcess(rank + 1, 0, hello, stage=STAGE_TRAINING))
    count = round(args.days * args.scale * DAY_S / TICK_S)
    now_us, number, began, peak = 10_000_000_000, 0, time.monotonic(), 0
    wrote, thinned = [], []
    for tick in range(count):
        for rank, process in enumerate(processes):
            told = ticks[tick % POOL][rank]
            for i, step in enumerate(told):
                step.step, step.end_us = number + i + 1, now_us + (i + 1) * length_us
            process.last_step = process.steps = number + steps
            process.records = process.last_step
            process.seq += 1
            batch = Batch(rank, 1000 + rank, process.seq, now_us, STAGE_TRAINING, process.steps, 0, steps=told)
            if tick % 2:
                batch.samples = [sample(now_us + rank, rng)]
            if rank == 0:
                batch.scalars = [Scalar(step.step, name, step.loss or 0.0) for step in told for name in ("loss", "acc")]
            if number // DIGEST_STEPS != (number + steps) // DIGEST_STEPS:
                batch.digests = [Digest(number, 0, 0x7FFFFFFF, "0", number)]
            recorder.batch(process, batch, told)
        if tick % round(EVENT_S / TICK_S) == 0:
            recorder.event([Event(now_us / 1e6, "info", f"a sentence about what happened by step {number:,}")])
        number += steps
        now_us += steps * length_us
        since = time.thread_time()
        recorder.hurry()
        recorder.write()
        then = time.thread_time()
        wrote.append(then - since)
        while recorder.too_large:
            recorder.thin()
            now = time.thread_time()
            thinned.append(now - then)
            then = now
        if tick % max(1, count // 20) == 0 or tick == count - 1:
            size = sum(part.stat().st_size for part in path.parent.glob(path.name + "*"))
            peak = max(peak, size)
            print(f"{(tick + 1) * TICK_S / 3600:8.2f} h of the run  {number * args.ranks:>12,} records  "
                  f"{size / 1e6:8.1f} MB  {time.monotonic() - began:6.0f} s", flush=True)  # fmt: skip
    recorder.close()
    records = number * args.ranks
    print(f"\n{records:,} records; the file: {path.stat().st_size / 1e6:.1f} MB, at most {peak / 1e6:.1f} MB")
    each_us = [sum(told) / records * 1e6 for told in (wrote, thinned)]
    print(f"CPU time of a record: {each_us[0]:.1f} µs to write it, {each_us[1]:.1f} µs to merge it")
    for name, told in (("a write", wrote), ("merging", thinned or [0.0])):
        told.sort()
        print(f"{name} kept the hub for {told[len(told) // 2] * 1e3:.1f} ms (median), "
              f"{told[int(len(told) * 0.999)] * 1e3:.0f} ms (99.9%), {told[-1] * 1e3:.0f} ms at most")  # fmt: skip


def tables(path: Path) -> None:
    """Rows of each table, and what they take: by dbstat where SQLite was built with it."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall():
        (rows,) = db.execute(f"SELECT count(*) FROM {name}").fetchone()  # noqa: S608  its own
        if not rows:
            continue
        try:
            (size,) = db.execute("SELECT sum(pgsize) FROM dbstat WHERE name = ?", (name,)).fetchone()
            took = f"{size / 1e6:9.1f} MB  {size / rows:7.1f} bytes a row"
        except sqlite3.OperationalError:
            took = ""
        print(f"  {name:15} {rows:>11,} rows  {took}")
    (spans,) = db.execute("SELECT count(*) FROM (SELECT 1 FROM worst_ranks)").fetchone()
    worst = db.execute("SELECT worst_rank, count(*) FROM worst_ranks GROUP BY 1 ORDER BY 2 DESC LIMIT 1").fetchone()
    print(f"  worst rank of {spans:,} spans: {worst}")
    (merged,) = db.execute(
        "SELECT (SELECT coalesce(sum(count), 0) FROM step_blocks) + (SELECT coalesce(sum(steps), 0) FROM rollup)"
    ).fetchone()
    print(f"  steps that the tables tell of: {merged:,}")
    db.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--scale", type=float, default=0.05, help="of time and of the room for it")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--rate", type=float, default=10.0, help="steps a second; two at least")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", help="where to write; a temporary one otherwise")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ddpmon-week-", dir=args.folder) as folder:
        path = Path(folder) / "telemetry.db"
        write(args, path)
        tables(path)


if __name__ == "__main__":
    main()
