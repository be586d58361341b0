"""What watching costs beside TraceML: bare torchrun, `ddpmon run --headless` and `traceml run`, in turn.

    python benchmarks/traceml.py                 seven rounds (about eight minutes, and the installing)
    python benchmarks/traceml.py --rounds 3      a quick look

TraceML comes from PyPI into a virtual environment of its own, in a temporary folder, with torch and this ddpmon: all
three run the same script there, with the same Python. TraceML's runs get the two lines in the script that it asks for
(`steps.py --traceml`) and its default mode, which records and prints a summary at the end, as ddpmon's does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rates import SCRIPT, bare, compare, watched

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("torch==2.13.0", "traceml-ai==0.5.0")


def environment(folder: Path) -> Path:
    """Make a virtual environment there; its programs."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    programs = folder / "bin"
    # One command: whatever else depends on torch is content with this one.
    subprocess.run([programs / "pip", "install", "-q", *PACKAGES, "-e", REPOSITORY], check=True)
    return programs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured part of each run")
    parser.add_argument("--step-ms", type=float, nargs="+", default=[5.0])
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="ddpmon-b") as folder:
        programs = environment(Path(folder) / "venv")
        python = str(programs / "python")
        traceml = [str(programs / "traceml"), "run", str(SCRIPT), "--nproc-per-node", str(args.nproc), "--args"]
        print(f"{', '.join(PACKAGES)}; load of the last minute {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        for step_ms in args.step_ms:
            arguments = ["--step-ms", str(step_ms), "--seconds", str(args.seconds)]
            commands = {
                "bare": [*bare(args.nproc, python=python), *arguments],
                "ddpmon": [*watched(args.nproc, python=python), *arguments],
                "TraceML": [*traceml, "--traceml", *arguments],
            }
            compare(commands, args.rounds, folder, f"{args.nproc} ranks")


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"took {time.monotonic() - began:.0f} s")
