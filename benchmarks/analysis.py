"""Measure what the analysis costs a hub: a window of 600 steps from scratch, and each further second of a run.

    python benchmarks/analysis.py                     8, 64 and 1,024 ranks, in under a minute
    python benchmarks/analysis.py --updates 60        more updates
    python benchmarks/analysis.py --steps-per-s 50    more steps in each update

The synthetic ranks take 30 ms steps. One is late in the second half of the window, and each of them stalls at random,
so that every detector has work.
"From scratch" computes the findings and means of a window without known means. An update is what a hub does once a
second: it aligns the records of the new steps, splits their waits, advances the window and the engine, reads a new
sample of every rank's process, and judges again. The output shows medians, and the share of a core that updates take at
one and, as in a hub, at two a second. The last column is the additional cost of the history of every quantity, for the
charts.
"""

from __future__ import annotations

import copy
import dataclasses
import statistics
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
from launching import options

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.findings import all_findings
from ddpmon.analysis.slowness.engine import Engine
from ddpmon.analysis.steps.alignment import Aligner
from ddpmon.analysis.steps.summary import loss_trend, summarise
from ddpmon.analysis.steps.waits import split_waits
from ddpmon.analysis.steps.window import Window
from ddpmon.analysis.steps.world import World
from ddpmon.messages import PROTOCOL, Finding, Hello, Sample, Scalar, Step
from ddpmon.store.histories import Histories
from ddpmon.store.processes import MAX_SAMPLES, RankProcess
from ddpmon.store.samples import RecentSamples

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.worlds import own_times, records

STEPS = 600
LATE_MS = 10.0
STALL_MS, STALLS = 8.0, 0.03
"""Extra milliseconds of a stalled step of a rank, and the share of steps that stall."""
FROM_SCRATCH = 9


def made_up_steps(ranks: int, steps: int, first: int, late: bool) -> list[list[Step]]:
    """Return the records of some steps, by rank."""
    own_ms = own_times(steps, ranks, noise=0.03, seed=first)
    own_ms[..., 2] += STALL_MS * (np.random.default_rng(first).random((steps, ranks)) < STALLS)
    own_ms[:, min(1, ranks - 1), 2] += LATE_MS * late
    told = records(own_ms, transfer=3.0, loss=np.ones((steps, ranks)), first=first, start_us=first * 40_000)
    return list(told.values())


def sample(second: int) -> Sample:
    return Sample((100 + second) * 1_000_000, 90.0, 1 << 30, starved_share=0.01, major_faults_per_s=0.0)


class Hub:
    """The parts of a hub that analyse steps, for a given number of ranks."""

    def __init__(self, ranks: int) -> None:
        self._ranks = range(ranks)
        self._aligner, self._window, self._engine = Aligner(ranks), Window(STEPS), Engine()
        self._histories, self._recent = Histories(), RecentSamples()
        self._hosts = dict.fromkeys(self._ranks, "host")
        self._found: list[Finding] = []
        self._processes = [
            RankProcess(
                rank, 0, Hello(PROTOCOL, "run", rank, rank, ranks, 0, "host", 1 + rank, 4), trains_since_us=0,
                samples=deque((sample(second) for second in range(MAX_SAMPLES)), maxlen=MAX_SAMPLES),
            )
            for rank in self._ranks
        ]  # fmt: skip
        self.evidence = Evidence()
        self._new: list[World] = []

    def take(self, records: list[list[Step]]) -> None:
        """Add records to the window."""
        for rank, steps in enumerate(records):
            self._aligner.add(rank, steps)
        self._new = [split_waits(rows) for rows in self._aligner.pop_complete()]
        for part in self._new:
            self._window.append(part)
            self._engine.append(part)

    def read_samples(self, second: int) -> None:
        """Add a sample of every rank's process, and evaluate the last ones."""
        for one in self._processes:
            one.samples.append(sample(second))
        recent = [self._recent.summary_of(one) for one in self._processes]
        self.evidence = Evidence(
            memory=[told.memory for told in recent if told.memory],
            conditions=[told.conditions for told in recent],
            world_size=len(recent),
        )

    def judge(self, world: World) -> None:
        """Compute means and findings."""
        summarise(world)
        loss_trend(world)
        slowdowns = self._engine.judge(world, self._hosts)
        self._found = all_findings(world, dataclasses.replace(self.evidence, slowdowns=slowdowns), self._found)

    def judge_window(self) -> None:
        self.judge(self._window.as_world())

    def judge_from_scratch(self) -> None:
        self.judge(dataclasses.replace(self._window.as_world()))

    def keep_histories(self, second: int) -> None:
        """Record every quantity of the new steps, and a value that every script logs at every step."""
        for rank in self._ranks:
            self._histories.add_samples(rank, [sample(second)], 0.0)
        for part in self._new:
            logged = [Scalar(int(number), "accuracy", 0.5) for number in part.step]
            for rank in self._ranks:
                self._histories.add_logged(rank, logged)
            self._histories.add_steps(part, part.end_us / 1e6)
        self._histories.end_seconds()


def measure(ranks: int, updates: int, steps_per_s: int) -> dict[str, list[float]]:
    """Return the CPU milliseconds of every run of each part."""
    hub, took_ms = Hub(ranks), defaultdict[str, list[float]](list)

    def timed(part: str, work: Callable[[], None]) -> None:
        began = time.process_time()
        work()
        took_ms[part].append((time.process_time() - began) * 1e3)

    for first in range(0, STEPS, 50):
        hub.take(made_up_steps(ranks, 50, 2 + first, first >= STEPS // 2))
    for _ in range(FROM_SCRATCH):  # An engine judges the same steps only once.
        timed("from scratch", copy.deepcopy(hub).judge_from_scratch)
    hub.judge_window()
    for update in range(updates):
        new = made_up_steps(ranks, steps_per_s, 2 + STEPS + update * steps_per_s, late=True)
        timed("records", lambda new=new: hub.take(new))
        timed("samples", lambda update=update: hub.read_samples(MAX_SAMPLES + update))
        timed("findings", hub.judge_window)
        timed("history", lambda update=update: hub.keep_histories(MAX_SAMPLES + update))
    return took_ms


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 1024])
    parser.add_argument("--updates", type=int, default=15)
    parser.add_argument("--steps-per-s", type=int, default=5)
    args = parser.parse_args()
    print(
        f"window of {STEPS} steps; {args.steps_per_s} new steps in an update; CPU time, medians of {FROM_SCRATCH} from"
        f" scratch and of {args.updates} updates"
    )
    print("ranks  from scratch     update  its records  its samples  its findings  of a core at 1/s    2/s    history")
    for ranks in args.ranks:
        took_ms = measure(ranks, args.updates, args.steps_per_s)
        # Samples are summarised every fifth second, of a fifth of the ranks at a time.
        samples = statistics.fmean(took_ms["samples"])
        scratch, records, judge, history = (
            statistics.median(took_ms[part]) for part in ("from scratch", "records", "findings", "history")
        )
        update = records + samples + judge
        print(
            f"{ranks:5}  {scratch:9.1f} ms  {update:6.1f} ms  {records:8.1f} ms  {samples:8.1f} ms  {judge:9.1f} ms"
            f"  {update / 1e3:16.1%}  {(update + judge) / 1e3:5.1%}  {history:6.1f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
