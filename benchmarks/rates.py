"""One script, bare and watched: how the programs beside this file run it, and what it measured of itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).parent / "steps.py"


def bare(nproc: int, script: Path = SCRIPT) -> list[str]:
    """The script on torchrun alone."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nproc)]
    return [*launcher, str(script)]


def watched(nproc: int, script: Path = SCRIPT) -> list[str]:
    """The script under ddpmon."""
    return [sys.executable, "-m", "ddpmon", "run", "--headless", "--nproc", str(nproc), str(script)]


def result_of(command: list[str], folder: str, environment: dict[str, str] | None = None) -> str:
    """Run a command to its end, in `folder`; what its script wrote to the file that `--result` names."""
    with tempfile.TemporaryFile("w+") as output, tempfile.NamedTemporaryFile("r", suffix=".result") as result:
        done = subprocess.run(
            [*command, "--result", result.name],
            cwd=folder,
            env=os.environ | {"DDPMON_HOME": folder, "OMP_NUM_THREADS": "1"} | (environment or {}),
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
