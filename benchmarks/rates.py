"""One script under several commands, bare and watched, in rounds: what the programs beside this file compare."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

SCRIPT = Path(__file__).parent / "steps.py"


def bare(nproc: int, script: Path = SCRIPT) -> list[str]:
    """The script on torchrun alone."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nproc)]
    return [*launcher, str(script)]


def watched(nproc: int, script: Path = SCRIPT) -> list[str]:
    """The script under ddpmon."""
    return [sys.executable, "-m", "ddpmon", "run", "--headless", "--nproc", str(nproc), str(script)]


def result_of(command: list[str], folder: str) -> str:
    """Run a command to its end, in `folder`; what its script wrote to the file that `--result` names."""
    with tempfile.TemporaryFile("w+") as output, tempfile.NamedTemporaryFile("r", suffix=".result") as result:
        done = subprocess.run(
            [*command, "--result", result.name],
            cwd=folder,
            env=os.environ | {"DDPMON_HOME": folder, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
        text = result.read()
        if done.returncode or not text:
            output.seek(0)
            raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{output.read()[-3000:]}")
        return text


def compare(commands: Mapping[str, list[str]], rounds: int, folder: str, title: str) -> None:
    """Run the commands in turn, `rounds` times, and print each against the first: medians, and ratios within a round.

    Each round begins with another command, so that a machine that slows down slows all of them.
    """
    names = list(commands)
    rates: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            rates[name].append(float(result_of(commands[name], folder)))
        print(f"  {number + 1}: " + "  ".join(f"{name} {rates[name][-1]:7.2f}" for name in names), flush=True)
    base = rates[names[0]]
    print(f"{title}, {1000 / statistics.median(base):.2f} ms steps, {rounds} rounds; medians, ratio within a round:")
    print(f"  {names[0]:8} {statistics.median(base):7.2f} steps/s")
    for name in names[1:]:
        ratios = sorted(mine / its for mine, its in zip(rates[name], base, strict=True))
        spread = f"{statistics.median(ratios):.4f} ({ratios[0]:.4f} to {ratios[-1]:.4f})"
        print(f"  {name:8} {statistics.median(rates[name]):7.2f} steps/s   {spread} of {names[0]}", flush=True)
