"""Has `ddpmon publish` write a run that was just started to W&B, MLflow or TensorBoard, in a process of its own.

The process outlives a dashboard that somebody leaves, as the run does.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ddpmon import runs
from ddpmon.errors import RunNotFoundError
from ddpmon.plain import plain
from ddpmon.runs.rotated import tail

FINISH_S = 60.0
"""Time after the run's end in which the last numbers and the report are written."""


class Publisher:
    """The process that writes; none where nobody asked for it."""

    def __init__(self, run: runs.Run, places: Mapping[str, str | None]) -> None:
        """places: by the name of an option of `ddpmon publish`."""
        self._run = run
        self._log: Path = runs.run_dir(run.id) / "logs" / "publish.log"
        options = [f"--{name}={place}" for name, place in places.items() if place]
        self._process: subprocess.Popen[bytes] | None = None
        if options:
            try:
                self._process = self._start(options)
            except OSError as error:  # the run goes on
                print(f"ddpmon: nothing is published: {self._log}: {error.strerror}", file=sys.stderr)

    def _start(self, options: list[str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "ddpmon", "publish", self._run.id, *options]
        with open(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def finish(self) -> None:
        """Wait until a run that has ended is written; say in a line why it was not."""
        if self._process is None:
            return
        with contextlib.suppress(RunNotFoundError):
            if runs.load(self._run.id).state() == "running":
                return
        try:
            code = self._process.wait(FINISH_S)
        except subprocess.TimeoutExpired:
            print(f"ddpmon: ddpmon publish {self._run.id} is still writing; see {self._log}", file=sys.stderr)
            return
        if code:
            said = tail(self._log, 2000).strip().rpartition("\n")[2].removeprefix("ddpmon: ")
            print(plain(f"ddpmon: {said or f'ddpmon publish ended with {code}'}"), file=sys.stderr)
