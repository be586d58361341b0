"""Measure what ddpmon costs from inside a rank; rank_cost.py, field.py and flood.py start this script.

`speed` makes `--steps` steps, each with `--rounds` of additional work, so that runs with the same work can be compared.
Each rank is then bound to a core of its own: otherwise two ranks that wait for each other sometimes share a core, and
take twice as long.

`in-place` alternates three states in one process, in blocks of steps in the order ABCCBA: unchanged torch (bare), torch
with ddpmon's wrappers but without a listener (silent), and watched. It reads the training thread's CPU time of each
step, which includes neither other processes nor waiting for other ranks. `sampling` does the same with steps in which
the stack is sampled and steps in which it is not.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import json
import os
import statistics
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from training_loop import WARM_UP, WIDTHS, Around, Training, agreed

import ddpmon
from ddpmon.probe import undo

BLOCK_MS, SAMPLED_BLOCK_MS = 15.0, 1000.0
"""Approximate length of a block of steps in ms: short, so that both blocks of a pair see the same conditions of the
machine. Sampled blocks are long enough for many samples."""
SETTLE = 3
"""Steps after a change of state that are not counted: they finish pending work, and warm up what was changed."""
States = dict[str, Callable[[], None]]
"""Functions by name that put the process into each compared state; the first state is the base."""
FAST_STEPS_PER_S = 1000.0
BYTECODE_STEPS, BYTECODE_WARM_UP, BYTECODE_PAUSE_S = 800, 300, 0.004
"""The pause gives the background thread time to read what the step has recorded."""
GAPS_MS = (0.2, 0.3, 0.5, 1.0, 5.0)
PASSES, PASS_SAMPLES, PASS_BATCH = 40, 256, 8
COLD_FLOATS = 400_000
"""Floats that are summed before each step: more than the caches of a core hold."""


class Wrappers:
    """All changes that the probe has made to torch, to remove and restore them."""

    def __init__(self, listener: Any) -> None:
        restore = listener.changes._restore
        self._patches = [undo.args for undo in listener.changes._undo if getattr(undo, "func", None) == restore]
        self._hot = listener.hot
        self._watched = False
        self._hooks = [
            (hooks, key, hook)
            for hooks in (optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks)
            for key, hook in hooks.items()
        ]
        if len(self._patches) < 10 or len(self._hooks) < 2:
            raise SystemExit("the probe is not armed: there is nothing to measure")
        self._collecting = listener.collecting

    def bare(self) -> None:
        """Restore unchanged torch."""
        self.silent()
        for owner, name, _, original in reversed(self._patches):
            if original is undo._INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        for hooks, key, _ in self._hooks:
            hooks.pop(key, None)
        gc.callbacks.remove(self._collecting)

    def silent(self) -> None:
        """Keep the wrappers in torch, but without a listener."""
        for owner, name, ours, _ in self._patches:
            setattr(owner, name, ours)
        for hooks, key, hook in self._hooks:
            hooks[key] = hook
        if self._collecting not in gc.callbacks:
            gc.callbacks.append(self._collecting)
        if self._watched and not self._hot.thread:
            raise SystemExit("the probe left: there is nothing to measure")
        self._hot.thread = 0
        self._watched = False

    def watched(self) -> None:
        self.silent()
        self._hot.thread = threading.get_ident()
        self._watched = True


def states(training: Training, traced: Around | None) -> States:
    """Return the states that `in-place` compares. `traced` is TraceML's context of a step, if TraceML is measured."""
    if traced is not None:

        def use(around: Around) -> Callable[[], None]:
            return lambda: setattr(training, "around", around)

        return {"silent": use(contextlib.nullcontext), "watched": use(traced)}
    from ddpmon.probe import arm

    wrappers = Wrappers(arm._listener)
    return {"bare": wrappers.bare, "silent": wrappers.silent, "watched": wrappers.watched}


def sampling_states(training: Training) -> States:
    """Return the states that `sampling` compares. Samples need the GIL, so steps are half Python."""
    from ddpmon.probe import arm

    training.numbers = range(3000)
    sampler = arm._sender._stack_sampler
    return {"watched": sampler._reset, "sampled": lambda: sampler.request(3600.0, time.monotonic())}


