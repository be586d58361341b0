"""A socket between the hubs of two nodes: over TCP, encrypted.

It has no heartbeats of ZeroMQ's: a connection whose queue is full and that then ends is kept until the queue was read,
and the next heartbeat on it aborts the process (`!_io_error`, stream_engine_base.cpp:310 of libzmq 4.3.5; its issue
4364). Both hubs say something every second; the node's connects anew where it hears nothing, and the root closes
connections by which nothing comes.
"""

from __future__ import annotations

import zmq

from ddpmon.hub.curve_keys import Keys
from ddpmon.hub.receiving import Socket

LAST_WORDS_MS = 500


def linked(context: zmq.Context[Socket], kind: int, keys: Keys, frame_bytes: int) -> Socket:
    """A socket of a kind that takes frames of at most `frame_bytes`, neither bound nor connected."""
    socket: Socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, LAST_WORDS_MS)
    socket.setsockopt(zmq.MAXMSGSIZE, frame_bytes)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.encode())
    return socket
