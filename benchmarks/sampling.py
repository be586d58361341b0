"""Measure what sampling the stack costs the sampled rank, in place.

    python benchmarks/sampling.py                 steps of 20 and of 100 ms: some three minutes
    python benchmarks/sampling.py --seconds 20
    python benchmarks/sampling.py --bias          how often code that keeps the GIL is seen: two minutes

One rank under ddpmon, whose blocks of steps take turns: sampled and not (ABBA). The script asks the probe's sampler
itself, as the hub would. A step is Python and torch's arithmetic in equal parts: samples need the GIL. Printed: how
much longer a sampled step takes, in CPU time of the training thread and by the clock: the median of
pairs of blocks, with its 95% interval.

--bias: a thread searches with a regular expression, which keeps the GIL, and then sleeps, again and again. Printed: the
share of the time that it searched, and the share of samples that show it, with the timer that signals it and without.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import threading
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


def bias(letters: int, seconds: float, *, signals: bool) -> tuple[float, float, float]:
    """Return milliseconds of a search, the share of the time in searches, and the share of samples that show them."""
    from ddpmon.probe import stack_timer
    from ddpmon.probe.account import Account
    from ddpmon.probe.identity import Identity
    from ddpmon.probe.listener import Listener
    from ddpmon.probe.records import RawStep
    from ddpmon.probe.stack_sampler import StackSampler

    listener = Listener(Identity("bias"))
    listener.identity.change(rank=0)
    listener.defer()
    sampler, spent, over, there = StackSampler(listener), [0.0, 0.0, 0.0], threading.Event(), threading.Event()

    def searches() -> None:
        re.match(r"(a+)+$", "a" * letters + "b")

    def trains() -> None:
        listener._adopt_thread()
        listener.record(Account.phase_fails)  # any note: from then on it is in a phase
        there.set()
        while not over.is_set():
            began = time.monotonic()
            searches()
            searched = time.monotonic()
            time.sleep(0.004)
            spent[:] = spent[0] + 1, spent[1] + searched - began, spent[2] + time.monotonic() - began

    thread = threading.Thread(target=trains)
    thread.start()
    there.wait()
    began = time.monotonic()
    sampler.request(seconds, began)
    if not signals and sampler._timer is not None:
        sampler._timer.stop()
    sampler.rest(threading.Event(), seconds)
    over.set()
    thread.join()
    while listener.journal.read(100):
        pass
    sampler.step_ended(RawStep(int(began * 1e9) + 1, time.monotonic_ns(), step=1))
    result = sampler.result()
    stack_timer.disarm()
    assert result is not None
    seen = sum(one.count for one in result.stacks if any(frame.endswith(" searches") for frame in one.frames))
    return 1e3 * spent[1] / spent[0], spent[1] / spent[2], seen / result.count


def print_bias(seconds: float) -> None:
    print("| a search takes | share of the time | of samples | without the signal |\n|---|---|---|---|")
    for letters in (14, 15, 16, 17):
        (took, true, seen), (_, true_too, without) = (bias(letters, seconds, signals=on) for on in (True, False))
        print(f"| {took:.1f} ms | {true:.0%}, {true_too:.0%} | {seen:.0%} | {without:.0%} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each measurement")
    parser.add_argument("--bias", action="store_true", help="how often code that keeps the GIL is seen")
    parser.add_argument("--step-ms", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bias:
        print_bias(min(arguments.seconds, 15.0))
        return
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
