"""Measure what the analysis costs: a window of 600 steps from scratch, and each further second of a run.

    python benchmarks/analysis.py                     8, 64 and 1,024 ranks, in under a minute
    python benchmarks/analysis.py --updates 60        more updates
    python benchmarks/analysis.py --steps-per-s 50    more steps in each of them

The made-up ranks take 30 ms steps; one is late in the second half of the window, and each of them stalls now and then
without any rhythm, so that every detector has work.
"From scratch" is findings and means of a window of which no means are known. An update is what a hub does once a
second: it aligns the records of the steps that have come, splits their waits, moves the window and the engine on, takes
a new sample of every rank's process, and says again what is found. Printed are medians, and what share of a core one
update a second takes, and looking at it twice, as a hub does.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.findings import findings
from ddpmon.analysis.slowness.engine import Engine
from ddpmon.analysis.steps.alignment import Aligner
from ddpmon.analysis.steps.summary import loss_trend, summarise
from ddpmon.analysis.steps.waits import split
from ddpmon.analysis.steps.window import Window
from ddpmon.messages import PROTOCOL, SYNC_GRADIENTS, Hello, Sample, Step, Sync
from ddpmon.store.processes import SAMPLES, RankProcess
from ddpmon.store.samples import RecentSamples

STEPS = 600
OWN_MS = (2.0, 8.0, 15.0, 1.0, 1.0)
LATE_MS = 10.0
STALL_MS, STALLS = 8.0, 0.03
"""Extra milliseconds of a stalled step of a rank, and the share of steps that stall."""
TRANSFER_US = 3000


@dataclass(frozen=True)
class Cost:
    scratch_ms: float
    rows_ms: float
    """Time of an update for records to enter the window."""
    evidence_ms: float
    """Time of an update for reading the samples of the ranks' processes."""
    judge_ms: float
    """Time of an update for means and findings."""


def told(ranks: int, steps: int, first: int, late: bool) -> list[list[Step]]:
    """Records of some steps, by rank."""
    rng = np.random.default_rng(first)
    phases = np.array(OWN_MS) * (1 + 0.03 * np.abs(rng.standard_normal((steps, ranks, 5))))
    phases[..., 2] += STALL_MS * (rng.random((steps, ranks)) < STALLS)
    phases[:, min(1, ranks - 1), 2] += LATE_MS * late
    own_us = (phases * 1e3).astype(int)
    arrival = own_us.sum(axis=2)
    length = arrival.max(axis=1) + TRANSFER_US
    end = 1_000_000 + first * 40_000 + np.cumsum(length)
    return [
        [
            Step(
                first + i,
                int(end[i]),
                int(length[i]),
                *own_us[i, rank].tolist(),
                [Sync(SYNC_GRADIENTS, int(arrival[i, rank]), int(length[i]), 1 << 20)],
                loss=1.0,
                samples=64,
            )
            for i in range(steps)
        ]
        for rank in range(ranks)
    ]


def measure(ranks: int, updates: int, steps_per_s: int) -> Cost:
    aligner, window, engine = Aligner(ranks), Window(STEPS), Engine()
    hosts = dict.fromkeys(range(ranks), "host")
    for first in range(0, STEPS, 50):
        _take(aligner, window, engine, told(ranks, 50, 2 + first, first >= STEPS // 2))
    world = window.world()
    nothing = Evidence(slowdowns=engine.judge(world, hosts))
    found = findings(world, nothing)
    scratch = [_ms(lambda: _judge(dataclasses.replace(world), engine, hosts, found, nothing)) for _ in range(9)]
    ranks_told = [process(rank, ranks) for rank in range(ranks)]
    recent_samples = RecentSamples()
    rows, evidence, judge = [], [], []
    for update in range(updates):
        new = told(ranks, steps_per_s, 2 + STEPS + update * steps_per_s, late=True)
        rows.append(_ms(lambda new=new: _take(aligner, window, engine, new)))
        for one in ranks_told:
            one.samples.append(sample(SAMPLES + update))
        evidence.append(_ms(lambda: _evidence(recent_samples, ranks_told)))
        known = _evidence(recent_samples, ranks_told)
        judge.append(_ms(lambda known=known: _judge(window.world(), engine, hosts, found, known)))
    # Samples are summarised every fifth second, of a fifth of the ranks at a time.
    return Cost(
        statistics.median(scratch), statistics.median(rows), statistics.fmean(evidence), statistics.median(judge)
    )


def process(rank: int, ranks: int) -> RankProcess:
    hello = Hello(PROTOCOL, "run", rank, rank, ranks, 0, "host", 1 + rank, 4)
    samples = deque((sample(second) for second in range(SAMPLES)), maxlen=SAMPLES)
    return RankProcess(rank, 0, hello, samples=samples, trains_since_us=0)


def sample(second: int) -> Sample:
    return Sample((100 + second) * 1_000_000, 90.0, 1 << 30, starved_share=0.01, major_faults_per_s=0.0)


def _evidence(recent_samples: RecentSamples, ranks: list[RankProcess]) -> Evidence:
    recent = [(one, recent_samples.of(one)) for one in ranks]
    return Evidence(
        memory=[told.memory for _, told in recent if told.memory],
        conditions=[told.conditions for _, told in recent],
        world_size=len(ranks),
    )


def _take(aligner: Aligner, window: Window, engine: Engine, records: list[list[Step]]) -> None:
    for rank, steps in enumerate(records):
        aligner.add(rank, steps)
    for rows in aligner.pop_complete():
        part = split(rows)
        window.append(part)
        engine.append(part)


def _judge(world, engine, hosts, before, evidence) -> None:
    summarise(world)
    loss_trend(world)
    findings(world, dataclasses.replace(evidence, slowdowns=engine.judge(world, hosts)), before)


def _ms(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 1024])
    parser.add_argument("--updates", type=int, default=15)
    parser.add_argument("--steps-per-s", type=int, default=5)
    args = parser.parse_args()
    print(
        f"window of {STEPS} steps; {args.steps_per_s} new steps in an update; CPU time, medians of 9 from scratch and"
        f" of {args.updates} updates"
    )
    print("ranks  from scratch     update  its records  its samples  its findings  of a core at 1/s    2/s")
    for ranks in args.ranks:
        cost = measure(ranks, args.updates, args.steps_per_s)
        update = cost.rows_ms + cost.evidence_ms + cost.judge_ms
        print(
            f"{ranks:5}  {cost.scratch_ms:9.1f} ms  {update:6.1f} ms  {cost.rows_ms:8.1f} ms"
            f"  {cost.evidence_ms:8.1f} ms  {cost.judge_ms:9.1f} ms"
            f"  {update / 1e3:16.1%}  {(update + cost.judge_ms) / 1e3:5.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
