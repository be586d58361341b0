"""Finds a moment at which the probe can be armed or removed in a process that trains.

An attach runs code between any two bytecodes of the training. Nearly everything that the probe changes may be changed
between any two bytecodes. The exceptions are the collections that torch's optimizers and the garbage collector iterate
over: a dictionary that grows during an iteration raises into the training, and a list that shrinks hides an entry.
"""

from __future__ import annotations

import ctypes
import dis
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import CodeType, FrameType

RETRY_S = 0.002
QUIET_WAIT_S = 10.0
_waiting: deque[Callable[[], None]] = deque()


def when_quiet(act: Callable[[], None], give_up: Callable[[], None]) -> None:
    """Call `act` on the main thread once no such loop runs, or `give_up` after QUIET_WAIT_S. Neither may raise."""
    deadline = time.monotonic() + QUIET_WAIT_S

    def attempt() -> None:
        if is_quiet():
            act()
        elif time.monotonic() > deadline:
            give_up()
        else:
            _waiting.append(attempt)
            threading.Thread(target=_schedule, name="ddpmon entry", daemon=True).start()

    attempt()


def _call_next(_: object) -> int:
    _waiting.popleft()()
    return 0


_enter = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_call_next)
"""Callback that the interpreter calls on the main thread. It is global, as it must not be freed while it runs."""


def _schedule() -> None:
    time.sleep(RETRY_S)
    while ctypes.pythonapi.Py_AddPendingCall(_enter, None):  # The interpreter's queue of pending calls is full.
        time.sleep(RETRY_S)


def is_quiet() -> bool:
    """Return whether no thread is iterating over a collection that the probe changes."""
    # Look up code objects by id, because a code object with unhashable constants (some compilers) has no hash.
    loops = {id(code): places for code, places in _loops()}
    mine = sys._getframe()
    for frame in sys._current_frames().values():
        at: FrameType | None = frame
        while at is not None:
            if at is not mine and any(begin <= at.f_lasti < end for begin, end in loops.get(id(at.f_code), ())):
                return False
            at = at.f_back
    return True


def _loops() -> Iterator[tuple[CodeType, list[tuple[int, int]]]]:
    """Yield (code, bytecode ranges) of functions that must not be interrupted: loops over hooks, the gc callback."""
    optimizer = sys.modules.get("torch.optim.optimizer")
    wraps = getattr(getattr(optimizer, "Optimizer", None), "profile_hook_step", None)
    for code in getattr(getattr(wraps, "__code__", None), "co_consts", ()):
        if isinstance(code, CodeType):
            loops = [(one.offset, int(one.argval)) for one in dis.get_instructions(code) if one.opname == "FOR_ITER"]
            yield code, loops
    collecting = sys.modules.get("ddpmon.probe.listener")
    if collecting is not None:
        code = collecting.Listener.collecting.__code__
        yield code, [(0, len(code.co_code))]
