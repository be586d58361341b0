"""Runs a command of ddpmon on the run's machine over ssh, and passes on its output, its exit code and Ctrl-C.

The command on the run's machine has no terminal. So Ctrl-C would not reach the command, and a command that prints
nothing would not notice the end of ssh. Both are sent over standard input: one byte means Ctrl-C, and the end of the
input means the end of ssh.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from ddpmon.remote.address import Address
from ddpmon.remote.channel import greeting
from ddpmon.remote.ssh_line import Line

_INTERRUPT = b"\x03"
INTERRUPTED = 130


def run_there(address: Address, words: list[str], write: Callable[[bytes], None]) -> int:
    """Run a command of ddpmon on another machine; return its exit code.

    The first Ctrl-C is sent to the command on the other machine. The second ends ssh.

    Args:
        address: The machine and the run.
        words: The command and its arguments.
        write: Prints the command's output.

    Raises:
        UnreachableError: ssh, or ddpmon on the other machine, does not answer.

    """
    size = ["--columns", str(shutil.get_terminal_size().columns)] if sys.stdout.isatty() else []
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ignored while ssh starts, so that Ctrl-C does not end ssh.
    try:
        line = Line(address, ["_there", *size, "--", *words], unattended=False)
        presses = 0

        def interrupt(_number: int, _frame: FrameType | None) -> None:
            nonlocal presses
            presses += 1
            if presses > 1 or not line.there:
                raise KeyboardInterrupt
            with contextlib.suppress(OSError):
                os.write(line.stdin, _INTERRUPT)

        with line:
            signal.signal(signal.SIGINT, interrupt)
            _, data = line.greeted()
            if data:
                write(data)
            while data := line.read():
                write(data)
            return line.exit_code()
    finally:
        signal.signal(signal.SIGINT, before)


def begin() -> None:
    """On the run's machine, send the greeting, and listen for Ctrl-C and for the end of the connection."""
    os.write(1, greeting())
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a user at a terminal waits for each line
    # A shell that started this process in the background may have set SIG_IGN. Then Ctrl-C would not end `logs -f`.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    incoming = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    threading.Thread(target=_listen, args=(incoming,), name="ddpmon-line", daemon=True).start()


def _listen(incoming: int) -> None:
    while data := os.read(incoming, 64):
        if _INTERRUPT in data:
            os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGHUP)
