"""Makes this process the supervisor of a run: detached from who started it, and named in run.json. Standard library
only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Collection

from ddpmon import runs
from ddpmon.errors import DdpmonError
from ddpmon.launch import processes
from ddpmon.launch.run_file import RunFile
from ddpmon.runs import Process


def become_supervisor(
    program: str, signals: Collection[signal.Signals], say: Callable[[str], None]
) -> tuple[RunFile, bool, int]:
    """Detach from whoever started this process, then sign run.json.

    The first process ends with 0 once the second has signed; else with 1, after one line on standard output that says
    why not. Only the second returns.

    Args:
        program: The module that runs; its command line names the run, and has --take-over for a killed one's successor.
        signals: Those that it wants to wait for; they are blocked.
        say: Writes a line into the supervisor's log.

    Returns:
        The run, whether it takes over from a killed supervisor, and the umask of the starter.

    """
    parser = argparse.ArgumentParser(prog=program)
    parser.add_argument("run_id")
    parser.add_argument("--take-over", action="store_true")
    arguments = parser.parse_args()
    run_id: str = arguments.run_id
    takes_over: bool = arguments.take_over
    signed, ready = os.pipe()
    try:
        runs.hold(run_id)
        run = runs.load(run_id)
        if run.ended:
            raise DdpmonError(f"{run.name} ({run.id}) has ended")
        processes.become_subreaper()
    except (DdpmonError, OSError) as error:
        print(error)
        sys.exit(1)
    if os.fork():  # the one that started us waits for this first process only; init takes over the second
        os.close(ready)
        os._exit(0 if os.read(signed, 1) else 1)
    processes.become_subreaper()  # does not pass through a fork
    for number in (signal.SIGHUP, *processes.SCHEDULERS):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    umask = os.umask(0o077)  # what this process and the hub write is for their user alone
    file = RunFile(run, say)
    try:
        _sign(file, takes_over=takes_over)
    except DdpmonError as error:
        print(error, flush=True)
        os._exit(1)
    os.dup2(2, 1)  # nobody reads this process's words there any more
    os.write(ready, b"signed")
    os.close(ready)
    os.close(signed)
    return file, takes_over, umask


def _sign(file: RunFile, *, takes_over: bool) -> None:
    """Become the supervisor that run.json names. DdpmonError if that cannot be written: then nothing is started."""
    myself = Process.of(os.getpid())
    try:
        if takes_over:
            file.change_for_sure(supervisor=myself)
            with contextlib.suppress(OSError):
                file.reserve()
        else:
            file.reserve()
            file.change(supervisor=myself)
    except OSError as error:
        raise DdpmonError(f"no disk space for run.json: {error.strerror}") from None
    if file.trouble:
        raise DdpmonError(file.trouble)


def shell_code(code: int) -> int:
    """Return an exit code as a shell gives it: a signal's number and 128."""
    return 128 - code if code < 0 else code
