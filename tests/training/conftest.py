"""Starts the scripts as people do, torchrun or one process per rank, or runs them on ranks that are forked."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import ranks
from tests.deadlines import Deadline, busy_factor

TRAINING = Path(__file__).parents[2] / "training"
DEADLINE_S = 120
MODULES = (*ranks.TORCH, "vision")
"""Modules of the scripts that take time to import: the last one is torchvision."""

sys.path.insert(0, str(TRAINING))  # as Python does for a script there: its modules import each other by name


def environment():
    return {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MASTER_", "DDPMON_"))}


class Started:
    """A running command; its output, both streams together, is in a file that can be read while it grows."""

    def __init__(self, command: list[str], folder: Path, env: dict[str, str]) -> None:
        number = len(list(folder.glob("output-*")))
        self._output = folder / f"output-{number}"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=output, stderr=output, env=environment() | env, stdin=subprocess.DEVNULL
            )

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


@contextmanager
def starter(folder: Path):
    """A function that starts scripts in a folder: with torchrun, or without nproc as one rank by hand."""
    running = []

    def start(script: str, *arguments: object, nproc: int | None = None, env: dict[str, str] | None = None):
        command = [sys.executable]
        if nproc is not None:
            command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={nproc}"]
        elif script == "linear_regression.py":  # mnist.py imports torchvision, which asks for all of torch
            command.append(str(ranks.LIGHT_TRAIN))
        command += [str(TRAINING / script), *map(str, arguments)]
        running.append(Started(command, folder, env or {}))
        return running[-1]

    try:
        yield start
    finally:
        for started in running:
            if started.process.poll() is None:
                started.process.terminate()  # torchrun ends its ranks
                started.process.wait(60)


@pytest.fixture
def start(tmp_path):
    with starter(tmp_path) as start:
        yield start


@pytest.fixture
def run(tmp_path):
    """Run a script to its end, on so many ranks or in one process: its exit code and its output."""

    def call(script: str, *arguments: object, nproc: int | None = None, env: dict[str, str] | None = None):
        return forked(tmp_path, script, *arguments, nproc=nproc, env=env or {})

    return call


def forked(folder: Path, script: str, *arguments: object, nproc: int | None, env: dict[str, str]):
    done = ranks.run(
        nproc,
        TRAINING / script,
        *map(str, arguments),
        environment=environment() | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(TRAINING)} | env,
        folder=folder,
        modules=MODULES,
        together=True,
    )
    return done.returncode, done.stdout
