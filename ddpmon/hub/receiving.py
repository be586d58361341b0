"""Receives messages from a ROUTER with who sent them."""

from __future__ import annotations

from functools import lru_cache

import zmq

from ddpmon.store.peers import Peer

Socket = zmq.Socket[bytes]


def receive(socket: Socket) -> tuple[list[bytes], Peer]:
    """Return a message as its connection's name and its frames, and who sent it. zmq.Again: there is none."""
    first, *others = socket.recv_multipart(zmq.NOBLOCK, copy=False)
    return [first.bytes, *(frame.bytes for frame in others)], _peer_of(first)


def _peer_of(frame: zmq.Frame) -> Peer:
    """Return who is at the other end of the connection that a frame came by."""
    try:
        return _peer_at(str(frame.get("Peer-Address")))
    except zmq.ZMQError:
        return Peer(0)


@lru_cache(maxsize=4096)
def _peer_at(address: str) -> Peer:
    """address: as ZeroMQ has it of an ipc connection, HOST:UID:GID:PID."""
    pid = address.rpartition(":")[2]
    return Peer(int(pid) if pid.isdecimal() else 0)
