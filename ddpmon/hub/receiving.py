"""Takes messages from a ROUTER, and notes by which connection each came."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from functools import lru_cache

import zmq

from ddpmon.store.peers import Peer

Socket = zmq.Socket[bytes]

PARTS_KEPT = 3
"""Parts of a message that are kept: one of ours has two, its connection and a frame."""
PARTS_MOST = 256
"""Who sends more parts in a message is no peer of ours."""
AWAY_S = 2.0
"""A hub that did not look for so long was stopped or busy. A node that comes waits three seconds for it, then anew."""


class Receiver:
    """What comes in by one socket. Connections are named by their file descriptors.

    remote: they are of other machines.
    """

    def __init__(self, socket: Socket, *, remote: bool = False) -> None:
        self.socket, self.remote = socket, remote
        self.last_message_at: dict[int, float] = {}
        """When the last message came by each connection, by the monotonic clock."""
        self.drained_at = time.monotonic()
        """When there was nothing left to take."""
        self.hostile: set[int] = set()
        """Connections by which there came what nobody of ours sends."""
        self._looked_at, self._back_at = time.monotonic(), float("-inf")
        self.unproven: deque[str] = deque()
        """From where connections came that ended before they proved a key; whoever reads them takes them out."""

    def look(self, now: float) -> None:
        """Note that the hub looks at what has come, as it does all the time."""
        if now - self._looked_at > AWAY_S:
            self._back_at = now  # first: another thread asks `was_away`
        self._looked_at = now

    def was_away(self, now: float) -> bool:
        """Whether the hub does not look, or looks again only since a moment ago: who came meanwhile got no answer."""
        return now - self._looked_at > AWAY_S or now - self._back_at < AWAY_S

    def next(self) -> tuple[list[bytes], Peer]:
        """A message as its connection's name and its frames, and who sent it. zmq.Again: there is none."""
        now = time.monotonic()
        try:
            first = self.socket.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            self.drained_at = now
            raise
        peer, frames, parts = _peer_of(first), [first.bytes], 1
        while self.socket.getsockopt(zmq.RCVMORE):
            part = self.socket.recv(zmq.NOBLOCK)
            parts += 1
            if parts <= PARTS_KEPT:
                frames.append(part)
        self.note(first, parts, now)
        return frames, peer

    def note(self, first: zmq.Frame, parts: int, now: float) -> None:
        """A message of so many parts has come, of which this is the first."""
        with contextlib.suppress(zmq.ZMQError):  # of a connection within this process there is none
            connection = int(first.get(zmq.SRCFD))
            self.last_message_at[connection] = now
            if parts > PARTS_MOST:
                self.hostile.add(connection)


def _peer_of(frame: zmq.Frame) -> Peer:
    """Of the connection that a frame came by."""
    try:
        return _peer_at(str(frame.get("Peer-Address")))
    except zmq.ZMQError:
        return Peer(0)


@lru_cache(maxsize=4096)
def _peer_at(address: str) -> Peer:
    """address: as ZeroMQ has it of an ipc connection, HOST:UID:GID:PID."""
    pid = address.rpartition(":")[2]
    return Peer(int(pid) if pid.isdecimal() else 0)
