"""Run a dashboard in a terminal of its own (a pty), and record its output and its screens."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.tui.terminal import Terminal


class Dashboard(Terminal):
    """A command in a terminal. Its output is drawn afterwards, so that drawing delays no measurement."""

    def __init__(self, command: list[str], size: tuple[int, int]) -> None:
        self.began = time.perf_counter()
        self.written: list[tuple[float, bytes]] = []
        """Pieces of output, each with the time at which it arrived."""
        program, *arguments = command
        super().__init__(
            *arguments, columns=size[0], rows=size[1], program=(program,), environment={"COLORTERM": "truecolor"}
        )

    def collect(self, seconds: float, until: bytes = b"") -> float | None:
        """Read output for some seconds. If `until` appears in it, return the time of that at once; otherwise return
        None."""
        end = time.perf_counter() + seconds
        tail = b""
        while (left := end - time.perf_counter()) > 0:
            if not select.select([self.master], [], [], left)[0]:
                continue
            try:
                data = os.read(self.master, 1 << 16)
            except OSError:
                raise SystemExit("the dashboard ended by itself") from None
            now = time.perf_counter()
            self.written.append((now, data))
            tail = tail[-100:] + data
            if until and until in tail:
                return now
        return None

    def press_now(self, key: bytes) -> float:
        """Press a key, and return when it was pressed."""
        self.collect(0.02)
        pressed = time.perf_counter()
        self.press(key)
        return pressed

    def bytes_since(self, since: float) -> int:
        return sum(len(data) for at, data in self.written if at >= since)

    def memory_mb(self) -> float:
        return psutil.Process(self.process.pid).memory_info().rss / 1e6

    def close(self) -> None:
        """End the dashboard as its user does."""
        with contextlib.suppress(OSError):
            self.press(b"q")
        with contextlib.suppress(SystemExit):
            self.collect(2.0, b"\x1b[?1049l")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)

    def played(self) -> Iterator[tuple[float, str]]:
        """Yield the moments at which output came, and the screen at each."""
        for at, data in self.written:
            self.feed(data)
            yield at, "\n".join(self.screen.display)

    def first_shown(self, is_it: Callable[[str], bool]) -> float | None:
        """Return the seconds from the start of the process until its screen first showed such a text; None if it never
        did.
        """
        return next((at - self.began for at, text in self.played() if is_it(text)), None)


@contextlib.contextmanager
def shown(command: list[str], size: tuple[int, int]) -> Iterator[Dashboard]:
    with Dashboard(command, size) as dashboard:
        try:
            yield dashboard
        finally:
            dashboard.close()
