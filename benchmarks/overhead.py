"""What watching costs: bare torchrun against `ddpmon run --headless`, and the training thread's own time per step.

    python benchmarks/overhead.py                      the whole table (about six minutes)
    python benchmarks/overhead.py --pairs 3 --nproc 2  a quick look

Bare and watched runs of the same script alternate, so that a machine that slows down slows both. Steps per second are
measured inside the script, after a warm-up, by `steps.py` beside this file. Printed: medians, the median of the pair
ratios, and their spread. The training thread's cost is the time its listening calls take in one loop without torch's
own work, in microseconds of a quiet core.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

from rates import SCRIPT, bare, compare, watched


def thread_cost(parameters: int) -> float:
    """Microseconds that the listening calls of one step take on the training thread."""
    return _measured("--thread-cost", str(parameters))


def phase_cost() -> float:
    """Microseconds that one `with ddpmon.phase(…)` takes there."""
    return _measured("--phase-cost")


def _measured(*what: str) -> float:
    measured = subprocess.run(
        [sys.executable, str(SCRIPT), *what],
        env={k: v for k, v in os.environ.items() if not k.startswith("DDPMON")} | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(measured.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured part of each run")
    parser.add_argument("--step-ms", type=float, nargs="+", default=[5.0])
    parser.add_argument("--no-runs", action="store_true", help="only the training thread's cost")
    args = parser.parse_args()

    print(f"{'training thread, per step':40}  median of 5")
    for parameters in (10, 500):
        cost = statistics.median(thread_cost(parameters) for _ in range(5))
        print(f"  one DDP model of {parameters:3} parameters{'':10}  {cost:5.1f} µs")
    cost = statistics.median(phase_cost() for _ in range(5))
    print(f"  {'each `with ddpmon.phase(…)`':38}  {cost:5.1f} µs")
    if args.no_runs:
        return
    with tempfile.TemporaryDirectory(prefix="ddpmon-b") as home:
        for step_ms in args.step_ms:
            arguments = ["--step-ms", str(step_ms), "--seconds", str(args.seconds)]
            commands = {"bare": [*bare(args.nproc), *arguments], "watched": [*watched(args.nproc), *arguments]}
            compare(commands, args.pairs, home, f"{args.nproc} ranks")


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"took {time.monotonic() - began:.0f} s")