def compare(
    into: States, training: Training, step_ms: float, seconds: float, block_ms: float
) -> Iterator[dict[str, list[list[tuple[float, float]]]]]:
    """Yield, one cycle at a time, the results of `block_us` for each step of each state's two blocks.

    Cycles end once `seconds` are over on any rank, on all ranks after the same cycle.
    """
    order = [*into, *reversed(into)]
    steps = int(agreed(min(max(24, block_ms / 20), max(8, block_ms / step_ms))))
    end = time.monotonic() + seconds
    while agreed(time.monotonic() >= end) == 0:
        spent: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in into}
        for name in order:
            into[name]()
            for _ in range(SETTLE):
                training.step()
            spent[name].append(training.block_us(steps))
        yield spent


def compared(args: argparse.Namespace, traced: Around | None) -> Any:
    """Return the length of a step, and all cycles of `compare`."""
    training = Training(args.parameters)
    training.around = traced or contextlib.nullcontext
    sampled = args.measure == "sampling"
    into = sampling_states(training) if sampled else states(training, traced)
    into["watched"]()
    step_ms = training.pace(args.step_ms)
    block_ms = SAMPLED_BLOCK_MS if sampled else BLOCK_MS
    cycles = list(compare(into, training, step_ms, args.seconds, block_ms))
    into["watched"]()
    return {"step_ms": step_ms, "cycles": cycles}


def speed(args: argparse.Namespace, traced: Around | None) -> Any:
    """Return the length of a step, and the rounds of additional work in it."""
    training = Training(args.parameters)
    training.around = traced or contextlib.nullcontext
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[dist.get_rank() % len(cores)]})
    if args.rounds is None:
        training.pace(args.step_ms)
    else:
        training.rounds = args.rounds
        training.mean_ms(WARM_UP)
    Path("ready").touch()
    return {"step_ms": training.mean_ms(args.steps), "rounds": training.rounds}


def at_rate(steps_per_s: float, seconds: float, step: Callable[[], object], pause_s: float) -> Iterator[float]:
    """Make `steps_per_s` steps a second, and yield the current time between steps."""
    began, done = time.monotonic(), 0
    while (now := time.monotonic()) - began < seconds:
        if (now - began) * steps_per_s >= done + 1:
            step()
            done += 1
        elif pause_s:
            time.sleep(pause_s)
        yield now


def background(args: argparse.Namespace, _: Around | None) -> Any:
    """Return the share of a core that ddpmon's own threads take, at `--rate` steps a second."""
    training = Training(args.parameters)
    training.mean_ms(WARM_UP)
    time.sleep(1)
    before = background_ns()
    for _moment in at_rate(args.rate, args.seconds, training.step, 0.001 if args.rate else 0.2):
        pass
    return (background_ns() - before) / 1e9 / args.seconds


def background_ns() -> int:
    """Return the nanoseconds of CPU that ddpmon's own threads have used so far."""
    ours = {thread.native_id for thread in threading.enumerate() if thread.name == "ddpmon"}
    return sum(
        int((task / "schedstat").read_text().split()[0])
        for task in Path("/proc/self/task").iterdir()
        if int(task.name) in ours or (task / "comm").read_text().startswith("ZMQ")
    )


