"""A TCP connection through a link with delay, loss and cuts: what stands between two sockets of a test.

It has no thread and no clock of its own: `turn` moves what is due at a moment, so that seconds of the link pass as
fast as the test wants.
"""

import contextlib
import socket
import struct
from collections import deque

RETRANSMIT_S = 0.2
"""TCP sends a segment that was lost again no sooner; everything behind it waits."""
CHUNK = 4096


class _Way:
    """One direction of a connection."""

    def __init__(self, source, sink):
        self.source, self.sink = source, sink
        self.flying = deque()
        """(when it arrives, bytes)"""
        self.chunks = 0


class TcpLink:
    """Listens on `address` and passes everything on to a port of this machine and back."""

    def __init__(self, port, delay_s=0.0, lose_every=0):
        """delay_s: each way. lose_every: one chunk in so many is lost, and sent again by TCP; 0: none is."""
        self.port, self.delay_s, self.lose_every = port, delay_s, lose_every
        self.is_cut = self.stands = False
        """stands: nothing moves, and nothing of it is lost."""
        self.retransmitted = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._ways = []

    @property
    def address(self):
        return f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self):
        """Nothing goes through any more, and nobody is told."""
        self.is_cut = True

    def heal(self):
        """Connections of before are gone, as after a cut that outlasted their patience."""
        for way in self._ways:
            self._reset(way)
        self._ways.clear()
        self.is_cut = False

    def turn(self, now):
        """Move what is due."""
        if self.is_cut:
            for way in self._ways:
                way.flying.clear()
            return
        if self.stands:
            return
        with contextlib.suppress(BlockingIOError):
            near, _ = self._listener.accept()
            far = socket.create_connection(("127.0.0.1", self.port))
            for end in (near, far):
                end.setblocking(False)
            self._ways += [_Way(near, far), _Way(far, near)]
        self._ways = [way for way in self._ways if self._move(way, now)]

    def _move(self, way, now):
        """Return whether the connection still stands."""
        try:
            self._take(way, now)
            while way.flying and way.flying[0][0] <= now:
                at, data = way.flying.popleft()
                sent = way.sink.send(data)
                if sent < len(data):
                    way.flying.appendleft((at, data[sent:]))
                    break
        except BlockingIOError:
            way.flying.appendleft((at, data))
        except OSError:
            self._reset(way)
            return False
        return True

    def _take(self, way, now):
        with contextlib.suppress(BlockingIOError):
            while data := way.source.recv(CHUNK):
                way.chunks += 1
                arrives = now + self.delay_s
                if self.lose_every and way.chunks % self.lose_every == 0:
                    arrives += RETRANSMIT_S
                    self.retransmitted += 1
                way.flying.append((max(arrives, way.flying[-1][0] if way.flying else 0.0), data))
            raise ConnectionResetError

    def _reset(self, way):
        for end in (way.source, way.sink):
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()

    def close(self):
        self.heal()
        self._listener.close()
