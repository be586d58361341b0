"""Run a command, wait for every process that it leaves behind, and write the CPU seconds of all of them into a file.

    python benchmarks/reaper.py FILE CMD …

A process whose parent has ended becomes a child of this one, so that no process of a run is missed: supervisors that
detach, hubs, ranks of a launcher that was killed. Standard library only, so that it costs next to nothing itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    file, *command = sys.argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise SystemExit(f"cannot adopt what ends without its parent: {os.strerror(ctypes.get_errno())}")
    first = os.posix_spawnp(command[0], command, os.environ)
    code = 0
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.wait()
            if pid == first:
                code = os.waitstatus_to_exitcode(status)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    Path(file).write_text(repr(spent.ru_utime + spent.ru_stime))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
