"""Base class of the two supervisors, and the code with which both begin.

`launch.supervisor` supervises a run that ddpmon started. `attach.supervisor` supervises a job that ddpmon attached to.

Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection

from ddpmon import runs
from ddpmon.errors import DdpmonError
from ddpmon.launch import processes
from ddpmon.launch.kept_process import HubKeeper
from ddpmon.launch.run_file import RunFile
from ddpmon.runs import Process

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
        """Wait up to `seconds` for a signal, and handle children that ended. Return the signal; None if none came."""

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
        """Wait up to `seconds` for a signal, and restart the hub if it has ended. Return the signal; None if none."""
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
        """Wait up to `seconds` until `so` returns True, and handle children that end meanwhile."""
        deadline = time.monotonic() + seconds
        while not so() and time.monotonic() < deadline:
            self._wait_for_signal(ENDING_S)


MAX_HELD_LINES_BYTES = 65_536
"""Largest number of bytes of unwritten lines to hold while the disk is full. The oldest lines are dropped first."""


class SupervisorLog:
    """Writes lines to an open file at once. Lines that a full disk refuses are held and written later."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._unwritten = b""

    def write_line(self, text: str) -> None:
        """Write a line with its time, after the held lines."""
        line = f"{time.strftime('%H:%M:%S')} {text}\n".encode(errors="backslashreplace")
        self._unwritten = (self._unwritten + line)[-MAX_HELD_LINES_BYTES:]
        self.write_pending()

    def write_pending(self) -> None:
        """Try again to write the held lines."""
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._file, self._unwritten) :]
        except OSError:
            return


def become_supervisor(
    program: str, signals: Collection[signal.Signals], say: Callable[[str], None]
) -> tuple[RunFile, bool, int]:
    """Detach from the process that started this one, then enter this process in run.json as the supervisor.

    The function forks. The first process ends with code 0 once the second has signed run.json, otherwise with 1, after
    one line on standard output with the reason. Only the second process returns.

    Args:
        program: Name of the running module, for `--help`. Its command line has the run's id and maybe --take-over.
        signals: The signals that the supervisor waits for; they are blocked.
        say: Writes a line into the supervisor's log.

    Returns:
        The run, whether this replaces a killed supervisor, and the umask of the process that started this one.

    """
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("run_id")
    parser.add_argument("--take-over", action="store_true")
    arguments = parser.parse_args()
    run_id: str = arguments.run_id
    takes_over: bool = arguments.take_over
    signed, ready = os.pipe()
    try:
        runs.hold(run_id)
        run = runs.load(run_id)
        if run.ended:
            raise DdpmonError(f"{run.name} ({run.id}) has ended")
        processes.become_subreaper()
    except (DdpmonError, OSError) as error:
        print(error)
        sys.exit(1)
    if os.fork():  # The starter waits only for the first process; init adopts the second.
        os.close(ready)
        os._exit(0 if os.read(signed, 1) else 1)
    processes.become_subreaper()  # A child does not inherit this through a fork.
    for number in (signal.SIGHUP, *processes.SCHEDULERS):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    umask = os.umask(0o077)  # Only this user may read the files of this process and the hub.
    file = RunFile(run, say)
    try:
        _sign_run(file, takes_over=takes_over)
    except DdpmonError as error:
        print(error, flush=True)
        os._exit(1)
    os.dup2(2, 1)  # From here on nobody reads this process's standard output.
    os.write(ready, b"signed")
    os.close(ready)
    os.close(signed)
    return file, takes_over, umask


def _sign_run(file: RunFile, *, takes_over: bool) -> None:
    """Enter this process in run.json as the supervisor.

    Raises:
        DdpmonError: run.json cannot be written; then nothing is started.

    """
    myself = Process.of(os.getpid())
    try:
        if takes_over:
            file.change_for_sure(supervisor=myself)
            with contextlib.suppress(OSError):
                file.reserve_space()
        else:
            file.reserve_space()
            file.change_fields(supervisor=myself)
    except OSError as error:
        raise DdpmonError(f"no disk space for run.json: {error.strerror}") from None
    if file.trouble:
        raise DdpmonError(file.trouble)
