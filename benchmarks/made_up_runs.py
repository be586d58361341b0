"""Make runs without training, for programs that feed a hub: a home of their own, a run, and its hub."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ddpmon import runs


@contextlib.contextmanager
def own_home() -> Iterator[Path]:
    """Set DDPMON_HOME to a temporary folder."""
    before = os.environ.get("DDPMON_HOME")
    with tempfile.TemporaryDirectory(prefix="ddpmon-b") as folder:
        os.environ["DDPMON_HOME"] = folder
        try:
            yield Path(folder)
        finally:
            os.environ.pop("DDPMON_HOME")
            if before is not None:
                os.environ["DDPMON_HOME"] = before


def make_run(
    name: str, world_size: int, *, nnodes: int = 1, host: str = "", age_s: float = 0.0, supervisor: int = 0
) -> runs.Run:
    """Create a run that began `age_s` ago. supervisor: its pid; 0: this process."""
    run = runs.Run(
        id=runs.new_id(), name=name, argv=["true"], script="train.py", script_args=[], cwd="/",
        host=host or socket.gethostname(), boot_id=runs.boot_id(), created_at=time.time() - age_s,
        world_size=world_size, nnodes=nnodes, supervisor=runs.Process.of(supervisor or os.getpid()),
    )  # fmt: skip
    runs.create(run)
    return run


def hub_log(run: runs.Run) -> Path:
    """Return the path of the log that the run's hub writes."""
    return runs.run_dir(run.id) / "logs" / "hub.log"


def start_hub(run: runs.Run, *words: str) -> subprocess.Popen[bytes]:
    """Start the hub of a run. words: the interpreter's command line, where it is not that of a hub."""
    with hub_log(run).open("ab") as log:
        return subprocess.Popen([sys.executable, *(words or ("-m", "ddpmon.hub", run.id))], stdout=log, stderr=log)
