"""Keeps the hub alive: a hub that ends before its run is started again, after a growing pause."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ddpmon import runs
from ddpmon.launch import processes
from ddpmon.launch.restarts import Restarts
from ddpmon.runs import Process

FIRST_PAUSE_S = 0.5


class HubKeeper:
    """Starts the hub of one run, and starts it again. Times are seconds of one monotonic clock."""

    def __init__(self, run_id: str, say: Callable[[str], None]) -> None:
        self.process: Process | None = None
        self._run_id = run_id
        self._say = say
        self._restarts = Restarts(FIRST_PAUSE_S)
        self._is_child = True

    def take_over(self, process: Process) -> None:
        """Keep a hub that another supervisor started."""
        self.process = process
        self._is_child = False

    def notice_end(self, at: float) -> None:
        """Take notice of the end of a hub that is no child."""
        if self.process is not None and not self._is_child and not self.process.alive():
            self.ended(at, None)

    def start_if_due(self, at: float, even_if_not: bool = False) -> bool:
        """Start the hub if none runs and the pause is over; says whether one was started."""
        if self.process is not None or not (even_if_not or self._restarts.due(at)):
            return False
        self._restarts.started(at)
        try:
            pid = self._start()
        except OSError as error:
            self._failed(at, f"cannot be started: {error}")
            return False
        self.process, self._is_child = Process.of(pid) or Process(pid, 0), True
        return True

    def _start(self) -> int:
        # -P: a file of the user's working directory must not stand in for a module of the hub
        command = [sys.executable, "-P", "-m", "ddpmon.hub", self._run_id]
        log = runs.run_dir(self._run_id) / "logs" / "hub.log"
        # SIGTERM is blocked until the hub handles it: before, it would end a hub that has its report still to write.
        spawn = partial(
            processes.spawn, command, dict(os.environ), blocked={signal.SIGTERM}, ignored=processes.SCHEDULERS
        )
        try:
            return spawn(log)
        except OSError:  # a full disk: a hub without a log is better than none
            return spawn(Path(os.devnull))

    def ended(self, at: float, code: int | None) -> None:
        """The hub ended, by waitpid's answer; None: the code is unknown."""
        self.process = None
        # so that a socket is there only while a hub listens on it
        with contextlib.suppress(OSError):
            (runs.socket_dir(self._run_id) / "view.sock").unlink(missing_ok=True)
        self._failed(at, "ended" if code is None else f"ended with {code} after {self._restarts.lived_s(at):.1f} s")

    def _failed(self, at: float, failure: str) -> None:
        self._say(f"the hub {failure}; ddpmon starts it again in {self._restarts.failed(at):g} s; see hub.log")
