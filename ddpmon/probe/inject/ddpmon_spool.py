"""Puts a spool between this process and a log: a pipe into which the process prints, and which the run's drain empties.

A pipe accepts output whatever happens to the disk, is not subject to `ulimit -f`, and loses nothing to a shell that
opens /dev/stderr for writing, which would truncate a file. Each of its descriptors is open for reading and writing.
So a write blocks once the pipe is full and no one reads, and never fails. Its name identifies run and log, so that any
drain of the run finds it in /proc. No file of it remains in a folder:

    ddpmon RUN_ID PATH RANDOM        PATH is the log's, inside the run's logs, with | for /

This file lies beside sitecustomize, which runs it in ranks before the script, and imports next to nothing.
"""

import os
import sys

_PREFIX = "ipc://"
PIPE_BYTES = (1 << 20, 1 << 18)
"""Pipe sizes in bytes to request, largest first. Without privileges, all pipes of a user may have 64 MB together."""


def take_over() -> None:
    """Redirect output that torchrun sends to files into spools from now on. Raises OSError."""
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
    """Return the beginning of the names of the spools of one of this run's logs."""
    return f"ddpmon {os.environ['DDPMON_RUN_ID']} {log.replace('/', '|')} "


def replace(descriptor: int, log: str) -> None:
    """Redirect `descriptor` to a log through a new spool. On OSError it is unchanged."""
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
    import fcntl  # few processes come here

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
    import _socket  # few processes come here

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
