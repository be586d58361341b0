"""Puts a spool between this process and a log: a pipe into which it prints, and which the run's drain empties.

A pipe takes what is printed whatever becomes of the disk, has no limit of its size (`ulimit -f`), and loses nothing to
a shell that opens /dev/stderr for writing, which would empty a file. Each descriptor of it is both of its ends: without
a reader, writing blocks once the pipe is full, and never fails. Its name says whose it is, so that any drain of the run
finds it in /proc; nothing of it is left in a folder:

    ddpmon RUN_ID PATH RANDOM        PATH is the log's, inside the run's logs, with | for /

It lies beside sitecustomize because that runs it in ranks, before the script, and imports next to nothing.
"""

import os
import sys

_PREFIX = "ipc://"
PIPE_BYTES = (1 << 20, 1 << 18)
"""Pipe sizes to ask for, largest first; without privileges all pipes of a user may take 64 MB together."""


def take_over() -> None:
    """Print into spools from now on, where torchrun had this rank print into files. Raises OSError."""
    folder = os.path.join(os.path.realpath(_sockets()), "")
    before = None
    for descriptor in (1, 2):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # a closed one
            continue
        if target == before:
            os.dup2(1, descriptor)
        elif target.startswith(f"{folder}ranks/"):
            replace(descriptor, target[len(folder) :])
            before = target


def name(log: str) -> str:
    """Return what the name of a spool of a log of this run begins with."""
    return f"ddpmon {os.environ['DDPMON_RUN_ID']} {log.replace('/', '|')} "


def replace(descriptor: int, log: str) -> None:
    """Have what is printed to `descriptor` go to a log through a spool of its own. OSError: it goes where it went."""
    spool = _pipe(os.path.join(_sockets(), name(log) + os.urandom(8).hex()))
    try:
        _hand_over(spool)
        os.dup2(spool, descriptor)
    finally:
        os.close(spool)


def _sockets() -> str:
    """The folder of the run's sockets."""
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
        except OSError:  # the pipes of this user are large enough together
            continue
    return made


def drain_listens() -> bool:
    """Say whether there is a drain, awake or not."""
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
    """Give the drain a descriptor. It need not be awake: the kernel keeps it until it is."""
    import _socket

    drain = _drain()
    try:
        drain.sendmsg([b"\0"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, file.to_bytes(4, sys.byteorder))])
    finally:
        drain.close()
