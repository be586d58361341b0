"""The base of both supervisors: of a run that ddpmon started, and of a job that ddpmon attached to.

Standard library only.
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
"""Interval, in seconds, at which the supervisor checks a run that is ending. Remaining processes may not be its
children, so that no SIGCHLD reports their end."""
WRITE_END_S = 600.0
STOPS = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT}


class Supervising(ABC):
    """Supervises the hub and run.json of one run until the run's end."""

    def __init__(self, file: RunFile, say: Callable[[str], None]) -> None:
        self.file = file
        self.hub = HubKeeper(file.run.id, say)
        self._say = say

    @property
    def run(self) -> runs.Run:
        return self.file.run

    @abstractmethod
    def _wait_for_signal(self, seconds: float) -> int | None:
        """Wait for a signal at most so many seconds, and handle children that ended; return the signal."""

    @abstractmethod
    def _is_over(self) -> bool:
        """Check the run once, and act on what has changed; return whether the run is over."""

    def _until_over(self) -> None:
        """Check the run until it is over, even after exceptions: a bug must not leave the run without a supervisor."""
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
            self.file.change_fields(hub=self.hub.process)

    def _wait_and_keep_hub(self, seconds: float) -> int | None:
        """Wait, and restart the hub if necessary; return the signal that came."""
        number = self._wait_for_signal(seconds)
        self._keep_hub()
        return number

    def _until_written(self) -> None:
        """Wait until run.json says how the run ended, at most `WRITE_END_S`."""
        deadline = time.monotonic() + WRITE_END_S
        while not self.file.write_pending() and self.file.folder_exists and time.monotonic() < deadline:
            if self._wait_and_keep_hub(IDLE_S) in STOPS:
                self._say("the supervisor ends on request, before run.json says how the run ended")
                return

    def _conclude_run(self) -> None:
        """Let the hub write its last records, and remove the run's sockets."""
        self._wait_for_signal(0.0)
        # If the hub is down at this moment, a new one must still write the report.
        self._keep_hub(even_if_not_due=True)
        self.hub.end_process(self._wait_until)
        runs.remove_sockets(self.run.id)
        self._say("run ended")

    def _wait_until(self, seconds: float, so: Callable[[], bool]) -> None:
        """Wait until `so` returns True, at most so many seconds, and handle children that end meanwhile."""
        deadline = time.monotonic() + seconds
        while not so() and time.monotonic() < deadline:
            self._wait_for_signal(ENDING_S)


MAX_HELD_LINES_BYTES = 65_536
"""Maximum number of bytes of unwritten lines to hold while the disk is full; the oldest are dropped first."""


class SupervisorLog:
    """Writes lines to an open file at once, and holds those that cannot be written yet."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._unwritten = b""

    def write_line(self, text: str) -> None:
        """Write a line with its time, after the lines that are still to be written."""
        line = f"{time.strftime('%H:%M:%S')} {text}\n".encode(errors="backslashreplace")
        self._unwritten = (self._unwritten + line)[-MAX_HELD_LINES_BYTES:]
        self.write_pending()

    def write_pending(self) -> None:
        """Try again to write the lines that are still to be written."""
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._file, self._unwritten) :]
        except OSError:
            return
