"""Puts a spool between this process and a log: memory into which it prints, and which the run's drain empties.

A file in memory (memfd) takes what is printed whatever becomes of the disk, of the drain and of all else of ddpmon:
to write into it never blocks and never fails for want of space. Its size says how much was ever printed; what was taken
from its beginning is a hole. Its name says whose it is, so that any drain of the run finds it in /proc:

    ddpmon RUN_ID PATH        PATH is the log's, inside the run's logs

It lies beside sitecustomize because that runs it in ranks, before the script, and imports next to nothing.
"""

import os
import sys

_PREFIX = "ipc://"
_MFD_CLOEXEC = 1


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
    """How the spool of a log of this run is called."""
    return f"ddpmon {os.environ['DDPMON_RUN_ID']} {log}"


def replace(descriptor: int, log: str) -> None:
    """Have what is printed to `descriptor` go to a log through a spool of its own. OSError: it goes where it went."""
    made = _memory(name(log))
    try:
        # For appending, whoever else has it: the threads and children of this process.
        spool = os.open(f"/proc/self/fd/{made}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            _hand_over(made)
            os.dup2(spool, descriptor)
        finally:
            os.close(spool)
    finally:
        os.close(made)


def _sockets() -> str:
    """The folder of the run's sockets."""
    return os.path.dirname(os.environ["DDPMON_SOCKET"][len(_PREFIX) :])


def _memory(called: str) -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create(called)
    import ctypes  # Python was built for an older C library than the one that is here

    libc = ctypes.CDLL(None, use_errno=True)
    made = libc.memfd_create(called.encode(), _MFD_CLOEXEC) if hasattr(libc, "memfd_create") else -1
    if made < 0:
        raise OSError(ctypes.get_errno(), "memfd_create")
    return int(made)


def _hand_over(file: int) -> None:
    """Give the drain a descriptor. It need not be awake: the kernel keeps it until it is."""
    import _socket  # few processes come here

    with_file = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, file.to_bytes(4, sys.byteorder))]
    drain = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)
    try:
        drain.connect(os.path.join(_sockets(), "drain.sock"))
        drain.sendmsg([b"\0"], with_file)
    finally:
        drain.close()
