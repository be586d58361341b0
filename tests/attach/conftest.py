"""Jobs that train without ddpmon, as people start them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.ports import free_port
from ddpmon import proc
from ddpmon.attach import jobs
from tests.conftest import wait_for

SCRIPT = Path(__file__).parent / "train.py"
LIGHT = Path(__file__).parents[1] / "light"

needs_gdb = pytest.mark.skipif(
    sys.version_info < (3, 14) and shutil.which("gdb") is None, reason="gdb, which Python below 3.14 needs, is not here"
)


class Program(subprocess.Popen):
    """A program that is killed where the block around it ends: one that goes on would hold a failing test up."""

    def __exit__(self, *failure: object) -> None:
        self.kill()
        super().__exit__(*failure)


@dataclass
class Job:
    """A job that trains, and the files that it writes."""

    folder: Path
    started: list[subprocess.Popen[bytes]]

    def steps(self, rank: int) -> int:
        """Steps that a rank has finished."""
        path = self.folder / f"steps-{rank}"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def goes_on(self) -> None:
        """Wait until both ranks have finished further steps."""
        before = [self.steps(rank) for rank in range(2)]
        wait_for(lambda: all(self.steps(rank) > before[rank] + 3 for rank in range(2)))

    def found(self) -> jobs.TrainingJob | None:
        """The job as /proc shows it, once both ranks have a process group."""
        pids = {process.pid for process in self.started}
        return next((job for job in jobs.find_all() if pids & self._pids(job) and len(job.ranks) == 2), None)

    @staticmethod
    def _pids(job: jobs.TrainingJob) -> set[int]:
        return {job.pid, *(rank.process.pid for rank in job.ranks), *(rank.parent for rank in job.ranks)}

    @property
    def pids(self) -> list[int]:
        """The pids of its ranks, by rank."""
        found = self.found()
        assert found is not None
        return [rank.process.pid for rank in found.ranks]

    def end(self) -> list[int]:
        """Have it end by itself; the exit codes of what was started."""
        (self.folder / "end").touch()
        return [process.wait(120) for process in self.started]


def environment(**variables: str) -> dict[str, str]:
    """Return the variables of a process of a job."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DDPMON")}
    return {**clean, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(LIGHT), **variables}


@pytest.fixture
def job(home: Path, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Start a job in some way, and wait until it trains; it is killed with all its processes after the test."""
    with training(tmp_path) as start:
        yield start


@contextlib.contextmanager
def training(folder: Path) -> Iterator[Callable[..., Job]]:
    """Start jobs in a folder, and kill them with all their processes at the end."""
    made: list[Job] = []

    def start(way: str, **variables: str) -> Job:
        port, script = str(free_port()), [str(SCRIPT), str(folder), way]
        if way == "torchrun":
            options = ["--nproc-per-node=2", "--max-restarts=1", f"--master-port={port}"]
            lines = [["-m", "torch.distributed.run", *options, *script]]
        elif way == "spawn":
            lines = [[*script, port]]
        else:
            lines = [[*script, port]] * 2
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"} if way == "hand" else {}
        of_job = environment(**place, **variables)
        job = Job(folder, [])
        made.append(job)
        for rank, line in enumerate(lines):
            own = {"RANK": str(rank)} if way == "hand" else {}
            if way == "slurm":
                step = {"SLURM_JOB_ID": "41878", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
                own = step | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
            with (folder / f"out-{rank}").open("wb") as output:
                job.started.append(
                    subprocess.Popen(
                        [sys.executable, *line], env=of_job | own, stdout=output, stderr=output, process_group=0
                    )
                )
        wait_for(lambda: all(job.steps(rank) > 3 for rank in range(2)), 120)
        return job

    try:
        yield start
    finally:
        for each in made:
            kill_job(each)


def kill_job(job: Job) -> None:
    """Kill a job with all its processes."""
    children = proc.children()
    below = [process.pid for process in job.started]
    for pid in below:
        below += children.get(pid, [])
    for pid in below:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for process in job.started:
        process.wait(30)
        with contextlib.suppress(ProcessLookupError):  # DataLoader workers whose rank was killed
            os.killpg(process.pid, signal.SIGKILL)
