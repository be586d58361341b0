"""Keeps the hub alive: a hub that ends before its run is started again, after a growing pause."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from ddpmon import runs
from ddpmon.launch import processes
from ddpmon.runs import Process

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
WELL_AFTER_S = 60.0
"""A hub that lived this long was well: the next pause is the first again."""


class HubKeeper:
    """Starts the hub of one run, and starts it again. Times are seconds of one monotonic clock."""

    def __init__(self, run_id: str, say: Callable[[str], None]) -> None:
        self.process: Process | None = None
        self._run_id = run_id
        self._say = say
        self._started_at = 0.0
        self._next_at = 0.0
        self._pause_s = FIRST_PAUSE_S

    def start_if_due(self, at: float, even_if_not: bool = False) -> bool:
        """Start the hub if none runs and the pause is over; says whether one was started."""
        if self.process is not None or (at < self._next_at and not even_if_not):
            return False
        self._started_at = at
        # -P: a file of the user's working directory must not stand in for a module of the hub
        command = [sys.executable, "-P", "-m", "ddpmon.hub", self._run_id]
        try:
            pid = processes.spawn(command, dict(os.environ), runs.run_dir(self._run_id) / "logs" / "hub.log")
        except OSError as error:
            self._failed(at, f"cannot be started: {error}")
            return False
        self.process = Process.of(pid) or Process(pid, 0)
        return True

    def ended(self, at: float, code: int) -> None:
        """The hub ended, as waitpid told it."""
        self.process = None
        # so that a socket is there only while a hub listens on it
        (runs.socket_dir(self._run_id) / "view.sock").unlink(missing_ok=True)
        if at - self._started_at > WELL_AFTER_S:
            self._pause_s = FIRST_PAUSE_S
        self._failed(at, f"ended with {code} after {at - self._started_at:.1f} s")

    def _failed(self, at: float, what: str) -> None:
        self._say(f"hub {what}; next try in {self._pause_s:g} s; its own words are in hub.log")
        self._next_at = at + self._pause_s
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
