"""Starts the scripts as people do, torchrun or one process per rank, or runs them on ranks that are forked."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import forked, ranks
from tests.deadlines import Deadline, busy_factor

TRAINING = Path(__file__).parents[2] / "training"
DEADLINE_S = 120
MODULES = (*ranks.TORCH, "vision")
"""Modules of the scripts that take time to import: the last one is torchvision."""

ON_PATH = {"PYTHONPATH": str(TRAINING)}
"""The variable with which a forked script finds the modules beside it."""

sys.path.insert(0, str(TRAINING))  # as Python does for a script there: its modules import each other by name


def environment():
    return {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MASTER_", "DDPMON_"))}


class Started:
    """A running launcher or rank; its output, both streams together, is in a file that can be read while it grows."""

    def __init__(self, process: subprocess.Popen | forked.Forked, output: Path) -> None:
        self.process, self._output = process, output

    @property
    def output(self) -> str:
        return self._output.read_text()

    def until(self, words: str) -> None:
        """Wait until the output holds these words."""
        deadline = Deadline(DEADLINE_S)
        while words not in self.output:
            assert self.process.poll() is None, f"ended without {words!r}:\n{self.output}"
            assert not deadline.passed, f"never said {words!r}:\n{self.output}"
            time.sleep(0.01)

    def end(self) -> int:
        """Wait for the end; the exit code, or minus the signal."""
        try:
            return self.process.wait(DEADLINE_S * busy_factor())
        except subprocess.TimeoutExpired:
            pytest.fail(f"has not ended after {DEADLINE_S} s:\n{self.output}")


@pytest.fixture
def start(tmp_path):
    """A function that starts scripts: with torchrun, or without nproc as one rank by hand.

    torchrun's ranks import torch without its compiler, which is not enough for torchvision. Ranks by hand are forked.
    """
    running = []

    def start(script: str, *arguments: object, nproc: int | None = None, env: dict[str, str] | None = None):
        words, around = [str(TRAINING / script), *map(str, arguments)], environment() | (env or {})
        output = tmp_path / f"output-{len(running)}"
        with output.open("wb") as written, open(os.devnull) as nothing:
            if nproc is None:
                process = forked.Forked(
                    *words, stdin=nothing.fileno(), stdout=written.fileno(), stderr=written.fileno(), modules=MODULES,
                    folder=str(tmp_path), environment=around | ON_PATH, at_import=ON_PATH,
                )  # fmt: skip
            else:
                torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={nproc}"]
                command = [sys.executable, *torchrun, str(ranks.LIGHT_TRAIN), *words]
                process = subprocess.Popen(
                    command, cwd=tmp_path, stdin=nothing, stdout=written, stderr=written, env=around
                )
        running.append(Started(process, output))
        return running[-1]

    yield start
    for started in running:
        if started.process.poll() is None:
            started.process.terminate()  # torchrun ends its ranks
            started.process.wait(60)


@pytest.fixture
def run(tmp_path):
    """Run a script to its end, on so many ranks or in one process: its exit code and its output."""

    def call(script: str, *arguments: object, nproc: int | None = None, env: dict[str, str] | None = None):
        done = ranks.run(
            nproc, TRAINING / script, *map(str, arguments), folder=tmp_path, modules=MODULES, together=True,
            environment=environment() | {"OMP_NUM_THREADS": "1"} | ON_PATH | (env or {}),
        )  # fmt: skip
        return done.returncode, done.stdout

    return call
