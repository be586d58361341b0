"""Measure what watching costs the training thread, in place.

    python benchmarks/overhead.py                      the whole table (about four minutes)
    python benchmarks/overhead.py --cases 1            a quick look

One run a line, in which blocks of steps take turns: torch as it came, with ddpmon's wrappers but nobody who listens,
and watched (ABCCBA; `steps.py` beside this file). What is compared is the training thread's CPU time: waiting for other
ranks is not in it, and a machine that slows down slows both of a pair. Caches are as cold as real work leaves them.
Printed: the median of what pairs of blocks differ by, and its 95% interval by resampling the pairs (bootstrap). Of a
block it is the half of the steps that other processes disturbed least.

What is inside the layers, the autograd engine and the optimizer's arithmetic is the same in all states and is taken
out, as its noise hides what is looked for. The last column has it in: what caches that we filled cost there too.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
from rates import result_of, watched

CASES = [(1, 10, 0.0), (1, 10, 5.0), (1, 10, 20.0), (2, 10, 0.0), (2, 10, 5.0), (1, 500, 0.0), (2, 500, 0.0)]
"""Ranks, parameters, and milliseconds of a step; 0: as short as the model allows."""
SECONDS = 20.0
HEAD = (
    f"  {'ranks':>5} {'parameters':>10} {'step':>9} {'its CPU':>9}   "
    f"{'wrappers alone':23} {'watched':24} {'by the whole step':26} pairs"
)


@dataclass(frozen=True)
class Estimate:
    """Microseconds, with the 95% interval."""

    us: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.us:+.1f} µs ({self.low:.1f} to {self.high:.1f})"


def in_place(
    command: list[str],
    parameters: int,
    step_ms: float,
    seconds: float,
    folder: str,
    environment: dict[str, str] | None = None,
) -> dict:
    """Return what one run measured: `step_ms`, and by cycle, of each state's two blocks, microseconds of each step."""
    arguments = ["--parameters", str(parameters), "--step-ms", str(step_ms), "--seconds", str(seconds), "--in-place"]
    return json.loads(result_of([*command, *arguments], folder, environment))


def blocks(measured: dict, state: str, whole: bool = False) -> np.ndarray:
    """Microseconds of a step of each block (cycle, first and second): of its least disturbed half.

    whole: with what is the same watched or not.
    """
    steps = np.sort(np.array([cycle[state] for cycle in measured["cycles"]])[..., int(whole)], axis=2)
    return steps[:, :, : steps.shape[2] // 2].mean(axis=2)


def added(measured: dict, state: str, whole: bool = False) -> Estimate:
    """Return what a state adds to a step of the first one."""
    first = next(iter(measured["cycles"][0]))
    return estimate((blocks(measured, state, whole) - blocks(measured, first, whole)).mean(axis=1))


def estimate(pairs: np.ndarray) -> Estimate:
    """The median of what pairs differ by, and its bootstrap interval."""
    drawn = np.random.default_rng(0).choice(pairs, (2000, len(pairs)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return Estimate(float(np.median(pairs)), float(low), float(high))


def row(nproc: int, parameters: int, measured: dict) -> str:
    base, middle, _ = measured["cycles"][0]
    cpu_us = float(np.median(blocks(measured, base, whole=True)))
    return (
        f"  {nproc:5} {parameters:10} {measured['step_ms']:6.2f} ms {cpu_us:6.0f} µs   {added(measured, middle)!s:23} "
        f"{added(measured, 'watched')!s:24} {added(measured, 'watched', whole=True)!s:26} {len(measured['cycles']):5}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="measured part of each line")
    parser.add_argument("--cases", type=int, nargs="+", help="lines of the table, from 1 on; default: all")
    args = parser.parse_args()

    print(f"load of the last minute {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("training thread, µs of CPU a step: median of pairs of blocks (95% interval):")
    print(HEAD)
    with tempfile.TemporaryDirectory(prefix="ddpmon-b") as home:
        for number, (nproc, parameters, step_ms) in enumerate(CASES, 1):
            if args.cases is None or number in args.cases:
                measured = in_place(watched(nproc), parameters, step_ms, args.seconds, home)
                print(row(nproc, parameters, measured), flush=True)


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"took {time.monotonic() - began:.0f} s")
