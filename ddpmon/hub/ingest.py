"""The socket that ranks speak to."""

from __future__ import annotations

import contextlib
import time

import zmq

from ddpmon.hub.receiving import Socket, receive
from ddpmon.messages import ToRank, encode
from ddpmon.recording.collector import Collector

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
