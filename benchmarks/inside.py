"""The CPU that ddpmon takes inside a rank, background thread included: at a steady rate of steps, and when idle.

    python benchmarks/inside.py                 about two minutes
    python benchmarks/inside.py --runs 1 --seconds 5

One rank steps a tiny DDP model at a fixed rate under `ddpmon run --headless`. The kernel counts the CPU time of each
thread (`/proc/self/task/*/schedstat`): that of the sending thread and of ZeroMQ's is ddpmon's. To it comes what
watching costs the training thread, as `overhead.py` measures it: in a paced loop it would drown in the cost of waking
up.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path

from overhead import SECONDS, added, in_place
from rates import result_of, watched

STEPS_PER_S = 100.0
PARAMETERS = 10


def rank(seconds: float, steps_per_s: float, result: str) -> None:
    """Runs inside the rank."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    layers = [torch.nn.Linear(32, 32) for _ in range(PARAMETERS // 2)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
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
    began, cpu_ns = time.monotonic(), background_ns()
    done = 0
    while (now := time.monotonic()) - began < seconds:
        if steps_per_s and (now - began) * steps_per_s >= done:
            step()
            done += 1
        else:
            time.sleep(0.001 if steps_per_s else 0.2)
    Path(result).write_text(repr((background_ns() - cpu_ns) / 1e9 / seconds))
    dist.barrier()
    dist.destroy_process_group()


def background_ns() -> int:
    """Nanoseconds of CPU that ddpmon's own threads took so far."""
    ours = {thread.native_id for thread in threading.enumerate() if thread.name == "ddpmon"}
    return sum(
        int((task / "schedstat").read_text().split()[0])
        for task in Path("/proc/self/task").iterdir()
        if int(task.name) in ours or (task / "comm").read_text().startswith("ZMQ")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, default=STEPS_PER_S, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.result:
        rank(args.seconds, args.rate, args.result)
        return
    with tempfile.TemporaryDirectory(prefix="ddpmon-i") as home:
        training_us = added(in_place(watched(1), PARAMETERS, 0.0, SECONDS, home), "watched", whole=True).us
        for rate in (STEPS_PER_S, 0.0):
            command = [*watched(1, Path(__file__)), "--seconds", str(args.seconds), "--rate", str(rate)]
            share = statistics.median(float(result_of(command, home)) for _ in range(args.runs))
            if rate:
                background_us = share / rate * 1e6
                parts = f"background {background_us:.1f} + training thread {training_us:.1f}"
                print(f"{rate:.0f} steps/s: {parts} = {background_us + training_us:.1f} µs of CPU a step", flush=True)
            else:
                print(f"idle: {share:.2%} of a core")


if __name__ == "__main__":
    main()
