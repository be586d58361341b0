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
from collections.abc import Mapping
from pathlib import Path

import pytest

from ddpmon import config
from ddpmon.cli import main
from tests.conftest import ddpmon_program


def called(
    *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command line of ddpmon to its end, away from any terminal, and return its exit code and output.

    Args:
        words: its command line.
        env: the whole environment, if not that of this process.
        cwd: the folder that it runs in, if not that of this process.
    """
    config._read.cache_clear()  # A program reads its config file once.
    output, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with open(os.devnull) as nothing, pytest.MonkeyPatch.context() as patch:
        if env is not None:
            for name in os.environ.keys() - env.keys():
                patch.delenv(name)
            for name, value in env.items():
                patch.setenv(name, value)
        if cwd is not None:
            patch.chdir(cwd)
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
