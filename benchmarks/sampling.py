"""Measure what sampling the stack costs the sampled rank, in place.

    python benchmarks/sampling.py                 steps of 20 and of 100 ms: some three minutes
    python benchmarks/sampling.py --seconds 20

One rank under ddpmon, whose blocks of steps take turns: sampled and not (ABBA). The script asks the probe's sampler
itself, as the hub would. A step is Python and torch's arithmetic in equal parts: samples need the GIL. Printed: how
much longer a sampled step takes, in CPU time of the training thread and by the clock: the median of
pairs of blocks, with its 95% interval.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from overhead import estimate
from rates import result_of, watched

STEP_MS = (20.0, 100.0)
BLOCK_S = 1.0
SETTLE = 2
"""Steps of a block that are not counted: those in which sampling begins or ends."""


def train(step_ms: float, seconds: float, result: Path) -> None:
    """Train on one rank, block by block, and write down each block's mean step."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from ddpmon.probe import arm

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    square = torch.randn(128, 128)

    def work(rounds: int) -> None:
        for _ in range(rounds):
            square.mm(square)
            sum(range(3000))

    def step(rounds: int) -> None:
        work(rounds)
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    began = time.perf_counter()
    work(200)
    rounds = max(1, round(200 * step_ms / 1e3 / (time.perf_counter() - began)))
    for _ in range(20):
        step(rounds)
    sampler = arm._sender._stack_sampler
    blocks: list[tuple[bool, float, float]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for sampled in (False, True, True, False):
            if sampled:
                sampler.request(3600.0, time.monotonic())
            else:
                sampler._reset()
            count, block_end = 0, time.monotonic() + BLOCK_S
            while time.monotonic() < block_end or count <= SETTLE:
                if count == SETTLE:
                    cpu, clock = time.thread_time(), time.perf_counter()
                step(rounds)
                count += 1
            done = count - SETTLE
            blocks.append((sampled, (time.thread_time() - cpu) / done, (time.perf_counter() - clock) / done))
    sampler._reset()
    result.write_text(json.dumps(blocks))
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each measurement")
    parser.add_argument("--step-ms", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.result is not None:
        train(arguments.step_ms, arguments.seconds, arguments.result)
        return
    print("| step | training thread's CPU | by the clock | pairs |\n|---|---|---|---|")
    for step_ms in STEP_MS:
        with tempfile.TemporaryDirectory(prefix="ddpmon-b") as home:
            command = [*watched(1, Path(__file__)), "--step-ms", str(step_ms), "--seconds", str(arguments.seconds)]
            measured = np.array(json.loads(result_of(command, home)))
        pairs = measured[:, 1:].reshape(-1, 2, 2)  # [pair, block, (CPU, clock)]
        pairs[1::2] = pairs[1::2, ::-1]
        shares = 100 * (pairs[:, 1] / pairs[:, 0] - 1)
        cpu, clock = (str(estimate(shares[:, which])).replace(" µs", "%") for which in (0, 1))
        print(f"| {step_ms:.0f} ms | {cpu} | {clock} | {len(pairs)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
