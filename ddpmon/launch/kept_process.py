"""Keeps a process of ddpmon alive to the end of its run, by starting it again after growing pauses.

Standard library only.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from ddpmon.launch import processes
from ddpmon.runs import Process

LONGEST_PAUSE_S = 30.0
WELL_AFTER_S = 60.0
"""Life of a process after which it counts as healthy: the pause before the next start is the first one again."""
KILLED_S = 1.0
"""Longest time for the kernel to end a process that was sent SIGKILL."""


class KeptProcess(ABC):
    """Starts the process of one run, and starts it again. Times are seconds of one monotonic clock."""

    NAME: ClassVar[str]
    """Name of the process in lines for people."""
    MEANWHILE: ClassVar[str]
    """What happens, or what to read, until it is started again."""
    FIRST_PAUSE_S: ClassVar[float]
    END_S: ClassVar[float]
    """Longest time for its last work, once the run is over."""

    def __init__(self, run_id: str, say: Callable[[str], None]) -> None:
        self.process: Process | None = None
        self._run_id = run_id
        self._say = say
        self._pause_s = self.FIRST_PAUSE_S
        self._started_at = self._next_at = 0.0
        self._is_ending = False

    @abstractmethod
    def _start(self) -> int:
        """Start it; returns its pid. Raises OSError."""

    def _spawn(self, module: str, words: tuple[str, ...], log: Path | int) -> int:
        """Start a module of ddpmon. log: where its output goes. Raises OSError."""
        # -P: a file of the user's working directory must not stand in for a module of the process
        command = [sys.executable, "-P", "-m", module, self._run_id, *words]
        # SIGTERM is blocked until the process handles it: before, it would end what has its last work still to do.
        blocked = {signal.SIGTERM}
        return processes.spawn(command, dict(os.environ), log, blocked=blocked, ignored=processes.SCHEDULERS)

    def start_if_due(self, at: float, even_if_not: bool = False) -> bool:
        """Start it if none runs and the pause is over; says whether one was started."""
        if self.process is not None or not (even_if_not or at >= self._next_at):
            return False
        self._started_at = at
        try:
            pid = self._start()
        except OSError as error:
            self._failed(at, f"cannot be started: {error}")
            return False
        self.process = Process.of(pid) or Process(pid, 0)
        return True

    def ended(self, at: float, code: int | None) -> None:
        """It ended, by waitpid's answer; None: the code is unknown."""
        self.process = None
        if not self._is_ending:
            self._failed(at, "ended" if code is None else f"ended with {code} after {at - self._started_at:.1f} s")

    def _failed(self, at: float, failure: str) -> None:
        """Say so, and wait before the next try: longer each time."""
        if at - self._started_at > WELL_AFTER_S:
            self._pause_s = self.FIRST_PAUSE_S
        pause_s = self._pause_s
        self._next_at, self._pause_s = at + pause_s, min(pause_s * 2, LONGEST_PAUSE_S)
        self._say(f"{self.NAME} {failure}; ddpmon starts it again in {pause_s:g} s{self.MEANWHILE}")

    def end(self, wait: Callable[[float, Callable[[], bool]], None]) -> None:
        """Let it do its last work, then make sure that it has ended.

        Where it is down just now, one is started for that. wait(seconds, condition): waits until the condition holds,
        at most so long.
        """
        self.start_if_due(time.monotonic(), even_if_not=True)
        if (process := self.process) is None:
            return
        self._is_ending = True
        processes.send(process, signal.SIGTERM)
        processes.send(process, signal.SIGCONT)  # one that was stopped has not taken what came last
        wait(self.END_S, lambda: not process.alive())
        if process.alive():
            self._say(f"{self.NAME} does not end; sending SIGKILL")
            processes.send(process, signal.SIGKILL)
            wait(KILLED_S, lambda: not process.alive())
