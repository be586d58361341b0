"""Shows the hub where the training thread is although no other thread of this process gets to run.

Compiled code that keeps the GIL starves the sending thread too. What still runs is a signal handler in C: that of
faulthandler writes the Python stack of the thread that gets the signal into a file of the run's folder. The hub signals
a rank only while that file is there: it means that the signal is ours.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
from dataclasses import dataclass

import msgspec

from ddpmon.messages.folder import STACKS, Places
from ddpmon.messages.signals import STACK_SIGNAL
from ddpmon.probe.own_descriptor import OwnDescriptor
from ddpmon.probe.run_settings import private_folder


@dataclass
class _Armed:
    """The signal handler that this process has armed, and the files it writes."""

    path: str
    file: OwnDescriptor
    handler: int
    """Address of faulthandler's signal handler."""
    places: Places
    """Places as the hub reads them, with the thread to signal."""
    offered: bool = True


_armed: _Armed | None = None
_inherited: _Armed | None = None
"""Signal state that was armed in the process this one was forked from."""
_sigaction = ctypes.CDLL(None).sigaction
_SIGACTION_BYTES = 256
"""Enough for struct sigaction anywhere; it begins with the handler's address."""


def handler_of(number: int = STACK_SIGNAL) -> int:
    """Return the address of a signal's handler, whoever set it, in Python or C; 0: it has none. Takes 1 µs."""
    action = ctypes.create_string_buffer(_SIGACTION_BYTES)
    if _sigaction(number, None, action):
        return 1
    return ctypes.c_void_p.from_buffer(action).value or 0


def arm(places: Places) -> None:
    """Answer from now on. Nothing happens where the signal is used (or ignored), or the run has no folder here."""
    global _armed
    _let_go()
    if _armed is not None or handler_of():
        return
    inside = private_folder(STACKS)
    if inside is None:
        return
    path = os.path.join(inside, str(os.getpid()))
    try:
        _tell(path, places)
        stack = _write_into(path)
    except (OSError, RuntimeError, ValueError):  # a full disk, say: the rank is watched all the same
        _take_away(path)
        return
    _armed = _Armed(path, stack, handler_of(), places)


def _tell(path: str, places: Places) -> None:
    """Write what the hub needs to ask and to read the answer, whole or not at all."""
    draft = f"{path}.json.new"
    with open(draft, "wb") as file:
        file.write(msgspec.json.encode(places))
    os.replace(draft, f"{path}.json")


def _write_into(path: str) -> OwnDescriptor:
    """Have the handler write into a file that is made here. Raises OSError, RuntimeError or ValueError."""
    # For appending: the hub empties it before it asks.
    stack = OwnDescriptor(os.open(f"{path}.stack", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o600))
    faulthandler.register(STACK_SIGNAL, file=stack.number, all_threads=False, chain=False)
    return stack


def keep(thread: int | None) -> None:
    """Follow the training thread, as the kernel counts it; withdraw the offer where the script took the signal.

    Where the script closed the descriptor, the handler gets another: the number may be a file of the script's now.
    """
    if _armed is None or not _armed.offered:
        return
    if handler_of() != _armed.handler:
        withdraw()
        return
    if not _armed.file.intact:
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # closed once more just now: at the next call
            _armed.file = _write_into(_armed.path)
    wanted = 0 if thread in {None, os.getpid()} else thread or 0
    if wanted != _armed.places.thread:
        _armed.places = msgspec.structs.replace(_armed.places, thread=wanted)
        try:
            _tell(_armed.path, _armed.places)
        except OSError:
            withdraw()  # an answer would be another thread's


def answer_path() -> str | None:
    """Return the file in which processes forked from this one answer too; None: they do not."""
    if _armed is None or not _armed.offered or handler_of() != _armed.handler:
        return None
    return f"{_armed.path}.stack"


def withdraw() -> None:
    """Take the offer back. The handler stays: without it, a signal that is on its way would kill."""
    if _armed is not None and _armed.offered:
        _armed.offered = False
        _take_away(_armed.path)


def disarm() -> None:
    """Answer no more: restore the handler that was there before. The offer must have been taken back for some time."""
    global _armed
    withdraw()
    armed, _armed = _armed, None
    if armed is not None:
        _unregister(armed)


def _unregister(armed: _Armed) -> None:
    if handler_of() == armed.handler:  # else faulthandler would put back what was there before the script's own
        faulthandler.unregister(STACK_SIGNAL)
        armed.file.close()


def _take_away(path: str) -> None:
    for kind in ("stack", "json", "json.new"):
        with contextlib.suppress(OSError):
            os.unlink(f"{path}.{kind}")


def forked() -> None:
    """This process is a forked child: the offer is its parent's, not its own.

    It still answers, into the parent's file: the hub asks a DataLoader worker that its parent waits for.
    """
    global _armed, _inherited
    if _armed is not None:
        _inherited, _armed = _armed, None


def _let_go() -> None:
    """Leave the handler of the process that this one was forked from: it becomes a rank of its own."""
    global _inherited
    inherited, _inherited = _inherited, None
    if inherited is not None:
        _unregister(inherited)
