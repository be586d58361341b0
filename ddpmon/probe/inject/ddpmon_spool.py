"""Puts a spool between this process and a log: a pipe that the process prints into and that the run's drain empties.

A pipe accepts output whatever happens to the disk, is not subject to `ulimit -f`, and loses nothing to a shell that
opens /dev/stderr for writing, which would truncate a file. All descriptors of the pipe are open for both directions.
So a write blocks, and does not fail, while the pipe is full and nobody reads. The pipe's file is deleted at once, but
its name identifies run and log, so that any drain of the run finds it in /proc:

    ddpmon RUN_ID PATH RANDOM        PATH is that of the log inside the run's logs, with | instead of /

This file lies beside sitecustomize, which runs it in ranks before the script, and imports next to nothing.
"""

import os
import sys

_PREFIX = "ipc://"
PIPE_BYTES = (1 << 20, 1 << 18)
"""Pipe sizes in bytes to request, largest first. The kernel limits an unprivileged user's pipes to 64 MB in total."""


def take_over() -> None:
    """Redirect stdout and stderr into spools if torchrun sends them to files. Raises OSError."""
    folder = os.path.join(os.path.realpath(_sockets()), "")
    before = None
    for descriptor in (1, 2):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # The descriptor is closed.
            continue
        if target == before:
            os.dup2(1, descriptor)
        elif target.startswith(f"{folder}ranks/"):
            replace(descriptor, target[len(folder) :])
            before = target


def name(log: str) -> str:
    """Return the prefix of the names of all spools for one of this run's logs."""
    return f"ddpmon {os.environ['DDPMON_RUN_ID']} {log.replace('/', '|')} "


def replace(descriptor: int, log: str) -> None:
    """Redirect `descriptor` to a log through a new spool. If this raises OSError, the descriptor is unchanged."""
    spool = _pipe(os.path.join(_sockets(), name(log) + os.urandom(8).hex()))
    try:
        _hand_over(spool)
        os.dup2(spool, descriptor)
    finally:
        os.close(spool)


def _sockets() -> str:
    """Return the folder of the run's sockets."""
    return os.path.dirname(os.environ["DDPMON_SOCKET"][len(_PREFIX) :])


def _pipe(path: str) -> int:
    import fcntl  # imported here, as few processes need it

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


def drain_listens() -> bool:
    """Return whether a drain exists, even if it is busy or stopped."""
    try:
        _drain().close()
    except OSError:
        return False
    return True


def _drain():
    import _socket  # imported here, as few processes need it

    drain = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)
    try:
        drain.connect(os.path.join(_sockets(), "drain.sock"))
    except OSError:
        drain.close()
        raise
    return drain


def _hand_over(file: int) -> None:
    """Send a descriptor to the drain, which need not be running now: the kernel keeps it until the drain reads."""
    import _socket

    drain = _drain()
    try:
        drain.sendmsg([b"\0"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, file.to_bytes(4, sys.byteorder))])
    finally:
        drain.close()
