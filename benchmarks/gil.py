"""Measure how long the training thread is held up: gaps in a loop that only reads the clock, bare and watched.

    python benchmarks/gil.py                about two minutes

One rank takes 1,000 optimizer steps a second and spins in between, so that the sending thread always has something to
send and always has to fight for the GIL. A gap is the time between two readings of the clock, less the time that the
thread could have run and got no core (`/proc/self/task/*/schedstat`): what is left is a step of its own, some 0.1 ms,
and waiting for the GIL, as long as the other thread keeps it. Gaps of the steps alone show in the bare runs; what
watching adds shows as more of them. Third, as a check of the measurement itself, bare runs in which another thread
keeps the GIL for 0.3 ms ten times a second.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from time import perf_counter_ns

from rates import bare, result_of, watched

EDGES_MS = (0.2, 0.3, 0.5, 1.0, 5.0)
DISTURBED_MS = 0.3


def rank(seconds: float, result: str, disturbed: bool) -> None:
    """Runs inside the rank."""
    import torch

    from ddpmon import api

    if disturbed:
        threading.Thread(target=disturb, daemon=True).start()

    scheduled = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)

    def waited_for_a_core() -> int:
        return int(os.pread(scheduled, 128, 0).split()[1])

    weight = torch.nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    for _ in range(500):
        weight.square().sum().backward()
        optimizer.step()
    gaps: list[int] = []
    waited = waited_for_a_core()
    began = last = perf_counter_ns()
    end = began + int(seconds * 1e9)
    done = 0
    while last < end:
        now = perf_counter_ns()
        if now - last > EDGES_MS[0] * 1e6:
            before, waited = waited, waited_for_a_core()
            gaps.append(now - last - (waited - before))
            now = perf_counter_ns()
        last = now
        if now - began > done * 1_000_000:
            weight.square().sum().backward()
            optimizer.step()
            done += 1
    if "DDPMON_RUN_ID" in os.environ and not api.attached():
        raise SystemExit("the probe has left: nothing was measured")
    counts = {str(edge): sum(gap > edge * 1e6 for gap in gaps) / seconds for edge in EDGES_MS}
    Path(result).write_text(json.dumps({"counts": counts, "longest_ms": max(gaps, default=0) / 1e6}))


def disturb() -> None:
    """Keep the GIL for DISTURBED_MS, again and again; one call of C code never hands it over."""
    numbers = range(1000)
    took_ns = []
    for _ in range(100):
        began = perf_counter_ns()
        sum(numbers)
        took_ns.append(perf_counter_ns() - began)
    numbers = range(int(DISTURBED_MS * 1e6 / min(took_ns) * len(numbers)))
    while True:
        time.sleep(0.1)
        sum(numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    parser.add_argument("--disturbed", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.result:
        rank(args.seconds, args.result, args.disturbed)
        return
    script = Path(__file__)
    commands = {"bare": bare(1, script), "watched": watched(1, script), "disturbed": [*bare(1, script), "--disturbed"]}
    facts: dict[str, list[dict]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory(prefix="ddpmon-g") as home:
        for _ in range(args.pairs):
            for name, command in commands.items():
                facts[name].append(json.loads(result_of([*command, "--seconds", str(args.seconds)], home)))
    for name, runs in facts.items():
        counts = "  ".join(
            f"over {edge} ms: {statistics.median(run['counts'][str(edge)] for run in runs):.1f}" for edge in EDGES_MS
        )
        longest = statistics.median(run["longest_ms"] for run in runs)
        print(f"{name:9} gaps a second, median of {args.pairs} runs: {counts}; longest {longest:.1f} ms")


if __name__ == "__main__":
    main()
