"""Count the bytecodes that ddpmon adds to a step of the training thread: `python benchmarks/opcodes.py`.

Seconds of CPU differ by several microseconds from run to run. The number of bytecodes hardly does, so that it shows
what a change of the hooks costs even on a busy machine. It leaves out calls into C; `overhead.py` has them in.
One rank trains a model of 10 parameters with a DataLoader and SGD. Printed: bytecodes and calls of Python functions a
step in ddpmon's files, then the functions with the most.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from rates import result_of, watched

import ddpmon

WARM_UP_STEPS = 300
STEPS = 800
PAUSE_S = 0.004
"""The background thread has time to read what the step has noted."""
FUNCTIONS_SHOWN = 15


class Bytecodes:
    """Counts what this thread executes in ddpmon's files, by function."""

    def __init__(self) -> None:
        self.executed: Counter[str] = Counter()
        self.calls = 0
        self._folder = str(Path(ddpmon.__file__).parent)

    def trace_call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        """Trace a frame by bytecode if it is of ddpmon (the form that `sys.settrace` asks for)."""
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


def train(result: str) -> None:
    """Take steps in a rank, and write the counts of the last STEPS of them."""
    import torch
    import torch.distributed as dist
    from steps import Training

    dist.init_process_group("gloo")
    training = Training(10)
    bytecodes = Bytecodes()
    for step in range(WARM_UP_STEPS + STEPS):
        if step == WARM_UP_STEPS:
            sys.settrace(bytecodes.trace_call)
        training.step()
        time.sleep(PAUSE_S)
    sys.settrace(None)
    Path(result).write_text(json.dumps([bytecodes.calls, bytecodes.executed.most_common()]))
    torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    result = parser.parse_args().result
    if result:
        train(result)
        return
    with tempfile.TemporaryDirectory() as folder:
        calls, functions = json.loads(result_of(watched(1, Path(__file__)), folder))
    print(f"{sum(count for _, count in functions) / STEPS:.0f} bytecodes and {calls / STEPS:.1f} calls a step")
    for name, count in functions[:FUNCTIONS_SHOWN]:
        print(f"  {count / STEPS:6.1f}  {name}")


if __name__ == "__main__":
    main()
