"""Writes the Python code that a rank runs to arm or disarm the probe. Standard library only.

The code runs in a namespace of its own, so that it adds no name to the script's namespace, and answers through a file.
Python 3.14 may start a second piece of such code while the first piece runs; the second piece then waits for the first.
The code raises nothing into the script. If the script's own signal handler raises while the code runs, that exception
is raised again a moment later, in the script's code.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

PROBE_PACKAGES = ("ddpmon", "msgspec", "psutil", "pynvml")
"""Packages that the probe imports."""

BEGUN = ".begun"
"""Suffix of the file that the code creates when it begins to run, beside the file for its answer."""
_FRAME = """
def attempt():
    import json, os, sys
    def answer(error):
        with open({reply!r} + ".part", "w") as file:
            json.dump({{"ok": False, "error": " ".join(error.split())[:400]}}, file)
        os.replace({reply!r} + ".part", {reply!r})
    try:
        open({reply!r} + "{begun}", "w").close()
{body}
    except Exception as error:
        try:
            answer(f"{{type(error).__name__}}: {{error}}")
        except OSError:
            pass
    except BaseException as error:
        import ctypes, threading
        main, again = threading.main_thread().ident, type(type(error).__name__, (type(error),), {{
            "__init__": lambda self, args=error.args: super(type(self), self).__init__(*args)}})
        raise_again = lambda: ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(again))
        threading.Timer(0.1, raise_again).start()
        answer("a signal handler of the script interrupted it")
import sys
waiting = sys.__dict__.setdefault("ddpmon_entries", [])
waiting.append(attempt)
if len(waiting) == 1:
    try:
        while waiting:
            try:
                waiting[0]()
            except BaseException:
                pass
            del waiting[0]
    finally:
        del sys.ddpmon_entries
"""

_ARM = """
        added = [path for path in {folders!r} if path not in sys.path]
        sys.path += added
        try:
            from ddpmon.probe import attached
        except BaseException:
            sys.path[:] = [path for path in sys.path if path not in added]
            raise
        attached.added_paths = added + getattr(attached, "added_paths", [])
        attached.arm(socket={socket!r}, run_id={run_id!r}, folder={folder!r}, reply={reply!r}, ranks={ranks},
            hub_given={hub_given})
"""

_DISARM = """
        attached = sys.modules.get("ddpmon.probe.attached")
        if attached is None:
            with open({reply!r} + ".part", "w") as file:
                json.dump({{"ok": True}}, file)
            os.replace({reply!r} + ".part", {reply!r})
        else:
            attached.disarm(reply={reply!r})
"""


Writer = Callable[[Path], str]
"""Function that returns code for a rank. Argument: the file for the code's answer."""


def arm(socket: str, run_id: str, folder: Path, reply: Path, ranks: int, *, hub_given: bool) -> str:
    """Return the code that arms the probe. The arguments are those of `ddpmon.probe.attached.arm`."""
    code = _ARM.format(
        socket=socket,
        run_id=run_id,
        folder=str(folder),
        reply=str(reply),
        folders=folders(),
        ranks=ranks,
        hub_given=hub_given,
    )
    return written(code, reply)


def disarm(reply: Path) -> str:
    """Return the code that removes the probe; it also succeeds in a rank that never had the probe."""
    return written(_DISARM.format(reply=str(reply)), reply)


def folders() -> list[str]:
    """Return the folders in which this interpreter finds the packages that the probe imports."""
    found = (importlib.util.find_spec(name) for name in PROBE_PACKAGES)
    return list(dict.fromkeys(os.path.dirname(os.path.dirname(spec.origin)) for spec in found if spec and spec.origin))


def written(body: str, reply: Path) -> str:
    """Return code that runs statements and answers with the error if they raise one.

    Args:
        body: The statements, indented by eight spaces.
        reply: File for the answer.

    """
    code = _FRAME.format(reply=str(reply), begun=BEGUN, body=body.strip("\n"))
    return f"exec({code!r}, {{'__name__': 'ddpmon_entry'}})"
