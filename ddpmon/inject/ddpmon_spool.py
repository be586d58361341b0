"""Puts a spool between a process and a log: a pipe that the process prints into and that the run's drain empties.

A pipe accepts output whatever happens to the disk, is not subject to `ulimit -f`, and loses nothing to a shell that
opens /dev/stderr for writing, which would truncate a file. All descriptors of the pipe are open for both directions.
So a write blocks, and does not fail, while the pipe is full and nobody reads. The pipe's file is deleted at once, but
its name identifies run and log, so that any drain of the run finds it in /proc:

    ddpmon RUN_ID PATH RANDOM        PATH is that of the log inside the run's logs, with | instead of /

This file lies beside sitecustomize, which runs it in ranks before the script, and imports next to nothing. Where a
function has the parameter `folder`, that is the folder of the run's sockets.
"""

import os
import sys

_PREFIX = "ipc://"
PIPE_BYTES = (1 << 20, 1 << 18)
"""Pipe sizes in bytes to request, largest first. The kernel limits an unprivileged user's pipes to 64 MB in total."""


def take_over() -> None:
    """Redirect stdout and stderr into spools if torchrun sends them to files. Raises OSError."""
    folder, run_id = run_of_environment()
    files = os.path.join(os.path.realpath(folder), "")
    before = None
    for descriptor in (1, 2):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # The descriptor is closed.
            continue
        if target == before:
            os.dup2(1, descriptor)
        elif target.startswith(f"{files}ranks/"):
            replace(descriptor, folder, run_id, target[len(files) :])
            before = target


def run_of_environment() -> tuple[str, str]:
    """Return the folder of the sockets and the id of the run that this process belongs to. Raises KeyError."""
    return os.path.dirname(os.environ["DDPMON_SOCKET"][len(_PREFIX) :]), os.environ["DDPMON_RUN_ID"]


def prefix(run_id: str, log: str) -> str:
    """Return the prefix of the names of all spools for a log of a run."""
    return f"ddpmon {run_id} {log.replace('/', '|')} "


def replace(descriptor: int, folder: str, run_id: str, log: str) -> None:
    """Redirect `descriptor` to a log through a new spool. If this raises OSError, the descriptor is unchanged."""
    spool = make_pipe(folder, run_id, log)
    try:
        _hand_over(folder, spool)
        os.dup2(spool, descriptor)
    finally:
        os.close(spool)


def make_pipe(folder: str, run_id: str, log: str) -> int:
    """Make a spool for a log, and return its descriptor. Raises OSError."""
    import fcntl  # imported here, as few processes need it

    path = os.path.join(folder, prefix(run_id, log) + os.urandom(8).hex())
    os.mkfifo(path, 0o600)
    try:
        made = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.unlink(path)
    for size in PIPE_BYTES:
        try:
            fcntl.fcntl(made, fcntl.F_SETPIPE_SZ, size)
            break
        except OSError:  # The user's pipes already have the largest total size.
            continue
    return made


def drain_listens(folder: str) -> bool:
    """Return whether a drain exists, even if it is busy or stopped."""
    try:
        _drain(folder).close()
    except OSError:
        return False
    return True


def _drain(folder):
    import _socket  # imported here, as few processes need it

    drain = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)
    try:
        drain.connect(os.path.join(folder, "drain.sock"))
    except OSError:
        drain.close()
        raise
    return drain


def _hand_over(folder, file):
    """Send a descriptor to the drain, which need not be running now: the kernel keeps it until the drain reads."""
    import _socket

    drain = _drain(folder)
    try:
        drain.sendmsg([b"\0"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, file.to_bytes(4, sys.byteorder))])
    finally:
        drain.close()
