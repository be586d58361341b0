"""Runs on disk, and processes that look at them from another pid namespace."""

from __future__ import annotations

import os
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
        host=platform.node(), boot_id=runs.boot_id(), pid_namespace=runs.pid_namespace(), created_at=1.0, world_size=4,
        supervisor=runs.Process(2**22 + 1, 1),
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


@pytest.fixture
def other_namespace():
    """What to put before a command line to run it in a pid namespace of its own, with its own /proc."""
    prefix = ["unshare", *([] if os.getuid() == 0 else ["-Ur"]), "-pf", "--mount-proc"]
    try:
        allowed = subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        allowed = False
    if not allowed:
        pytest.skip("no pid namespace can be made here")
    return prefix
