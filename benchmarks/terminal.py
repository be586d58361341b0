"""A program in a terminal of its own (a pty), everything that it writes there, and what the screen then showed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator

import psutil
import pyte


def open_terminal(size: tuple[int, int]) -> tuple[int, int]:
    """Return both ends of a terminal of so many columns and rows: ours and the program's."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    return ours, theirs


class Dashboard:
    """A command in a terminal, and all that it writes, with the time at which it came."""

    def __init__(self, command: list[str], size: tuple[int, int]) -> None:
        self.master, slave = open_terminal(size)
        login = f"import os; os.login_tty(0); os.execv({command[0]!r}, {command!r})"
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", login],
            stdin=slave, stdout=slave, stderr=slave,
            env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
        )  # fmt: skip
        os.close(slave)
        self.written: list[tuple[float, bytes]] = []

    def read(self, seconds: float, until: bytes = b"") -> float | None:
        """Take what comes within some seconds; when this came, at once then. None: it did not."""
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

    def press(self, key: bytes) -> float:
        """Return when it was pressed."""
        self.read(0.02)
        pressed = time.perf_counter()
        os.write(self.master, key)
        return pressed

    def bytes_since(self, since: float) -> int:
        return sum(len(data) for at, data in self.written if at >= since)

    def memory_mb(self) -> float:
        return psutil.Process(self.process.pid).memory_info().rss / 1e6

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self.master, b"q")
        with contextlib.suppress(SystemExit):
            self.read(2.0, b"\x1b[?1049l")
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.master)


@contextlib.contextmanager
def shown(command: list[str], size: tuple[int, int]) -> Iterator[Dashboard]:
    dashboard = Dashboard(command, size)
    try:
        yield dashboard
    finally:
        dashboard.close()


def played(dashboard: Dashboard, size: tuple[int, int]) -> Iterator[tuple[float, str]]:
    """Yield the moments at which output came, and the screen at each."""
    screen = pyte.Screen(*size)
    stream = pyte.ByteStream(screen)
    held = b""
    for at, data in dashboard.written:
        whole = held + data
        cut = _CUT_OFF.search(whole)
        held = whole[cut.start() :] if cut else b""
        stream.feed(_UNKNOWN_TO_PYTE.sub(b"", whole.removesuffix(held)))
        yield at, "\n".join(screen.display)


def first_shown(dashboard: Dashboard, size: tuple[int, int], is_it: Callable[[str], bool]) -> float | None:
    """Return the seconds from the start of the process until such a text was on its screen; None: it never was."""
    return next((at - dashboard.began for at, text in played(dashboard, size) if is_it(text)), None)


_UNKNOWN_TO_PYTE = re.compile(rb"\x1b\[[<>=?][0-9;]*u|\x1b\[\?[0-9;]*\$p|\x1b\[>[0-9;]*[a-z]")
_CUT_OFF = re.compile(rb"\x1b(\[[0-9;<>=?$]*)?\Z")
