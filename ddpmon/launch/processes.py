"""Starts, finds and signals Linux processes for the supervisor. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
from collections.abc import Collection
from pathlib import Path

from ddpmon import proc
from ddpmon.runs import Process

PR_SET_CHILD_SUBREAPER = 36
PIDFD_SIGNAL_PROCESS_GROUP = 1 << 2
"""Flag from <linux/pidfd.h>; since Linux 6.9."""

SCHEDULERS = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals by which schedulers announce the end of a job, sometimes to all of its processes. They are meant for the
ranks, and must not end ddpmon's own processes."""
# The process that started ddpmon may ignore some of these (nohup, a background job); the command must not inherit that.
_TO_DEFAULT = {
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ, *SCHEDULERS,
}  # fmt: skip


def become_subreaper() -> None:
    """Adopt every orphaned descendant of this process, so that none gets lost. Raise OSError if the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def spawn_session(
    argv: list[str],
    environment: dict[str, str],
    log: Path | int,
    *,
    blocked: Collection[signal.Signals] = (),
    ignored: Collection[signal.Signals] = (),
    umask: int | None = None,
    hands_on_stdin: bool = False,
) -> int:
    """Start a program in a session of its own; return its pid.

    Args:
        argv: The program and its arguments.
        environment: Its environment.
        log: The file that its output is appended to, or an open descriptor.
        blocked: Signals that wait until the program unblocks them.
        ignored: Signals whose handling the program inherits from this process.
        umask: The program's umask; None: that of this process.
        hands_on_stdin: The program inherits this process's standard input; otherwise it reads from /dev/null.

    Raises:
        OSError: The program cannot be started.

    """
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    output = (
        (os.POSIX_SPAWN_DUP2, log, 1)
        if isinstance(log, int)
        else (os.POSIX_SPAWN_OPEN, 1, os.fspath(log), append, 0o600)
    )
    ours = None if umask is None else os.umask(umask)  # The program inherits the umask that is set at this moment.
    try:
        return os.posix_spawnp(
            argv[0],
            argv,
            environment,
            file_actions=[
                *([] if hands_on_stdin else [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]),
                output,
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=blocked,
            setsigdef=_TO_DEFAULT.difference(ignored),
        )
    finally:
        if ours is not None:
            os.umask(ours)


def descendants(*roots: int) -> list[tuple[int, Process]]:
    """Return (parent's pid, process) of every live descendant of the processes `roots`. Zombies count as dead."""
    stats = proc.stats()
    children = proc.children(stats)
    below: list[tuple[int, Process]] = []
    parents = list(roots)
    while parents:
        parent = parents.pop()
        for pid in children.get(parent, ()):
            parents.append(pid)
            if stats[pid].alive:
                below.append((parent, Process(pid, stats[pid].start_ticks)))
    return below


def with_run_id(run_id: str) -> list[Process]:
    """Return every live process of this user that was started with this run's environment."""
    started = (Process.of(pid) for pid in proc.pids() if proc.environment(pid).get("DDPMON_RUN_ID") == run_id)
    return [process for process in started if process is not None]


def is_rank(pid: int) -> bool:
    """Return whether a launcher started this process as a rank: its environment has RANK."""
    return "RANK" in proc.environment(pid)


def reap_if_ended(child: Process) -> bool:
    """Return whether a child has ended; if so, it has been reaped."""
    try:
        pid, _ = os.waitpid(child.pid, os.WNOHANG)
    except ChildProcessError:
        return not child.alive()
    return pid != 0


def resume(process: Process | None) -> bool:
    """Continue a process that a signal stopped; return whether it was stopped."""
    if process is None or not process.alive() or not proc.is_stopped(process.pid):
        return False
    send_signal(process, signal.SIGCONT)
    return True


def send_signal(process: Process, number: signal.Signals, *, to_group: bool = False) -> None:
    """Send a signal to a process, unless its pid belongs to another process by now.

    The signal goes through a pidfd, so that the pid cannot change its owner meanwhile. Kernels that do not support this
    get kill or killpg. to_group: signal the whole process group, as Ctrl-C in a terminal does.
    """
    flags, kill = (PIDFD_SIGNAL_PROCESS_GROUP, os.killpg) if to_group else (0, os.kill)
    with contextlib.ExitStack() as opened, contextlib.suppress(ProcessLookupError, PermissionError):
        file = None
        try:
            file = os.pidfd_open(process.pid)
            opened.callback(os.close, file)
        except OSError as error:
            if error.errno not in {errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.EMFILE, errno.ENFILE}:
                return
        if not process.alive():
            return
        try:
            if file is not None:
                signal.pidfd_send_signal(file, number, None, flags)
                return
        except OSError as error:
            if error.errno not in {errno.ENOSYS, errno.EINVAL}:
                raise
        kill(process.pid, number)
