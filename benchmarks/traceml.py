"""What watching costs beside TraceML: bare torchrun, `ddpmon run --headless` and `traceml run`, in turn.

    python benchmarks/traceml.py                 in place, and seven rounds (about eight minutes)
    python benchmarks/traceml.py --rounds 0      in place alone

TraceML comes from PyPI into a temporary folder that all three find first; torch and Python are this ddpmon's. TraceML's
runs get the two lines in the script that it asks for (`steps.py --traceml`) and its default mode, which records and
prints a summary at the end, as ddpmon's does. In place, as `overhead.py` does it, TraceML is off where a step is not in
its `trace_step`: what its wrappers cost there is in both.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from overhead import SECONDS, added, in_place
from rates import SCRIPT, bare, compare, watched

PACKAGE = "traceml-ai==0.5.0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured part of each run")
    parser.add_argument("--step-ms", type=float, nargs="+", default=[5.0])
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="ddpmon-b") as folder:
        target = str(Path(folder) / "traceml")
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", target, PACKAGE], check=True)
        os.environ["PYTHONPATH"] = target
        program = [sys.executable, "-c", "from traceml.launcher.cli import main; main()"]
        traceml = [*program, "run", str(SCRIPT), "--nproc-per-node", str(args.nproc), "--args", "--traceml"]
        print(f"{PACKAGE}; load of the last minute {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print("training thread, µs of CPU a step, by the whole step: median of pairs of blocks (95% interval):")
        for name, command in (("ddpmon", watched(args.nproc)), ("TraceML", traceml)):
            measured = in_place(command, 10, 0.0, SECONDS, folder)
            print(f"  {name:8} {added(measured, 'watched', whole=True)}", flush=True)
        for step_ms in args.step_ms:
            arguments = ["--step-ms", str(step_ms), "--seconds", str(args.seconds)]
            commands = {
                "bare": [*bare(args.nproc), *arguments],
                "ddpmon": [*watched(args.nproc), *arguments],
                "TraceML": [*traceml, *arguments],
            }
            if args.rounds:
                compare(commands, args.rounds, folder, f"{args.nproc} ranks")


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"took {time.monotonic() - began:.0f} s")
