"""Measure what it costs a hub to record every quantity over time, for the charts.

    python benchmarks/history.py                      8, 64 and 1,024 ranks, in under a minute
    python benchmarks/history.py --steps-per-s 50     more steps in each update

Each update is half a second of a made-up run, as a hub takes it: steps of every rank, a sample of each a second, and a
value that every script logs at every step. Printed are the medians of an update's CPU time and of what one viewer's
chart costs, the share of a core that two updates a second take, and how much memory it is after so many steps.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable

import msgspec
import numpy as np

from ddpmon.analysis.steps.table import Rows
from ddpmon.analysis.steps.waits import split
from ddpmon.messages import SYNC_GRADIENTS, Sample, Scalar, Step, Sync
from ddpmon.store.histories import Histories

STEP_US = 30_000


def part(ranks: int, first: int, steps: int):
    """Some steps of a world in which every rank told of loss and samples."""
    rng = np.random.default_rng(first)
    own = (27_000 * (1 + 0.03 * rng.random((steps, ranks)))).astype(int)
    length = own.max(axis=1) + 3000
    end = STEP_US * 40 + first * STEP_US + np.cumsum(length)
    told = [
        [
            Step(
                first + i, int(end[i]), int(length[i]), 0, 0, int(own[i, rank]), 0, 0,
                [Sync(SYNC_GRADIENTS, int(own[i, rank]), int(length[i]), 1 << 20)], float(rng.random()), 64,
            )
            for rank in range(ranks)
        ]
        for i in range(steps)
    ]  # fmt: skip
    return split(Rows(tuple(range(ranks)), told))


def cpu_ms(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1e3


def measure(ranks: int, updates: int, steps: int) -> str:
    histories = Histories()
    costs, step = [], 0
    parts = [part(ranks, 1 + i * steps, steps) for i in range(10)]
    for update in range(updates):
        new = parts[update % len(parts)]
        numbers = step + 1 + np.arange(steps)
        new = dataclasses.replace(new, step=numbers)
        samples = [Sample(update * 500_000, 99.0, 1 << 30, 80.0, 1 << 34)] if update % 2 else []
        scalars = [Scalar(int(number), "accuracy", 0.5) for number in numbers]

        def take(new=new, samples=samples, scalars=scalars, numbers=numbers) -> None:
            for rank in range(ranks):
                histories.add_samples(rank, samples, 0.0)
                histories.add_logged(rank, scalars)
            histories.add_steps(new, numbers * STEP_US / 1e6)
            histories.end_seconds()

        costs.append(cpu_ms(take))
        step += steps
    cost = statistics.median(costs)
    chart = statistics.median(cpu_ms(lambda: histories.view("own", None, None, 300)) for _ in range(50))
    saved = len(msgspec.msgpack.encode(histories.saved())) / 1e6
    return f"{ranks:5}  {cost:7.2f} ms  {2 * cost / 1e3:13.2%}  {chart:6.2f} ms  {saved:7.2f} MB after {step:,} steps"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 1024])
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--steps-per-s", type=int, default=10)
    args = parser.parse_args()
    print(f"{args.steps_per_s} steps a second; CPU time, medians of {args.updates} updates and of 50 charts")
    print("ranks      update  of a core, 2/s      chart   memory")
    for ranks in args.ranks:
        print(measure(ranks, args.updates, max(1, args.steps_per_s // 2)), flush=True)


if __name__ == "__main__":
    main()
