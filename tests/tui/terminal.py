"""A real terminal: a child process in a pty, and pyte to read what it shows."""

from __future__ import annotations

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
from collections.abc import Callable, Mapping

import pyte

from tests import forked
from tests.deadlines import Deadline

DEADLINE_S = 60.0
PYTHON = (sys.executable, "-m")
_UNKNOWN_TO_PYTE = re.compile(rb"\x1b\[[<>=?][0-9;]*u|\x1b\[\?[0-9;]*\$p|\x1b\[>[0-9;]*[a-z]")
_ASKS_FOR_SYNCHRONISED = b"\x1b[?2026$p"
_HAS_SYNCHRONISED = b"\x1b[?2026;2$y"
_CUT_OFF = re.compile(rb"\x1b(\[[0-9;<>=?$]*)?\Z")
"""The beginning of a sequence whose rest is still to come."""
_DEFAULTS = "; ".join(f"signal.signal(signal.{name}, signal.SIG_DFL)" for name in ("SIGHUP", "SIGINT", "SIGQUIT"))
"""As a login leaves them: tests under nohup or in the background of a script ignore some, and so do their children."""


class Terminal:
    """`python -m MODULE ARGS`, or another program with its arguments, in a terminal of its own."""

    def __init__(
        self,
        *arguments: str,
        columns: int = 80,
        rows: int = 24,
        controlling: bool = True,
        program: tuple[str, ...] = PYTHON,
        fresh: bool = False,
        synchronised: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """A terminal with a program in it.

        controlling: the terminal tells the program when it goes away, as an ssh session's does. fresh: an interpreter
        of its own runs the module instead of one that is forked. synchronised: the terminal says that it has
        synchronised output (mode 2026), as most do. environment: beside this process's; "": not set.
        """
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._held = b""
        # The size is set before the program starts, so that it never sees another one.
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(slave)
        self._synchronised = synchronised
        command = [*program, *arguments]
        login = f"import os, signal; os.login_tty(0); {_DEFAULTS}; os.execvp({command[0]!r}, {command!r})"
        # readline, which some tool has imported before, says in the environment how large it thinks the terminal is.
        given = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(environment or {})}
        given = {name: value for name, value in given.items() if value and name not in {"COLUMNS", "LINES"}}
        streams = dict(stdin=slave, stdout=slave, stderr=slave)
        self.process: subprocess.Popen[bytes] | forked.Forked
        if program == PYTHON and not fresh:
            self.process = forked.Forked(*arguments, **streams, environment=given, terminal=controlling)
        else:
            words = [sys.executable, "-I", "-S", "-c", login] if controlling else command
            self.process = subprocess.Popen(words, **streams, env=given)
        os.close(slave)

    def read(self, seconds: float = 0.05) -> bool:
        """Feed what comes within `seconds` to the screen; says whether something came."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:  # Linux's end of file on a pty whose program is gone
            time.sleep(seconds)
            return False
        self.raw += data
        if self._synchronised and _ASKS_FOR_SYNCHRONISED in data:
            os.write(self.master, _HAS_SYNCHRONISED)
        self.feed(data)
        return bool(data)

    def feed(self, data: bytes) -> None:
        """Draw on the screen what the program has written."""
        whole = self._held + data
        cut = _CUT_OFF.search(whole)
        self._held = whole[cut.start() :] if cut else b""
        self._stream.feed(_UNKNOWN_TO_PYTE.sub(b"", whole.removesuffix(self._held)))

    def wait_for(self, text: str, within: float = DEADLINE_S) -> str:
        """The screen once it shows `text`."""
        return self.wait_until(lambda shown: text in shown, repr(text), within)

    def wait_until(self, holds: Callable[[str], bool], what: str, within: float = DEADLINE_S) -> str:
        """The screen once `holds` is true of it. what: how it is called if it never is."""
        deadline = Deadline(within)
        shown = None
        while not deadline.passed:
            came = self.read()
            if came or shown is None:
                # All that has been written, as to draw it costs more than to read it.
                while came and not deadline.passed:
                    came = self.read(0)
                shown = "\n".join(self.screen.display)
            if holds(shown):
                return shown
        raise AssertionError(f"{what} never came; the screen shows:\n" + "\n".join(self.screen.display))

    def wait_for_output(self, written: bytes) -> None:
        """Until the program has written this, wherever it stands on the screen or stood."""
        deadline = Deadline(DEADLINE_S)
        while written not in self.raw:
            assert not deadline.passed, f"{written!r} was never written"
            self.read()

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def wait_end(self) -> int:
        """The exit code (negative: a signal) once the program has ended."""
        deadline = Deadline(DEADLINE_S)
        while self.process.poll() is None:
            assert not deadline.passed, "it never ended"
            if self.master < 0:
                return self.process.wait(DEADLINE_S)
            self.read()
        while self.master >= 0 and self.read(0):
            pass
        return self.process.returncode

    def leave(self, code: int = 0) -> None:
        """Press q: the program ends with this exit code, and without a traceback."""
        self.press(b"q")
        assert self.wait_end() == code
        assert b"Traceback" not in self.raw

    def settings(self) -> list:
        """The terminal's settings now."""
        return termios.tcgetattr(self.master)

    def hang_up(self) -> None:
        """Close the terminal, as a dropped connection does."""
        os.close(self.master)
        self.master = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        if self.master >= 0:
            os.close(self.master)
