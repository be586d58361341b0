"""Sends the last records before a script bypasses Python's exit handlers with `os._exit` or `os.exec*`."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from typing import Any

from ddpmon.probe.undo import Changes


def install_exit_hooks(changes: Changes, finish: Callable[[], None], leave: Callable[[BaseException], None]) -> None:
    """Call `finish` before `os._exit` or `os.exec*`. If the exec call fails, call `leave` with its exception."""
    pid = os.getpid()

    def ends(*_: object) -> bool:
        return os.getpid() == pid  # A forked child that ends must not send its parent's last records.

    def begins_another(path: Any, *_: object, **__: object) -> bool:
        # os.execvp and the like call os.execv once for each folder in PATH; only an executable path ends the process.
        return os.getpid() == pid and os.access(path, os.X_OK)

    _replace(changes, "_exit", ends, finish, leave)
    for name in ("execv", "execve"):  # The other six exec functions call one of these.
        _replace(changes, name, begins_another, finish, leave)


def _replace(
    changes: Changes,
    name: str,
    applies: Callable[..., bool],
    finish: Callable[[], None],
    leave: Callable[[BaseException], None],
) -> None:
    original = getattr(os, name)

    @functools.wraps(original)
    def leaving(*args: Any, **named: Any) -> Any:
        finished = False
        with contextlib.suppress(Exception):  # The original function reports wrong arguments.
            if applies(*args, **named):
                finish()
                finished = True
        try:
            return original(*args, **named)
        except BaseException as error:
            if finished:
                leave(error)
            raise

    changes.patch(os, name, leaving)
