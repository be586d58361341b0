"""What watching costs: the training thread's CPU in place, and speed against bare torchrun.

    python benchmarks/overhead.py                      the whole table (about eight minutes)
    python benchmarks/overhead.py --cases 1 --pairs 0  a quick look

In place: one run, in which blocks of 25 steps take turns: torch as it came, with ddpmon's wrappers but nobody who
listens, and watched (ABCCBA; `steps.py` beside this file). What is compared is the training thread's CPU time of a
step that other processes disturb little: the first decile of the steps of a sixth of the run, six times. Caches are as
cold as real work leaves them.

Pairs: bare and watched runs of the same script alternate, so that a machine that slows down slows both. Steps per
second are measured inside the script, after a warm-up. Printed: medians, the median of the pair ratios, their spread.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time

from rates import bare, compare, result_of, watched

CASES = [(1, 10, 0.0), (1, 10, 5.0), (1, 10, 20.0), (2, 10, 0.0), (2, 10, 5.0), (1, 500, 0.0), (2, 500, 0.0)]
"""Ranks, parameters, and milliseconds of a step; 0: as short as the model allows."""
CYCLES = 60
PARTS = 6
"""Of a run, each with a figure of its own: what they stray is printed."""
HEAD = f"  {'ranks':>5} {'parameters':>10} {'step':>8}  {'bare, CPU':>10}  {'wrappers':>8}  watched"


def in_place(nproc: int, parameters: int, step_ms: float, folder: str, *more: str, cycles: int = CYCLES) -> dict:
    """What one watched run measured: `step_ms`, and of each state, by cycle, microseconds of each step."""
    arguments = ["--parameters", str(parameters), "--step-ms", str(step_ms), "--cycles", str(cycles), *more]
    return json.loads(result_of([*watched(nproc), *arguments], folder))


def added(measured: dict, state: str) -> list[float]:
    """Microseconds that a state adds to a step of the first one, by part of the run."""
    first = next(iter(measured["cycles"][0]))
    return [mine - its for mine, its in zip(undisturbed(measured, state), undisturbed(measured, first), strict=True)]


def undisturbed(measured: dict, state: str) -> list[float]:
    """Microseconds of the first decile of the steps in a state, by part of the run."""
    cycles = measured["cycles"]
    parts = [cycles[number::PARTS] for number in range(min(PARTS, len(cycles)))]
    return [statistics.quantiles((us for cycle in part for us in cycle[state]), n=10)[0] for part in parts]


def row(nproc: int, parameters: int, measured: dict) -> str:
    """One line: medians over the parts of the run; of what is added, the lowest and highest too."""
    bare_us = statistics.median(undisturbed(measured, "bare"))
    wrappers = statistics.median(added(measured, "silent"))
    watched_us = added(measured, "watched")
    low, middle, high = min(watched_us), statistics.median(watched_us), max(watched_us)
    return (
        f"  {nproc:5} {parameters:10} {measured['step_ms']:5.2f} ms  {bare_us:7.0f} µs  {wrappers:+5.1f} µs  "
        f"{middle:+6.1f} µs ({low:.1f} to {high:.1f}), {middle / bare_us:.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=CYCLES, help="in place, of 150 steps each; 0: none")
    parser.add_argument("--cases", type=int, default=len(CASES), help="in place, so many of the table's lines")
    parser.add_argument("--pairs", type=int, default=7, help="0: none")
    parser.add_argument("--nproc", type=int, nargs="+", default=[1, 2], help="ranks of the pairs")
    parser.add_argument("--seconds", type=float, default=8.0, help="measured part of each run of a pair")
    parser.add_argument("--step-ms", type=float, nargs="+", default=[5.0], help="of the pairs")
    args = parser.parse_args()

    print(f"load of the last minute {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="ddpmon-b") as home:
        if args.cycles:
            print(
                f"training thread, µs of CPU a step, {args.cycles} cycles, median of {PARTS} parts (lowest to highest):"
            )
            print(HEAD)
            for nproc, parameters, step_ms in CASES[: args.cases]:
                measured = in_place(nproc, parameters, step_ms, home, cycles=args.cycles)
                print(row(nproc, parameters, measured), flush=True)
        for nproc in args.nproc if args.pairs else ():
            for step_ms in args.step_ms:
                arguments = ["--step-ms", str(step_ms), "--seconds", str(args.seconds)]
                commands = {"bare": [*bare(nproc), *arguments], "watched": [*watched(nproc), *arguments]}
                compare(commands, args.pairs, home, f"{nproc} ranks")


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"took {time.monotonic() - began:.0f} s")
