"""Starts the scripts as people do: torchrun, or one process per rank."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

TRAINING = Path(__file__).parents[2] / "training"
DEADLINE_S = 120

sys.path.insert(0, str(TRAINING))  # as Python does for a script there: its modules import each other by name


class Started:
    """A running command; its output, both streams together, is in a file that can be read while it grows."""

    def __init__(self, command: list[str], folder: Path, env: dict[str, str]) -> None:
        number = len(list(folder.glob("output-*")))
        self._output = folder / f"output-{number}"
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MASTER_", "DDPMON_"))}
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=output, stderr=output, env=environment | env, stdin=subprocess.DEVNULL
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    def until(self, words: str) -> None:
        """Wait until the output holds these words."""
        deadline = time.monotonic() + DEADLINE_S
        while words not in self.output:
            assert self.process.poll() is None, f"ended without {words!r}:\n{self.output}"
            assert time.monotonic() < deadline, f"never said {words!r}:\n{self.output}"
            time.sleep(0.01)

    def end(self) -> int:
        """Wait for the end; the exit code, or minus the signal."""
        try:
            return self.process.wait(DEADLINE_S)
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