class Bytecodes:
    """Counts the bytecodes that this thread executes in ddpmon's files, by function."""

    def __init__(self) -> None:
        self.executed: Counter[str] = Counter()
        self.calls = 0
        self._folder = str(Path(ddpmon.__file__).parent)

    def trace_call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        """Trace a frame by bytecode if it is of ddpmon. The signature is the one that `sys.settrace` requires."""
        if not frame.f_code.co_filename.startswith(self._folder):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self.calls += 1
        return self._trace_opcode

    def _trace_opcode(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "opcode":
            self.executed[f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"] += 1
        return self._trace_opcode


def bytecodes(args: argparse.Namespace, _: Around | None) -> Any:
    """Return the calls and, by function, the bytecodes of a step in ddpmon's files."""
    training, counted = Training(args.parameters), Bytecodes()
    for step in range(BYTECODE_WARM_UP + BYTECODE_STEPS):
        if step == BYTECODE_WARM_UP:
            sys.settrace(counted.trace_call)
        training.step()
        time.sleep(BYTECODE_PAUSE_S)
    sys.settrace(None)
    executed = [(name, count / BYTECODE_STEPS) for name, count in counted.executed.most_common()]
    return {"calls": counted.calls / BYTECODE_STEPS, "executed": executed}


def passes(_args: argparse.Namespace, _: Around | None) -> Any:
    """Return the median µs of CPU for reading a DataLoader's state, beside real work that has emptied the caches."""
    from ddpmon.probe.loader_passes import LoaderPasses

    took_ns: dict[str, list[int]] = defaultdict(list)

    def timed(name: str) -> None:
        original = getattr(LoaderPasses, name)

        @functools.wraps(original)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            began = time.thread_time_ns()
            try:
                return original(*arguments, **named)
            finally:
                took_ns[name].append(time.thread_time_ns() - began)

        setattr(LoaderPasses, name, wrapper)

    timed("read_from")
    timed("ended")
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    dataset = TensorDataset(torch.randn(PASS_SAMPLES, 16))
    sampler = DistributedSampler(dataset)
    for workers in (0, 2):
        loader = DataLoader(dataset, PASS_BATCH, sampler=sampler, num_workers=workers, persistent_workers=workers > 0)
        for epoch in range(PASSES):
            sampler.set_epoch(epoch)
            for (batch,) in loader:
                torch.randn(COLD_FLOATS).sum()
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()
    return {name: (len(times), statistics.median(times) / 1e3) for name, times in took_ns.items()}


def tiny_step() -> Callable[[], object]:
    """Return a function that makes the shortest possible optimizer step."""
    weight = torch.nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD([weight], lr=1e-3)

    def step() -> None:
        weight.square().sum().backward()
        optimizer.step()

    for _ in range(500):
        step()
    return step


def gaps(args: argparse.Namespace, _: Around | None) -> Any:
    """Return how many gaps a second there are in a loop that reads the clock, by their smallest length in ms.

    The time that the thread could have run but got no core is subtracted.
    """
    scheduled = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)

    def waited_s() -> float:
        return int(os.pread(scheduled, 128, 0).split()[1]) / 1e9

    found_ms: list[float] = []
    waited, last = waited_s(), None
    for now in at_rate(FAST_STEPS_PER_S, args.seconds, tiny_step(), 0.0):
        if last is not None and now - last > GAPS_MS[0] / 1e3:
            before, waited = waited, waited_s()
            found_ms.append((now - last - (waited - before)) * 1e3)
            now = time.monotonic()  # noqa: PLW2901  the subtracted time must not be in the next gap
        last = now
    if "DDPMON_RUN_ID" in os.environ and not ddpmon.attached():
        raise SystemExit("the probe has left: nothing was measured")
    return {str(least): sum(gap > least for gap in found_ms) / args.seconds for least in GAPS_MS}


def flood(args: argparse.Namespace, _: Around | None) -> Any:
    """Measure 1,000 steps a second; return the time, steps a second and memory, four times a second."""
    import psutil

    process, notes, done, before = psutil.Process(), [], 0, 0
    take = tiny_step()

    def step() -> None:
        nonlocal done
        take()
        done += 1

    noted = time.monotonic()
    for now in at_rate(FAST_STEPS_PER_S, args.seconds, step, 0.0002):
        if now - noted >= 0.25:
            notes.append((time.time(), (done - before) / (now - noted), process.memory_info().rss))
            noted, before = now, done
    return {"done": done, "notes": notes}


MEASURES = {
    "speed": speed, "in-place": compared, "sampling": compared, "background": background, "bytecodes": bytecodes,
    "passes": passes, "gaps": gaps, "flood": flood,
}  # fmt: skip
WITHOUT_GROUP = {"gaps", "flood"}
"""Measures of ranks without a process group, so that no thread of gloo takes part."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("measure", choices=MEASURES)
    parser.add_argument("--step-ms", type=float, default=5.0)
    parser.add_argument("--parameters", type=int, choices=WIDTHS, default=10)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured")
    parser.add_argument("--rate", type=float, default=0.0, help="steps a second of `background`")
    parser.add_argument("--rounds", type=int, help="of work besides in each step, instead of --step-ms")
    parser.add_argument("--steps", type=int, default=WARM_UP, help="measured for their speed")
    parser.add_argument("--result")
    parser.add_argument("--traceml", action="store_true", help="add the two lines that TraceML asks for")
    args = parser.parse_args()
    if args.measure not in WITHOUT_GROUP:
        dist.init_process_group("gloo")
    traced: Around | None = None
    if args.traceml:
        import traceml_ai

        traceml_ai.init(mode="auto")
        traced = traceml_ai.trace_step
    result = MEASURES[args.measure](args, traced)
    if os.environ["RANK"] == "0" and args.result:
        Path(args.result).write_text(json.dumps(result))
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
