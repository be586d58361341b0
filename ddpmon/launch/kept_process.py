"""Restarts the hub and the drain of a run whenever they end, after growing pauses, until the run has ended.

Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from ddpmon import runs
from ddpmon.inject import ddpmon_spool
from ddpmon.launch import processes
from ddpmon.launch.life import HUB_END_S
from ddpmon.runs import Process

LONGEST_PAUSE_S = 30.0
WELL_AFTER_S = 60.0
"""Lifetime of a process, in seconds, after which it counts as healthy. The pause before its next start is then reset.
"""
KILLED_S = 1.0
"""Longest wait, in seconds, for the end of a process that was sent SIGKILL."""


class KeptProcess(ABC):
    """Starts one process of a run, and starts it again when it ends. Times are seconds of one monotonic clock."""

    NAME: ClassVar[str]
    """Name of the process in messages."""
    MEANWHILE: ClassVar[str]
    """End of the message that says that the process ended. It says what happens until the restart, or names a log."""
    FIRST_PAUSE_S: ClassVar[float]
    END_S: ClassVar[float]
    """Longest time, in seconds, for the process to finish its work once the run has ended."""

    def __init__(self, run_id: str, say: Callable[[str], None]) -> None:
        self.process: Process | None = None
        self._run_id = run_id
        self._say = say
        self._pause_s = self.FIRST_PAUSE_S
        self._started_at = self._next_at = 0.0
        self._is_ending = False

    @abstractmethod
    def _start_process(self) -> int:
        """Start the process; return its pid. Raise OSError if that fails."""

    def _spawn_module(self, module: str, words: tuple[str, ...], log: Path | int) -> int:
        """Start a module of ddpmon and return its pid. Raise OSError if that fails.

        Args:
            module: The module.
            words: Its arguments after the run's id.
            log: The file or descriptor that its output goes to.

        """
        # -P: a file of the user's working directory must not replace a module that the process imports.
        command = [sys.executable, "-P", "-m", module, self._run_id, *words]
        # SIGTERM is blocked until the process handles it: earlier, it would end the process before its last work.
        blocked = {signal.SIGTERM}
        return processes.spawn_session(command, dict(os.environ), log, blocked=blocked, ignored=processes.SCHEDULERS)

    def start_if_due(self, at: float, even_if_not: bool = False) -> bool:
        """Start the process if it is not running and the pause since its last end is over. Return whether it started.

        Args:
            at: The current time in seconds.
            even_if_not: Start the process even if the pause is not over.

        """
        if self.process is not None or not (even_if_not or at >= self._next_at):
            return False
        self._started_at = at
        try:
            pid = self._start_process()
        except OSError as error:
            self._report_failure(at, f"cannot be started: {error}")
            return False
        self.process = Process.of(pid) or Process(pid, 0)
        return True

    def record_end(self, at: float, code: int | None) -> None:
        """Record the end of the process. code: the exit code that waitpid reported; None if it is unknown."""
        self.process = None
        if not self._is_ending:
            self._report_failure(
                at, "ended" if code is None else f"ended with {code} after {at - self._started_at:.1f} s"
            )

    def _report_failure(self, at: float, failure: str) -> None:
        """Report the failure, and wait before the next start, longer each time."""
        if at - self._started_at > WELL_AFTER_S:
            self._pause_s = self.FIRST_PAUSE_S
        pause_s = self._pause_s
        self._next_at, self._pause_s = at + pause_s, min(pause_s * 2, LONGEST_PAUSE_S)
        self._say(f"{self.NAME} {failure}; ddpmon starts it again in {pause_s:g} s{self.MEANWHILE}")

    def end_process(self, wait: Callable[[float, Callable[[], bool]], None]) -> None:
        """Let the process finish its work, and kill it if it does not end in END_S.

        If it is not running at this moment, it is started for its last work.

        Args:
            wait: Called as wait(seconds, condition); waits until the condition holds, at most that long.

        """
        self.start_if_due(time.monotonic(), even_if_not=True)
        if (process := self.process) is None:
            return
        self._is_ending = True
        processes.send_signal(process, signal.SIGTERM)
        processes.send_signal(process, signal.SIGCONT)  # A stopped process must continue in order to end.
        wait(self.END_S, lambda: not process.alive())
        if process.alive():
            self._say(f"{self.NAME} does not end; sending SIGKILL")
            processes.send_signal(process, signal.SIGKILL)
            wait(KILLED_S, lambda: not process.alive())


class HubKeeper(KeptProcess):
    """Keeps the hub of one run alive."""

    NAME = "the hub"
    MEANWHILE = "; see hub.log"
    FIRST_PAUSE_S = 0.5
    END_S = HUB_END_S
    _is_child = True

    def take_over(self, process: Process) -> None:
        """Take over a hub that an earlier supervisor started, so that this keeper restarts the hub when it ends."""
        self.process = process
        self._is_child = False

    def notice_end(self, at: float) -> None:
        """Check whether a hub that an earlier supervisor started has ended. The kernel sends no SIGCHLD for it."""
        if self.process is not None and not self._is_child and not self.process.alive():
            self.record_end(at, None)

    def _start_process(self) -> int:
        self._is_child = True
        try:
            return self._spawn_module("ddpmon.hub", (), runs.run_dir(self._run_id) / "logs" / "hub.log")
        except OSError:  # If the disk is full, a hub without a log is better than none.
            return self._spawn_module("ddpmon.hub", (), Path(os.devnull))

    def record_end(self, at: float, code: int | None) -> None:
        # The socket must exist only while a hub listens on it.
        with contextlib.suppress(OSError):
            (runs.socket_dir(self._run_id) / "view.sock").unlink(missing_ok=True)
        super().record_end(at, code)


READY_S = 5.0
_POLL_S = 0.02


class Draining(KeptProcess):
    """Keeps the drain of one run alive."""

    NAME = "the process that writes the logs"
    MEANWHILE = ", and until then the output waits in pipes"
    FIRST_PAUSE_S = 0.2
    END_S = 10.0
    _spool: int | None = None

    def start_drain(self, at: float) -> None:
        """Start the drain before the command, so that it is ready for the command's output."""
        with contextlib.suppress(OSError):  # The command's start needs the descriptor too, and reports the error.
            self.output_descriptor()
        self.keep_draining(at)

    def take_over(self, at: float) -> None:
        """Start the drain of a run whose supervisor was killed, and wait until it has opened the run's spools."""
        ready = runs.socket_dir(self._run_id) / "drain.sock"
        with contextlib.suppress(OSError):
            ready.unlink(missing_ok=True)
        self.keep_draining(at)
        deadline = at + READY_S
        while self.process and self.process.alive() and not ready.exists() and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def keep_draining(self, at: float) -> None:
        """Start the drain if it is not running; continue it if somebody stopped it."""
        if self.process is not None:
            processes.send_signal(self.process, signal.SIGCONT)
        else:
            self.start_if_due(at)

    def _start_process(self) -> int:
        return self._spawn_module("ddpmon.launch.drain", (str(os.getpid()),), sys.stderr.fileno())

    def output_descriptor(self) -> int:
        """Return a descriptor for the output of the run's command: a spool, or launcher.log if no pipe can be made.

        Raises:
            OSError: The descriptor cannot be opened.

        """
        if self._spool is None:
            try:
                self._spool = ddpmon_spool.make_pipe(str(runs.socket_dir(self._run_id)), self._run_id, "launcher.log")
            except OSError as error:  # The folder is gone.
                self._say(
                    f"cannot make a pipe ({error.strerror}), so the output of the ranks goes directly to launcher.log"
                )
                log = runs.run_dir(self._run_id) / "logs" / "launcher.log"
                self._spool = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return self._spool
