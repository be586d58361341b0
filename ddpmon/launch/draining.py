"""Keeps a run's drain alive, and gives the run's command the spool it prints into."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable

from ddpmon import runs
from ddpmon.launch import processes, spool
from ddpmon.launch.restarts import Restarts
from ddpmon.runs import Process

READY_S = 5.0
_POLL_S = 0.02
END_S = 10.0
"""Longest time for the drain to write the rest once nobody prints any more."""
FIRST_PAUSE_S = 0.2


class Draining:
    """The drain of one run, started again where it ends. Times are seconds of one monotonic clock."""

    def __init__(self, run_id: str, say: Callable[[str], None]) -> None:
        self.process: Process | None = None
        self._run_id = run_id
        self._say = say
        self._spool: int | None = None
        self._ending = False
        self._restarts = Restarts(FIRST_PAUSE_S)

    def start(self, at: float) -> None:
        """Start it before the command is started, whose output it must be ready to take."""
        with contextlib.suppress(OSError):  # the command's start will say so
            self.output()
        self.keep(at)

    def take_over(self, at: float) -> None:
        """Start it for a run whose supervisor was killed, and wait until it has opened what the run prints into."""
        ready = runs.socket_dir(self._run_id) / "drain.sock"
        with contextlib.suppress(OSError):
            ready.unlink(missing_ok=True)
        self.keep(at)
        deadline = at + READY_S
        while self.process and self.process.alive() and not ready.exists() and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def keep(self, at: float) -> None:
        """Have one run: start it if none does, wake it if somebody stopped it."""
        if self.process is not None:
            processes.send(self.process, signal.SIGCONT)
        elif self._restarts.due(at):
            self._start(at)

    def _start(self, at: float) -> None:
        self._restarts.started(at)
        # -P: a file of the user's working directory must not stand in for a module of the drain
        command = [sys.executable, "-P", "-m", "ddpmon.launch.drain", self._run_id, str(os.getpid())]
        try:
            # SIGTERM is blocked until the drain handles it: before, it would kill.
            pid = processes.spawn(
                command, dict(os.environ), sys.stderr.fileno(),
                blocked={signal.SIGTERM}, ignored=processes.SCHEDULERS,
            )  # fmt: skip
        except OSError as error:
            self._failed(at, f"cannot be started: {error}")
            return
        self.process = Process.of(pid) or Process(pid, 0)

    def output(self) -> int:
        """Return what the run's command is to print into: a descriptor that only this process has by now. Raises
        OSError.
        """
        if self._spool is None:
            try:
                self._spool = spool.make(self._run_id, str(runs.socket_dir(self._run_id)), "launcher.log")
            except OSError as error:  # the folder is gone
                self._say(
                    f"cannot make a pipe ({error.strerror}), so the output of the ranks goes directly to launcher.log"
                )
                log = runs.run_dir(self._run_id) / "logs" / "launcher.log"
                self._spool = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return self._spool

    def ended(self, at: float, code: int) -> None:
        """The drain ended, by waitpid's answer."""
        self.process = None
        if not self._ending:
            self._failed(at, f"ended with {code}")

    def _failed(self, at: float, failure: str) -> None:
        pause_s = self._restarts.failed(at)
        self._say(
            f"the process that writes the logs {failure}; ddpmon starts it again in {pause_s:g} s, and "
            "until then the output waits in pipes"
        )

    def end(self, wait: Callable[[float, Callable[[], bool]], None]) -> None:
        """Nobody prints any more: have the rest written.

        wait(seconds, condition): waits until the condition holds, at most so long.
        """
        if self.process is None:  # down just now: what it left must still be taken
            self._start(time.monotonic())
        if (drain := self.process) is None:
            return
        self._ending = True
        processes.send(drain, signal.SIGTERM)
        processes.send(drain, signal.SIGCONT)
        wait(END_S, lambda: not drain.alive())
        if drain.alive():
            self._say("the process that writes the logs does not end; sending SIGKILL")
            processes.send(drain, signal.SIGKILL)
            wait(1.0, lambda: not drain.alive())
