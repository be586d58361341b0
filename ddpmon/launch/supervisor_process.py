"""Makes this process a run's supervisor: detached from the process that started it, and named in run.json.

Standard library only.
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
    """Detach from the process that started this one, then enter this process in run.json as the supervisor.

    The function forks. The first process ends with code 0 once the second has signed run.json, otherwise with 1, after
    one line on standard output with the reason. Only the second process returns.

    Args:
        program: Name of the running module, for `--help`. Its command line has the run's id and maybe --take-over.
        signals: The signals that the supervisor waits for; they are blocked.
        say: Writes a line into the supervisor's log.

    Returns:
        The run, whether this replaces a killed supervisor, and the umask of the process that started this one.

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
    if os.fork():  # The starter waits only for the first process; init adopts the second.
        os.close(ready)
        os._exit(0 if os.read(signed, 1) else 1)
    processes.become_subreaper()  # A child does not inherit this through a fork.
    for number in (signal.SIGHUP, *processes.SCHEDULERS):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    umask = os.umask(0o077)  # Only this user may read the files of this process and the hub.
    file = RunFile(run, say)
    try:
        _sign_run(file, takes_over=takes_over)
    except DdpmonError as error:
        print(error, flush=True)
        os._exit(1)
    os.dup2(2, 1)  # From here on nobody reads this process's standard output.
    os.write(ready, b"signed")
    os.close(ready)
    os.close(signed)
    return file, takes_over, umask


def _sign_run(file: RunFile, *, takes_over: bool) -> None:
    """Enter this process in run.json as the supervisor.

    Raises:
        DdpmonError: run.json cannot be written; then nothing is started.

    """
    myself = Process.of(os.getpid())
    try:
        if takes_over:
            file.change_for_sure(supervisor=myself)
            with contextlib.suppress(OSError):
                file.reserve_space()
        else:
            file.reserve_space()
            file.change_fields(supervisor=myself)
    except OSError as error:
        raise DdpmonError(f"no disk space for run.json: {error.strerror}") from None
    if file.trouble:
        raise DdpmonError(file.trouble)


def shell_code(code: int) -> int:
    """Return an exit code as a shell reports it: 128 plus the number for a signal."""
    return 128 - code if code < 0 else code
