"""Measure what ddpmon costs in a rank.

    python benchmarks/rank_cost.py in-place             CPU of the training thread: the whole table, four minutes
    python benchmarks/rank_cost.py in-place --cases 1   a quick look
    python benchmarks/rank_cost.py background           CPU of all of ddpmon's threads, at a steady rate and idle
    python benchmarks/rank_cost.py bytecodes            Python bytecodes of a step, the same on a busy machine
    python benchmarks/rank_cost.py passes               CPU of the reads at the beginning and end of a DataLoader
    python benchmarks/rank_cost.py gaps                 how long the training thread waits for the GIL
    python benchmarks/rank_cost.py sampling             what samples of its stack cost a rank
    python benchmarks/rank_cost.py sampling-bias        how often samples show code that holds the GIL

in-place: three states alternate in blocks of steps: unchanged torch, torch with ddpmon's wrappers but without a
listener, and watched (ABCCBA; `rank_measures.py`). The training thread's CPU time is compared: it does not include
waiting for other ranks, and a machine that slows down slows both blocks of a pair. Caches are as cold as real work
leaves them. The output has the median difference of pairs of blocks, and its 95% interval by resampling the pairs
(bootstrap). Of each block, only the half of the steps that other processes disturbed least counts. Time inside the
layers, the autograd engine and the optimizer's arithmetic is the same in all states and is subtracted, because its
noise would hide the difference. The last column includes it: there, the caches that ddpmon fills cost time too.

background: the CPU of the sending thread and of ZeroMQ. The training thread's part, which `in-place` measures, comes on
top: in a paced loop it would be hidden by the cost of waking up.

gaps: one rank makes 1,000 optimizer steps a second and reads the clock in between, so that the sending thread always
has something to send. A gap is the time between two readings, less the time without a core. Watching adds waits for the
GIL.

sampling: sampled and unsampled blocks of one rank's steps, half Python and half arithmetic, alternate (ABBA).

sampling-bias: a thread searches with a regular expression, which holds the GIL, and then sleeps, again and again. The
output has the share of the time that it searched, and the share of samples that show it, with the timer that signals it
and without.
"""

from __future__ import annotations

import json
import re
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from launching import bare, load, options, own_home, print_head, print_row, result_of, watched

SCRIPT = Path(__file__).with_name("rank_measures.py")
CASES = [(1, 10, 0.0), (1, 10, 5.0), (1, 10, 20.0), (2, 10, 0.0), (2, 10, 5.0), (1, 500, 0.0), (2, 500, 0.0)]
"""Cases to measure: number of ranks, number of parameters, and step length in ms (0: as short as the model allows)."""
SECONDS = {"in-place": 20.0, "background": 10.0, "gaps": 8.0, "sampling": 60.0, "sampling-bias": 15.0}
STEPS_PER_S = 100.0
SAMPLED_STEPS_MS = (20.0, 100.0)
FUNCTIONS_SHOWN = 15


