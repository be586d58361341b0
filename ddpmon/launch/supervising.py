"""The work that both supervisors do, of a run that ddpmon started and of a job that it attached to. Standard library
only.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable

from ddpmon import runs
from ddpmon.launch.kept_process import HubKeeper
from ddpmon.launch.run_file import RunFile

IDLE_S = 1.0
ENDING_S = 0.1
"""Interval at which it looks while the run ends: a process that is left need not be a child, whose end would be
signalled."""
WRITE_END_S = 600.0
STOPS = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}


class Supervising(ABC):
    """Keeps the hub and run.json of one run to its end."""

    def __init__(self, file: RunFile, say: Callable[[str], None]) -> None:
        self.file = file
        self.hub = HubKeeper(file.run.id, say)
        self._say = say

    @property
    def run(self) -> runs.Run:
        return self.file.run

    @abstractmethod
    def _look(self, seconds: float) -> int | None:
        """Wait for a signal at most so long, and take notice of children that ended; returns the signal."""

    @abstractmethod
    def _is_over(self) -> bool:
        """Check the run once, and do what follows."""

    def _until_over(self) -> None:
        """Check the run until it is over. A fault of ours must not leave it without a supervisor."""
        last_fault = ""
        while True:
            try:
                if self._is_over():
                    return
            except Exception:
                if (text := traceback.format_exc()) != last_fault:
                    self._say(text)
                    last_fault = text
                time.sleep(ENDING_S)

    def _keep_hub(self, even_if_not_due: bool = False) -> None:
        now = time.monotonic()
        self.hub.notice_end(now)
        if self.hub.start_if_due(now, even_if_not_due):
            self.file.change(hub=self.hub.process)

    def _pause(self, seconds: float) -> int | None:
        """Wait, and keep the hub meanwhile; returns the signal that came."""
        number = self._look(seconds)
        self._keep_hub()
        return number

    def _until_written(self) -> None:
        """Have run.json say how the run ended, as far as that can be waited for."""
        deadline = time.monotonic() + WRITE_END_S
        while not self.file.write() and self.file.wanted and time.monotonic() < deadline:
            if self._pause(IDLE_S) in STOPS:
                self._say("the supervisor ends on request, before run.json says how the run ended")
                return

    def _conclude(self) -> None:
        """Let the hub write its last records, and remove what only a run that goes on needs."""
        self._look(0.0)
        self._keep_hub(even_if_not_due=True)  # if it is down just now, one must still write the report
        self.hub.end(self._wait_until)
        runs.remove_sockets(self.run.id)
        self._say("run ended")

    def _wait_until(self, seconds: float, so: Callable[[], bool]) -> None:
        """Wait for something at most so long, and take notice of children that end meanwhile."""
        deadline = time.monotonic() + seconds
        while not so() and time.monotonic() < deadline:
            self._look(ENDING_S)


KEPT_BYTES = 65_536
"""Lines that are kept while they cannot be written; the oldest are dropped first."""


class SupervisorLog:
    """Lines for an open file, which is written to without buffers in between."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._unwritten = b""

    def say(self, text: str) -> None:
        """Write a line with its time, after those that wait."""
        line = f"{time.strftime('%H:%M:%S')} {text}\n".encode(errors="backslashreplace")
        self._unwritten = (self._unwritten + line)[-KEPT_BYTES:]
        self.write()

    def write(self) -> None:
        """Try again to write what waits."""
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._file, self._unwritten) :]
        except OSError:
            return
