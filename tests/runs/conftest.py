"""A run on disk, and a process that supervises it."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from ddpmon import runs


@pytest.fixture
def run(home):
    """A run that has not ended, started here."""
    made = runs.Run(
        id="20260101-000001-0001", name="mnist", argv=["torchrun"], script="mnist.py", script_args=[], cwd="/",
        host=platform.node(), boot_id=runs.boot_id(), pid_namespace=runs.here().pid_namespace,
        created_at=1.0, world_size=4, supervisor=runs.Process(2**22 + 1, 1),
    )  # fmt: skip
    runs.create(made)
    return made


@pytest.fixture
def holder(run):
    """A process that holds the run's lock, as a supervisor does."""
    program = "import sys; from ddpmon import runs; runs.hold(sys.argv[1]); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, run.id], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        yield process
        process.kill()
