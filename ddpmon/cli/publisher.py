"""Starts `ddpmon publish` beside a new run, to write its metrics to W&B, MLflow or TensorBoard.

It is a separate process, so that it continues, like the run, after the user has left the dashboard.
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
from ddpmon.runs.rotated_logs import tail

MAX_PUBLISH_END_S = 60.0
"""Longest wait, in seconds, after the run's end until the last metrics and the report are published."""


class Publisher:
    """The process that publishes a run. Without a destination, no process is started."""

    def __init__(self, run: runs.Run, places: Mapping[str, str | None]) -> None:
        """Start the process if there is a destination.

        Args:
            run: The run.
            places: Values of the options of `ddpmon publish`, by option name.

        """
        self._run = run
        self._log: Path = runs.run_dir(run.id) / "logs" / "publish.log"
        options = [f"--{name}={place}" for name, place in places.items() if place]
        self._process: subprocess.Popen[bytes] | None = None
        if options:
            try:
                self._process = self._start(options)
            except OSError as error:  # The run continues, but ddpmon does not publish it.
                print(f"ddpmon: nothing is published: {self._log}: {error.strerror}", file=sys.stderr)

    def _start(self, options: list[str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", "ddpmon", "publish", self._run.id, *options]
        with open(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def finish(self) -> None:
        """If the run has ended, wait until it is published; print the reason if publishing failed."""
        if self._process is None:
            return
        with contextlib.suppress(RunNotFoundError):
            if runs.load(self._run.id).state() == "running":
                return
        try:
            code = self._process.wait(MAX_PUBLISH_END_S)
        except subprocess.TimeoutExpired:
            print(f"ddpmon: ddpmon publish {self._run.id} is still writing; see {self._log}", file=sys.stderr)
            return
        if code:
            said = tail(self._log, 2000).strip().rpartition("\n")[2].removeprefix("ddpmon: ")
            print(plain(f"ddpmon: {said or f'ddpmon publish ended with {code}'}"), file=sys.stderr)
