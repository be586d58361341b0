"""Any other command, run on the machine that its run is on: its output, its exit code and Ctrl-C pass through.

Without a terminal at the far side Ctrl-C does not reach it, and the end of ssh is not noticed by a command that
prints nothing. So both come over standard input: a byte for Ctrl-C, and its end.
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
    """Run a command of ddpmon there; its exit code. UnreachableError: ssh or ddpmon there does not answer.

    The first Ctrl-C is the command's, the second leaves. write: prints what the command printed.
    """
    size = ["--columns", str(shutil.get_terminal_size().columns)] if sys.stdout.isatty() else []
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # ssh is started so that Ctrl-C does not end it
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
            line.greeted()
            while data := line.read():
                write(data)
            return line.exit_code()
    finally:
        signal.signal(signal.SIGINT, before)


def begin() -> None:
    """At the far side: say that ddpmon begins here, and listen for Ctrl-C and for the end of the line."""
    os.write(1, greeting())
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # who waits for a line is at a terminal
    # What was SIG_IGN in a shell that started this in the background would not end `logs -f`.
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
