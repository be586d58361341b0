"""Receives messages from a ROUTER with who sent them, and those of ranks for the collector."""

from __future__ import annotations

import contextlib
import time
from functools import lru_cache

import zmq

from ddpmon.messages import ToRank, encode
from ddpmon.recording.collector import Collector
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


FRAMES_PER_TURN = 500
TURN_S = 0.1
"""Longest time for a lot of frames: viewers wait meanwhile."""


class Ingest:
    """Hands what comes in to a collector, a bounded lot of it at a time, and sends its answers."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    def receive(self, collector: Collector, now: float, unix: float) -> int:
        """Take what has come; returns how many frames."""
        end = time.monotonic() + TURN_S
        count = 0
        while count < FRAMES_PER_TURN and time.monotonic() < end:
            try:
                frames, peer = receive(self._socket)
            except zmq.Again:
                break
            count += 1
            collector.take(frames, now, unix, peer)
        return count

    def answer(self, identity: bytes, message: ToRank) -> None:
        """Send a message to a rank that is connected. One that went away, or does not read, asks again."""
        with contextlib.suppress(zmq.ZMQError):
            self._socket.send_multipart([identity, encode(message)], zmq.NOBLOCK)
