"""Shows the hub where the training thread is even if no other thread of this process can run.

Compiled code that holds the GIL also blocks the background thread. A signal handler in C still runs: faulthandler's
handler writes the Python stack of the signalled thread into a file in the run's folder. The hub signals a rank only
while this file exists, because the file shows that the script does not use the signal itself.
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
    """The signal handler that this process has armed, and the files that it writes."""

    path: str
    file: OwnDescriptor
    handler: int
    """Address of faulthandler's signal handler."""
    places: Places
    """Folders by which the hub shortens file names, and the thread to signal."""
    offered: bool = True


_armed: _Armed | None = None
_inherited: _Armed | None = None
"""Handler of the parent process, if this process was forked from one that had armed the signal."""
_sigaction = ctypes.CDLL(None).sigaction
_SIGACTION_BYTES = 256
"""Bytes that suffice for a struct sigaction on any system. The struct begins with the handler's address."""


def handler_of(number: int = STACK_SIGNAL) -> int:
    """Return the address of a signal's handler, whether set in Python or C; 0 if it has none. Takes 1 µs."""
    action = ctypes.create_string_buffer(_SIGACTION_BYTES)
    if _sigaction(number, None, action):
        return 1
    return ctypes.c_void_p.from_buffer(action).value or 0


def arm(places: Places) -> None:
    """Arm the handler, unless the script uses or ignores the signal, or the run has no folder on this machine."""
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
    except (OSError, RuntimeError, ValueError):  # The disk may be full; the rank is still watched.
        _take_away(path)
        return
    _armed = _Armed(path, stack, handler_of(), places)


def _tell(path: str, places: Places) -> None:
    """Write the file by which the hub knows which thread to signal and how to read the answer."""
    draft = f"{path}.json.new"
    with open(draft, "wb") as file:
        file.write(msgspec.json.encode(places))
    os.replace(draft, f"{path}.json")


def _write_into(path: str) -> OwnDescriptor:
    """Register a handler that writes into a new file. Raises OSError, RuntimeError or ValueError."""
    # Open it for appending, because the hub truncates it before it sends a signal.
    stack = OwnDescriptor(os.open(f"{path}.stack", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o600))
    faulthandler.register(STACK_SIGNAL, file=stack.number, all_threads=False, chain=False)
    return stack


def keep(thread: int | None) -> None:
    """Publish the kernel id of the training thread, or withdraw it if the script now handles the signal itself.

    If the script closed the descriptor, the handler gets a new one, because the number may now be a file of the script.
    """
    if _armed is None or not _armed.offered:
        return
    if handler_of() != _armed.handler:
        withdraw()
        return
    if not _armed.file.is_intact:
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # The next call tries again.
            _armed.file = _write_into(_armed.path)
    wanted = 0 if thread in {None, os.getpid()} else thread or 0
    if wanted != _armed.places.thread:
        _armed.places = msgspec.structs.replace(_armed.places, thread=wanted)
        try:
            _tell(_armed.path, _armed.places)
        except OSError:
            withdraw()  # The training thread has changed, and a signal would go to the earlier one.


def answer_path() -> str | None:
    """Return the file into which this process's forked children write their stacks too; None if they write none."""
    if _armed is None or not _armed.offered or handler_of() != _armed.handler:
        return None
    return f"{_armed.path}.stack"


def withdraw() -> None:
    """Stop the hub from sending signals. The handler stays: without it, a signal on its way would kill the process."""
    if _armed is not None and _armed.offered:
        _armed.offered = False
        _take_away(_armed.path)


def disarm() -> None:
    """Restore the previous handler, some time after `withdraw`, when no signal can be on its way any more."""
    global _armed
    withdraw()
    armed, _armed = _armed, None
    if armed is not None:
        _unregister(armed)


def _unregister(armed: _Armed) -> None:
    if handler_of() == armed.handler:  # Otherwise the script has set a handler, which faulthandler would overwrite.
        faulthandler.unregister(STACK_SIGNAL)
        armed.file.close()


def _take_away(path: str) -> None:
    for kind in ("stack", "json", "json.new"):
        with contextlib.suppress(OSError):
            os.unlink(f"{path}.{kind}")


def forked() -> None:
    """Leave the files to the parent. Called in a forked child.

    The child still writes its stack into the parent's file, because the hub signals a DataLoader worker that its parent
    waits for.
    """
    global _armed, _inherited
    if _armed is not None:
        _inherited, _armed = _armed, None


def _let_go() -> None:
    """Remove the handler that was inherited through fork, because this process becomes a rank itself."""
    global _inherited
    inherited, _inherited = _inherited, None
    if inherited is not None:
        _unregister(inherited)
