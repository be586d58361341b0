"""Lets in the hubs whose keys were given to it, and nobody else (ZAP, rfc.zeromq.org/spec/27)."""

from __future__ import annotations

import zmq
from zmq.utils import z85

from ddpmon.hub.receiving import Socket

DOMAIN = b"ddpmon"
UNNUMBERED = 0
"""The node of a hub that is yet to say which one it is."""
_OK, _DENIED = b"200", b"400"


class Admission:
    """Answers ZeroMQ when a peer has proven that it holds the secret key to a public one.

    admitted: the node of each public key; those that come in later count too. job: the public key that all hubs of a
    job have, where one was given to them: whoever comes with it is UNNUMBERED.
    """

    def __init__(self, context: zmq.Context[Socket], admitted: dict[str, int], job: str = "") -> None:
        self.socket: Socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind("inproc://zeromq.zap.01")  # a name that ZeroMQ gives it
        self._admitted, self._job = admitted, job
        self.refused: list[str] = []
        """Addresses of those that were not let in; whoever reads them empties the list."""

    def answer(self) -> None:
        """Answer all that ask. The node becomes the User-Id of what comes by the connection."""
        while True:
            try:
                version, request, domain, address, _, mechanism, *credentials = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            node = None
            if domain == DOMAIN and mechanism == b"CURVE" and len(credentials) == 1 and len(credentials[0]) == 32:
                key = z85.encode(credentials[0]).decode()
                node = (UNNUMBERED if key == self._job else None) if self._job else self._admitted.get(key)
            if node is None:
                self.refused.append(address.decode(errors="replace"))
                answer = _DENIED, b"unknown key", b""
            else:
                answer = _OK, b"OK", str(node).encode()
            self.socket.send_multipart([version, request, *answer, b""])

    def close(self) -> None:
        """Let nobody in any more."""
        self.socket.close()
