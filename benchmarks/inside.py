"""The CPU that ddpmon takes inside a rank, background thread included: at a steady rate of steps, and when idle.

    python benchmarks/inside.py                 about three minutes
    python benchmarks/inside.py --pairs 1 --seconds 5

One rank steps a tiny DDP model at a fixed rate and measures its own process's CPU time over some seconds, bare under
torchrun and watched under `ddpmon run --headless`, alternating. What watching adds is the difference of the medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS_PER_S = 100


def rank(seconds: float, steps_per_s: float, result: str) -> None:
    """Runs inside the rank."""
    import time

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(5))))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.ones(8, 32)

    def step() -> None:
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(50):
        step()
    time.sleep(1)
    began, cpu = time.monotonic(), time.process_time()
    done = 0
    while (now := time.monotonic()) - began < seconds:
        if steps_per_s and (now - began) * steps_per_s >= done:
            step()
            done += 1
        else:
            time.sleep(0.001 if steps_per_s else 0.2)
    used = time.process_time() - cpu
    Path(result).write_text(f"{used / seconds} {done}")
    dist.destroy_process_group()


def measure(watched: bool, seconds: float, steps_per_s: float, home: str) -> float:
    """Share of a core that the rank's process used."""
    launcher = (
        [sys.executable, "-m", "ddpmon", "run", "--headless", "--nproc", "1"]
        if watched
        else [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    )
    with tempfile.NamedTemporaryFile("r", suffix=".share") as result:
        subprocess.run(
            [*launcher, __file__, "--inside", result.name, "--seconds", str(seconds), "--rate", str(steps_per_s)],
            env=os.environ | {"DDPMON_HOME": home, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        return float(result.read().split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, default=STEPS_PER_S, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        rank(args.seconds, args.rate, args.inside)
        return
    with tempfile.TemporaryDirectory(prefix="ddpmon-i") as home:
        for rate in (STEPS_PER_S, 0):
            shares: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(args.pairs):
                for watched in (False, True):
                    shares[watched].append(measure(watched, args.seconds, rate, home))
            bare, watched_share = (statistics.median(shares[kind]) for kind in (False, True))
            added = watched_share - bare
            what = f"{added / rate * 1e6:.1f} µs of CPU a step" if rate else f"{added:.2%} of a core"
            print(
                f"{f'{rate} steps/s' if rate else 'idle':12} bare {bare:.2%} watched {watched_share:.2%} of a core, "
                f"{args.pairs} runs each: ddpmon adds {what}",
                flush=True,
            )


if __name__ == "__main__":
    main()
