"""Asks py-spy, where it is installed, for the Python stack of a rank that stays in C code. Standard library only.

py-spy reads the rank's memory and does not stop the rank.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpmon.launch import processes
from ddpmon.plain import plain
from ddpmon.runs import Process, plain_file

NO_PY_SPY = "in a line that py-spy would name (pip install py-spy)"
_LARGEST = 1 << 20
_MAX_FRAMES = 64


def py_spy() -> str | None:
    """Return the path of py-spy, beside this interpreter or elsewhere; None if it is not installed."""
    return shutil.which("py-spy", path=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]))


@dataclass(frozen=True)
class Frame:
    """One Python function on a stack, with the line that it executes."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return plain(f"{self.function} ({os.path.basename(self.file)}:{self.line})")[:160]


class Question:
    """One py-spy process that reads the stack of a rank's main thread.

    The constructor starts py-spy, and raises OSError if that fails.
    """

    def __init__(self, program: str, process: Process, folder: Path) -> None:
        self._rank = process
        self._answer = folder / f"stack-{process.pid}.json"
        self._answer.unlink(missing_ok=True)
        line = [program, "dump", "--nonblocking", "--json", "--pid", str(process.pid)]
        pid = processes.spawn_session(line, dict(os.environ), self._answer)
        self._asked = Process.of(pid) or Process(pid, 0)

    def frames(self) -> list[Frame] | None:
        """Return the stack, the innermost function first; [] if py-spy could not read it, None while it runs."""
        if not processes.reap_if_ended(self._asked):
            return None
        try:
            return _frames(json.loads(plain_file.content(self._answer, _LARGEST)), self._rank.pid)
        except (OSError, ValueError, LookupError, TypeError):
            return []


def _frames(threads: list[dict[str, Any]], main: int) -> list[Frame]:
    of_main = next((thread for thread in threads if thread["os_thread_id"] == main), threads[-1])
    return [
        Frame(str(each["name"]), str(each["filename"]), int(each["line"])) for each in of_main["frames"][:_MAX_FRAMES]
    ]