@dataclass(frozen=True)
class Estimate:
    """A median with its 95% interval."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, pairs: np.ndarray) -> Estimate:
        """Return the median difference of pairs, and its bootstrap interval."""
        drawn = np.random.default_rng(0).choice(pairs, (2000, len(pairs)))
        low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
        return cls(float(np.median(pairs)), float(low), float(high))

    def __str__(self) -> str:
        return f"{self.middle:+.1f} ({self.low:.1f} to {self.high:.1f})"


def measured(command: Sequence[str], measure: str, environment: dict[str, str] | None = None, **given: float) -> Any:
    """Return the measurements of one run of `rank_measures.py` with the options `given`."""
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return json.loads(result_of([*command, measure, *words], environment))


def blocks(cycles: list[dict[str, Any]], state: str, whole: bool = False, quiet: float = 0.5) -> np.ndarray:
    """Return the µs of a step in each block (cycle, first and second).

    Args:
        cycles: The measurements of `compare`.
        state: The state of the blocks.
        whole: Include the time inside layers, autograd and optimizer.
        quiet: The share of a block's steps that counts: the least disturbed ones.
    """
    steps = np.sort(np.array([cycle[state] for cycle in cycles])[..., int(whole)], axis=2)
    return steps[:, :, : max(1, int(steps.shape[2] * quiet))].mean(axis=2)


def added(cycles: list[dict[str, Any]], state: str, whole: bool = False) -> Estimate:
    """Return the time in µs by which a step in a state is longer than in the first state."""
    first = next(iter(cycles[0]))
    return Estimate.of((blocks(cycles, state, whole) - blocks(cycles, first, whole)).mean(axis=1))


def print_in_place(seconds: float, cases: Sequence[int]) -> None:
    print("training thread, µs of CPU a step: median of pairs of blocks (95% interval)")
    print_head("ranks", "parameters", "step", "its CPU", "wrappers alone", "watched", "by the whole step", "pairs")
    for number, (nproc, parameters, step_ms) in enumerate(CASES, 1):
        if cases and number not in cases:
            continue
        given = {"parameters": parameters, "step_ms": step_ms, "seconds": seconds}
        found = measured(watched(nproc, SCRIPT), "in-place", **given)
        cycles = found["cycles"]
        cpu_us = float(np.median(blocks(cycles, "bare", whole=True)))
        print_row(
            nproc, parameters, f"{found['step_ms']:.2f} ms", f"{cpu_us:.0f} µs", added(cycles, "silent"),
            added(cycles, "watched"), added(cycles, "watched", whole=True), len(cycles),
        )  # fmt: skip


def print_background(seconds: float, runs: int) -> None:
    in_place = measured(watched(1, SCRIPT), "in-place", step_ms=0.0, seconds=SECONDS["in-place"])
    training_us = added(in_place["cycles"], "watched", whole=True).middle
    for rate in (STEPS_PER_S, 0.0):
        shares = [measured(watched(1, SCRIPT), "background", rate=rate, seconds=seconds) for _ in range(runs)]
        share = statistics.median(shares)
        if not rate:
            print(f"idle: {share:.2%} of a core")
            continue
        background_us = share / rate * 1e6
        parts = f"background {background_us:.1f} + training thread {training_us:.1f}"
        print(f"{rate:.0f} steps/s: {parts} = {background_us + training_us:.1f} µs of CPU a step", flush=True)


def print_bytecodes() -> None:
    found = measured(watched(1, SCRIPT), "bytecodes")
    print(f"{sum(count for _, count in found['executed']):.0f} bytecodes and {found['calls']:.1f} calls a step")
    for name, count in found["executed"][:FUNCTIONS_SHOWN]:
        print(f"  {count:6.1f}  {name}")


def print_passes() -> None:
    for method, (calls, median_us) in measured(watched(2, SCRIPT), "passes").items():
        print(f"{method}: {calls} calls, median {median_us:.1f} µs")


def print_gaps(seconds: float, runs: int) -> None:
    for name, command in (("bare", bare(1, SCRIPT)), ("watched", watched(1, SCRIPT))):
        found = [measured(command, "gaps", seconds=seconds) for _ in range(runs)]
        medians = {least: statistics.median(counts[least] for counts in found) for least in found[0]}
        counts = "  ".join(f"over {least} ms: {count:.1f}" for least, count in medians.items())
        print(f"{name:9} gaps a second, median of {runs} runs: {counts}", flush=True)


def print_sampling(seconds: float) -> None:
    print_head("step", "training thread's CPU", "pairs")
    for step_ms in SAMPLED_STEPS_MS:
        cycles = measured(watched(1, SCRIPT), "sampling", step_ms=step_ms, seconds=seconds)["cycles"]
        sampled, not_sampled = (blocks(cycles, state, whole=True, quiet=1.0) for state in ("sampled", "watched"))
        shares = 100 * (sampled / not_sampled - 1).ravel()
        print_row(f"{step_ms:.0f} ms", f"{Estimate.of(shares)} %", len(shares))


def bias(letters: int, seconds: float, *, signals: bool) -> tuple[float, float, float]:
    """Return milliseconds of a search, the share of the time in searches, and the share of samples that show them."""
    from ddpmon.probe import stack_timer
    from ddpmon.probe.account import Account
    from ddpmon.probe.identity import Identity
    from ddpmon.probe.listener import Listener
    from ddpmon.probe.records import RawStep
    from ddpmon.probe.stack_sampler import StackSampler

    listener = Listener(Identity("bias"))
    listener.identity.set_facts(rank=0)
    listener.defer()
    sampler, spent, over, there = StackSampler(listener), [0.0, 0.0, 0.0], threading.Event(), threading.Event()

    def searches() -> None:
        re.match(r"(a+)+$", "a" * letters + "b")

    def trains() -> None:
        listener._adopt_thread()
        listener.record(Account.phase_fails)  # Any record: from then on the thread is in a phase.
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
    while listener.journal.read_notes(100):
        pass
    sampler.step_ended(RawStep(int(began * 1e9) + 1, time.monotonic_ns(), step=1))
    result = sampler.result()
    stack_timer.disarm()
    assert result is not None
    seen = sum(one.count for one in result.stacks if any(frame.endswith(" searches") for frame in one.frames))
    return 1e3 * spent[1] / spent[0], spent[1] / spent[2], seen / result.count


def print_sampling_bias(seconds: float) -> None:
    print_head("a search takes", "share of the time", "of samples", "without the signal")
    for letters in (14, 15, 16, 17):
        (took, true, seen), (_, true_too, without) = (bias(letters, seconds, signals=on) for on in (True, False))
        print_row(f"{took:.1f} ms", f"{true:.0%}, {true_too:.0%}", f"{seen:.0%}", f"{without:.0%}")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("part", choices=[*SECONDS, "bytecodes", "passes"])
    parser.add_argument("--seconds", type=float, help="length of each measurement")
    parser.add_argument("--runs", type=int, default=5, help="of `background` and `gaps`")
    parser.add_argument("--cases", type=int, nargs="+", help="lines of `in-place`, from 1 on; default: all")
    args = parser.parse_args()
    seconds = args.seconds or SECONDS.get(args.part, 0.0)
    print(load())
    with own_home():
        {
            "in-place": lambda: print_in_place(seconds, args.cases),
            "background": lambda: print_background(seconds, args.runs),
            "bytecodes": print_bytecodes,
            "passes": print_passes,
            "gaps": lambda: print_gaps(seconds, args.runs),
            "sampling": lambda: print_sampling(seconds),
            "sampling-bias": lambda: print_sampling_bias(seconds),
        }[args.part]()


if __name__ == "__main__":
    main()
