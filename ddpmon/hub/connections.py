"""Connections of a socket of ZeroMQ, which comes and goes by itself: as its monitor tells of them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import termios
from dataclasses import dataclass

import zmq

from ddpmon.hub.receiving import Receiver, Socket

EVENTS = (
    zmq.EVENT_ACCEPTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_MONITOR_STOPPED
)


def monitored(router: Socket, *, remote: bool = False) -> Socket:
    """Tells which connections of a socket come and go, from before it is bound on.

    remote: whoever reaches a port can open them, so ZeroMQ takes no further ones before these are heard of, but for a
    thousand. It waits for that, also in `disable_monitor`: somebody must read until after it.
    """
    address = f"inproc://connections-{id(router)}"
    router.monitor(address, EVENTS)
    monitor: Socket = router.context.socket(zmq.PAIR)
    monitor.setsockopt(zmq.RCVHWM, 1 if remote else 0)
    monitor.connect(address)
    return monitor


@dataclass(frozen=True, eq=False)
class Connection:
    """A connection of one socket. descriptor and inode: of its end here."""

    receiver: Receiver
    descriptor: int
    inode: int
    pid: int
    """0: it is on another machine."""
    address: str
    """Of the other machine."""
    since: float

    @property
    def who(self) -> str:
        """Who is at its other end."""
        return f"the hub at {self.address}" if self.address else f"process {self.pid}"

    @property
    def has_spoken(self) -> bool:
        """Whether a message has come by it; of another machine: whether it has proved a key."""
        return self.descriptor in self.receiver.last_message_at

    def idle_s(self) -> float:
        """How long no whole message has come by it, as far as the hub has looked."""
        return self.receiver.drained_at - max(self.since, self.receiver.last_message_at.get(self.descriptor, 0.0))

    def close(self) -> None:
        """End it. ZeroMQ closes the descriptor; if it did already, it may be another connection's."""
        with contextlib.suppress(OSError):
            if os.fstat(self.descriptor).st_ino == self.inode:
                end = socket.socket(fileno=self.descriptor)
                try:
                    end.shutdown(socket.SHUT_RDWR)
                finally:
                    end.detach()

    def waiting_bytes(self) -> int:
        """What the kernel holds of it that was not read yet."""
        with contextlib.suppress(OSError):
            reply = fcntl.ioctl(self.descriptor, termios.FIONREAD, b"\0" * 4)
            return int(struct.unpack("i", reply)[0])
        return 0
