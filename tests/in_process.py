"""The command line inside the test's own process: the same `main`, without an interpreter that starts for each call."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from typing import Any

import pytest

from ddpmon.cli import main
from tests.conftest import Cli, ddpmon_program


def called(*words: str) -> subprocess.CompletedProcess[str]:
    """A command line of ddpmon to its end, away from any terminal: exit code and what was written."""
    output, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with open(os.devnull) as nothing, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [ddpmon_program(), *words])
        patch.setattr(sys, "stdin", nothing)
        patch.setattr(sys, "stdout", output)
        patch.setattr(sys, "stderr", errors)
        with pytest.raises(SystemExit) as ended:
            main()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked, "what it starts later would inherit the mask"
    written = (stream.buffer.getvalue().decode() for stream in (output, errors))
    return subprocess.CompletedProcess(words, ended.value.code, *written)


def called_in_a_terminal(*words: str, answer: bytes = b"", columns: int = 200, rows: int = 50) -> tuple[int, str]:
    """The same in a terminal of its own; the exit code, and all that reached the terminal. answer: what is typed."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    os.write(master, answer)
    written: list[bytes] = []
    reading = threading.Thread(target=_read, args=(master, written))
    reading.start()
    with (
        open(os.dup(slave), encoding="utf-8") as typed,
        open(os.dup(slave), "w", encoding="utf-8") as output,
        open(slave, "w", encoding="utf-8") as errors,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(rows)}.items():
            patch.setenv(name, value)
        for name, stream in {"stdin": typed, "stdout": output, "stderr": errors}.items():
            patch.setattr(sys, name, stream)
        patch.setattr(sys, "argv", [ddpmon_program(), *words])
        with pytest.raises(SystemExit) as ended:
            main()
    reading.join()
    os.close(master)
    return ended.value.code, b"".join(written).decode()


def _read(master: int, written: list[bytes]) -> None:
    """All that reaches a terminal until nobody has it open any more, which Linux says with an error."""
    with contextlib.suppress(OSError):
        while piece := os.read(master, 1 << 16):
            written.append(piece)


@pytest.fixture
def cli(cli: Cli) -> Cli:
    """`cli` of all tests, in this process; a call with options (another environment or folder) is one of its own."""

    def call(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return cli(*words, **options) if options else called(*words)

    return call
