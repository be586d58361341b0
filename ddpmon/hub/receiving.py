"""Receives messages from ROUTER sockets with the pids of their senders, and passes ranks' messages to the collector."""

from __future__ import annotations

import contextlib
import time
from functools import lru_cache

import zmq

from ddpmon.messages import ToRank, encode
from ddpmon.recording.collector import Collector
from ddpmon.store.peers import Peer

Socket = zmq.Socket[bytes]


def receive_message(socket: Socket) -> tuple[list[bytes], Peer]:
    """Return a message (the connection's name and the frames) and its sender, or raise zmq.Again if there is none."""
    first, *others = socket.recv_multipart(zmq.NOBLOCK, copy=False)
    return [first.bytes, *(frame.bytes for frame in others)], _peer_of(first)


def _peer_of(frame: zmq.Frame) -> Peer:
    """Return the process at the other end of the connection on which a frame arrived."""
    try:
        return _peer_at(str(frame.get("Peer-Address")))
    except zmq.ZMQError:
        return Peer(0)


@lru_cache(maxsize=4096)
def _peer_at(address: str) -> Peer:
    """Return the peer at ZeroMQ's address of an ipc connection, HOST:UID:GID:PID."""
    pid = address.rpartition(":")[2]
    return Peer(int(pid) if pid.isdecimal() else 0)


FRAMES_PER_TURN = 500
MAX_FRAMES_TURN_S = 0.1
"""Longest time in seconds for which frames are processed in one turn, because viewers wait meanwhile."""


class Ingest:
    """Passes incoming messages to a collector, a limited number per turn, and sends its answers."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    def process_messages(self, collector: Collector, now: float, unix: float) -> int:
        """Process messages that have arrived, and return their number."""
        end = time.monotonic() + MAX_FRAMES_TURN_S
        count = 0
        while count < FRAMES_PER_TURN and time.monotonic() < end:
            try:
                frames, peer = receive_message(self._socket)
            except zmq.Again:
                break
            count += 1
            collector.process_message(frames, now, unix, peer)
        return count

    def send_to_rank(self, identity: bytes, message: ToRank) -> None:
        """Send a message to a connected rank. If it is lost because the rank does not read, the rank asks again."""
        with contextlib.suppress(zmq.ZMQError):
            self._socket.send_multipart([identity, encode(message)], zmq.NOBLOCK)
