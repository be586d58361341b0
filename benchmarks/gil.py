"""How long the training thread is held up: gaps in a loop that does nothing but read the clock, bare and watched.

    python benchmarks/gil.py                about two minutes

One rank takes 1,000 optimizer steps a second and spins in between, so that the sending thread always has something to
send and always has to fight for the GIL. A gap is the time between two readings of the clock. The machine's own
interruptions show in the bare runs; what watching adds shows as more gaps of a length. Python hands the GIL over after
5 ms at the latest, so a gap is as long as the other thread keeps it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

EDGES_MS = (0.2, 0.5, 1.0, 5.0)


def rank(seconds: float, result: str) -> None:
    """Runs inside the rank."""
    from time import perf_counter_ns

    import torch

    weight = torch.nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    for _ in range(500):
        weight.square().sum().backward()
        optimizer.step()
    gaps: list[int] = []
    began = last = perf_counter_ns()
    end = began + int(seconds * 1e9)
    done = 0
    while last < end:
        now = perf_counter_ns()
        if now - last > 100_000:
            gaps.append(now - last)
        last = now
        if now - began > done * 1_000_000:
            weight.square().sum().backward()
            optimizer.step()
            done += 1
            last = perf_counter_ns()
    counts = {str(edge): sum(gap > edge * 1e6 for gap in gaps) / seconds for edge in EDGES_MS}
    Path(result).write_text(json.dumps({"counts": counts, "longest_ms": max(gaps, default=0) / 1e6}))


def measure(watched: bool, seconds: float, home: str) -> dict:
    launcher = (
        [sys.executable, "-m", "ddpmon", "run", "--headless", "--nproc", "1"]
        if watched
        else [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    )
    with tempfile.NamedTemporaryFile("r", suffix=".gaps") as result:
        subprocess.run(
            [*launcher, __file__, "--inside", result.name, "--seconds", str(seconds)],
            env=os.environ | {"DDPMON_HOME": home, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        return json.loads(result.read())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        rank(args.seconds, args.inside)
        return
    with tempfile.TemporaryDirectory(prefix="ddpmon-i") as home:
        facts: dict[bool, list[dict]] = {False: [], True: []}
        for _ in range(args.pairs):
            for watched in (False, True):
                facts[watched].append(measure(watched, args.seconds, home))
        for watched in (False, True):
            counts = "  ".join(
                f"over {edge} ms: {statistics.median(f['counts'][str(edge)] for f in facts[watched]):.1f}"
                for edge in EDGES_MS
            )
            longest = statistics.median(f["longest_ms"] for f in facts[watched])
            name = "watched" if watched else "bare"
            print(f"{name:8} gaps a second, median of {args.pairs} runs: {counts}; longest {longest:.1f} ms")


if __name__ == "__main__":
    main()
