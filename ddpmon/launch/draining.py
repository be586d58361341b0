"""Keeps a run's drain alive, and gives the run's command the spool it prints into."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from ddpmon import runs
from ddpmon.launch import processes, spool
from ddpmon.launch.kept_process import KeptProcess

READY_S = 5.0
_POLL_S = 0.02


class Draining(KeptProcess):
    """The drain of one run."""

    NAME = "the process that writes the logs"
    MEANWHILE = ", and until then the output waits in pipes"
    FIRST_PAUSE_S = 0.2
    END_S = 10.0
    _spool: int | None = None

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
        else:
            self.start_if_due(at)

    def _start(self) -> int:
        return self._spawn("ddpmon.launch.drain", (str(os.getpid()),), sys.stderr.fileno())

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
