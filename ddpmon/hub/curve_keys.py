"""The encryption between the hubs of several nodes (CURVE): each hub's key pair, sockets with it, and who is let in.

A hub keeps one pair for each run, so that a hub that restarts is the same one.

The sockets have no heartbeats of ZeroMQ's: a connection whose queue is full and that then ends is kept until the queue
was read, and the next heartbeat on it aborts the process (`!_io_error`, stream_engine_base.cpp:310 of libzmq 4.3.5; its
issue 4364). Both hubs say something every second; the node's connects anew where it hears nothing, and the root closes
connections by which nothing comes.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import msgspec
import zmq
from zmq.utils import z85

from ddpmon.hub.receiving import Socket
from ddpmon.messages.wire import is_key
from ddpmon.runs import plain_file, writing

FILE = "node.key"
MOST_BYTES = 1 << 20


class Keys(msgspec.Struct):
    """A hub's CURVE keys; of a root also where it listens and whom it lets in. In the run's folder, mode 0600."""

    public: str
    secret: str
    addresses: list[str] = msgspec.field(default_factory=list)
    admitted: dict[str, int] = msgspec.field(default_factory=dict)
    """Nodes by the public keys of their hubs."""

    def admit(self, key: str, node: int) -> None:
        """Let the hub with a key in.

        It keeps the number with which it came first: a later world may be numbered otherwise, and its connection lasts.
        """
        if key not in self.admitted:
            taken = set(self.admitted.values())
            self.admitted[key] = node if node not in taken else max(taken) + 1

    def number(self, key: str, most: int) -> int | None:
        """The node of a hub that came with the job's key and calls itself by this one; None: there are too many."""
        if key not in self.admitted:
            if len(self.admitted) >= most:
                return None
            self.admit(key, 1)
        return self.admitted[key]

    def save(self, run_dir: Path) -> None:
        """Keep it. A full disk costs a hub that restarts its place, and nothing else."""
        with contextlib.suppress(OSError):
            writing.write_text(run_dir / FILE, msgspec.json.encode(self).decode())


def kept(run_dir: Path) -> Keys | None:
    """Return what an earlier hub of the run kept; None: nothing that can be read."""
    try:
        keys = msgspec.json.decode(plain_file.content(run_dir / FILE, MOST_BYTES), type=Keys)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return keys if is_key(keys.public) and is_key(keys.secret) else None


def of_job(job_key: str, whose: str) -> Keys:
    """The key pair of the "root" or of the "node"s of a job: all who hold its key have both."""
    secret = hashlib.blake2b(bytes.fromhex(job_key), digest_size=32, person=f"ddpmon {whose}".encode()).digest()
    encoded = z85.encode(secret)
    return Keys(zmq.curve_public(encoded).decode(), encoded.decode())


def fresh() -> Keys:
    """A new key pair."""
    public, secret = zmq.curve_keypair()
    return Keys(public.decode(), secret.decode())


LAST_WORDS_MS = 500


def linked(context: zmq.Context[Socket], kind: int, keys: Keys, frame_bytes: int) -> Socket:
    """A socket of a kind that takes frames of at most `frame_bytes`, neither bound nor connected."""
    socket: Socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, LAST_WORDS_MS)
    socket.setsockopt(zmq.MAXMSGSIZE, frame_bytes)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.encode())
    return socket


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
