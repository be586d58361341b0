"""A socket between the hubs of two nodes: over TCP, encrypted, with heartbeats of its own."""

from __future__ import annotations

import zmq

from ddpmon.hub.curve_keys import Keys
from ddpmon.hub.receiving import Socket

HEARTBEAT_MS = 1000
SILENT_MS = 3000
"""A connection on which nothing comes for so long is cut."""
LAST_WORDS_MS = 500


def linked(context: zmq.Context[Socket], kind: int, keys: Keys, frame_bytes: int) -> Socket:
    """A socket of a kind that takes frames of at most `frame_bytes`, neither bound nor connected."""
    socket: Socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, LAST_WORDS_MS)
    socket.setsockopt(zmq.MAXMSGSIZE, frame_bytes)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENT_MS)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.encode())
    return socket
