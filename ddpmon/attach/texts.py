"""Writes the Python that a rank is to run: arm the probe, or disarm it. Standard library only.

The text runs in a namespace of its own, so that it leaves no name in the script's, and answers through a file. One that
comes while another runs, as Python 3.14 lets it, runs after that. It raises nothing: an exception that the script's own
signal handler raised meanwhile is raised again a moment later, in the script's code.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

PACKAGES = ("ddpmon", "msgspec", "psutil", "pynvml")
"""Packages that the probe imports."""

BEGUN = ".begun"
"""End of the name of a file that a text makes first, beside the one for its answer."""
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
"""Writes a text whose answer goes into that file."""


def arm(socket: str, run_id: str, folder: Path, reply: Path, ranks: int, *, hub_given: bool) -> str:
    """The text that arms the probe, with the arguments that `ddpmon.probe.attached.arm` takes."""
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
    """The text that removes the probe, and says that it is gone where it never came."""
    return written(_DISARM.format(reply=str(reply)), reply)


def folders() -> list[str]:
    """The folders in which this interpreter finds the packages that the probe imports."""
    found = (importlib.util.find_spec(name) for name in PACKAGES)
    return list(dict.fromkeys(os.path.dirname(os.path.dirname(spec.origin)) for spec in found if spec and spec.origin))


def written(body: str, reply: Path) -> str:
    """The text of statements, indented by eight, that answers for what they raise."""
    code = _FRAME.format(reply=str(reply), begun=BEGUN, body=body.strip("\n"))
    return f"exec({code!r}, {{'__name__': 'ddpmon_entry'}})"
