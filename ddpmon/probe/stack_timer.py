"""Writes the training thread's stack at a given time even if no other thread of this process can run then.

The sampling thread has to wait until the training thread releases the GIL, and so never sees code that holds the GIL
for a few milliseconds. Instead, a kernel timer signals the training thread at the given time, and faulthandler's
handler in C writes the stack into memory of this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import fcntl
import os
from dataclasses import dataclass

from ddpmon.messages.dumps import is_one_dump
from ddpmon.messages.signals import SAMPLE_SIGNAL
from ddpmon.probe.own_descriptor import OwnDescriptor
from ddpmon.probe.stack_signal import handler_of

MAX_TIMER_DUMP_BYTES = 1 << 14
_SIGEV_THREAD_ID = 4
_SIGEVENT_BYTES = 64
_SIG_IGN = 1
_C = ctypes.PyDLL(None)
"""The C library. Its functions are called with the GIL held, because they return at once."""


class _Sigevent(ctypes.Structure):
    """The struct sigevent of a signal to one thread (timer_create(2))."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("_rest", ctypes.c_char * (_SIGEVENT_BYTES - 20)),
    )


@dataclass
class _Armed:
    pid: int
    file: OwnDescriptor
    handler: int
    """Address of faulthandler's signal handler."""


_armed: _Armed | None = None
"""The armed handler of this process. It stays armed after a timer has stopped: without a handler, a signal on its way
would kill the process."""


def _arm() -> _Armed | None:
    """Return this process's armed handler, arming it if necessary; None if the script uses the signal itself."""
    global _armed
    before, handler = _armed, handler_of(SAMPLE_SIGNAL)
    if handler != (before.handler if before else 0):
        return None
    if before is None or before.pid != os.getpid() or not before.file.is_intact:
        file = OwnDescriptor(os.memfd_create("ddpmon stack", os.MFD_CLOEXEC))
        fcntl.fcntl(file.number, fcntl.F_SETFL, os.O_APPEND)
        faulthandler.register(SAMPLE_SIGNAL, file=file.number, all_threads=False, chain=False)
        _armed = _Armed(os.getpid(), file, handler_of(SAMPLE_SIGNAL))
    return _armed


def disarm() -> None:
    """Restore the signal's handler from before the first timer. All timers must have been stopped."""
    global _armed
    armed, _armed = _armed, None
    if armed is not None and armed.pid == os.getpid() and handler_of(SAMPLE_SIGNAL) == armed.handler:
        _C.signal(SAMPLE_SIGNAL, _SIG_IGN)  # Ignoring the signal discards a pending one, which would kill the process.
        faulthandler.unregister(SAMPLE_SIGNAL)
        armed.file.close()


class StackTimer:
    """A timer whose signal makes a thread write its stack. Does nothing if timers are not available."""

    def __init__(self, thread: int) -> None:
        """Create the timer. thread: kernel id of the thread; 0 if there is none."""
        self._timer: ctypes.c_void_p | None = None
        self._file: OwnDescriptor | None = None
        try:
            self._file = armed.file if thread and (armed := _arm()) else None
            if self._file is not None:
                timer, event = ctypes.c_void_p(), _Sigevent(None, SAMPLE_SIGNAL, _SIGEV_THREAD_ID, thread)
                if _C.timer_create(1, ctypes.byref(event), ctypes.byref(timer)) == 0:  # CLOCK_MONOTONIC
                    self._timer = timer
        except (OSError, RuntimeError, ValueError, AttributeError):  # A sandbox, or a C library without timers, raises.
            self._file = None

    def set(self, seconds: float) -> None:
        """Set the timer to write the stack after this many seconds; discard an earlier stack and setting."""
        if self._timer is not None and self._file is not None and self._file.is_intact:
            with contextlib.suppress(OSError):  # The script may have just closed it.
                os.ftruncate(self._file.number, 0)
                self._settime(seconds)

    def take(self) -> bytes:
        """Stop the timer, and return the stack; b"" if it was not written, or not completely."""
        if self._timer is None or self._file is None:
            return b""
        self._settime(0.0)
        dump = b""
        with contextlib.suppress(OSError):
            dump = os.pread(self._file.number, MAX_TIMER_DUMP_BYTES, 0) if self._file.is_intact else b""
        return dump if is_one_dump(dump) else b""

    def _settime(self, seconds: float) -> None:
        value = (ctypes.c_long * 4)(0, 0, *divmod(int(seconds * 1e9), 1_000_000_000))
        _C.timer_settime(self._timer, 0, value, None)

    def stop(self) -> None:
        """Delete the timer."""
        if self._timer is not None:
            _C.timer_delete(self._timer)
            self._timer = None
