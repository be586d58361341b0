"""Encrypts the connections between hubs of several nodes (CURVE): key pairs, encrypted sockets, admission of hubs.

A hub stores one key pair for each run, so that it keeps its identity when it restarts.

The sockets use no ZeroMQ heartbeats. If a connection ends while its queue is full, ZeroMQ keeps the connection until
the queue was read. The next heartbeat then aborts the process (`!_io_error`, stream_engine_base.cpp:310 of libzmq
4.3.5; libzmq's issue 4364). Instead, both hubs send a message every second. A node's hub reconnects if it receives
nothing, and the root reports silent nodes.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import msgspec
import zmq
from zmq.utils import z85

from ddpmon.hub.sockets import Socket
from ddpmon.messages.ranks import Key
from ddpmon.runs import plain_file, private_files

KEY_FILE = "node.key"
MAX_KEY_FILE_BYTES = 1 << 20


class Keys(msgspec.Struct):
    """CURVE keys of a hub. Those of the root also have its addresses and the hubs that it admits.

    They are stored in the run's folder with mode 0600.
    """

    public: Key
    secret: Key
    addresses: list[str] = msgspec.field(default_factory=list)
    admitted: dict[str, int] = msgspec.field(default_factory=dict)
    """Number of the node of each admitted hub, by the hub's public key."""

    def admit(self, key: str, node: int) -> None:
        """Admit the hub with a public key as the hub of a node.

        A hub that was already admitted keeps its number. After a restart of the ranks, nodes may be numbered
        differently, but the connection of the hub stays.
        """
        if key not in self.admitted:
            taken = set(self.admitted.values())
            self.admitted[key] = node if node not in taken else max(taken) + 1

    def node_number(self, key: str, most: int) -> int | None:
        """Return the node number of a hub that connected with the job's key. Return None if there are too many hubs.

        Args:
            key: The hub's own public key, which it sends in `Join`.
            most: Largest number of hubs.

        """
        if key not in self.admitted:
            if len(self.admitted) >= most:
                return None
            self.admit(key, 1)
        return self.admitted[key]

    def save(self, run_dir: Path) -> None:
        """Store the keys. Errors are ignored: without stored keys, a restarted hub only has a new identity."""
        with contextlib.suppress(OSError):
            private_files.write_text(run_dir / KEY_FILE, msgspec.json.encode(self).decode())


def stored_keys(run_dir: Path) -> Keys | None:
    """Return the keys that an earlier hub of the run stored, or None if there are none that can be read."""
    try:
        return msgspec.json.decode(plain_file.content(run_dir / KEY_FILE, MAX_KEY_FILE_BYTES), type=Keys)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def of_job(job_key: str, whose: str) -> Keys:
    """Derive the key pair of a job's root hub or node hubs from the job's key. whose: "root" or "node"."""
    secret = hashlib.blake2b(bytes.fromhex(job_key), digest_size=32, person=f"ddpmon {whose}".encode()).digest()
    encoded = z85.encode(secret)
    return Keys(zmq.curve_public(encoded).decode(), encoded.decode())


def new_key_pair() -> Keys:
    """Return a new key pair."""
    public, secret = zmq.curve_keypair()
    return Keys(public.decode(), secret.decode())


LAST_WORDS_MS = 500


def curve_socket(context: zmq.Context[Socket], kind: int, keys: Keys, frame_bytes: int) -> Socket:
    """Return a new socket with CURVE keys that accepts frames of at most `frame_bytes`."""
    socket: Socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, LAST_WORDS_MS)
    socket.setsockopt(zmq.MAXMSGSIZE, frame_bytes)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.encode())
    return socket


DOMAIN = b"ddpmon"
UNNUMBERED = 0
"""Node number of a hub that has connected with the job's key and has not identified itself yet."""
_OK, _DENIED = b"200", b"400"


class Admission:
    """ZeroMQ's authenticator (ZAP), which admits or refuses peers by their public keys."""

    def __init__(self, context: zmq.Context[Socket], admitted: dict[str, int], job: str = "") -> None:
        """Start to answer ZeroMQ's requests.

        Args:
            context: The context of the sockets that are protected.
            admitted: The node of each admitted public key. Later changes of the dict count too.
            job: Public key that all hubs of a job share, whose node number is UNNUMBERED, or "" if each hub has its
                own.

        """
        self.socket: Socket = context.socket(zmq.REP)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind("inproc://zeromq.zap.01")  # ZeroMQ prescribes this name.
        self._admitted, self._job = admitted, job
        self.refused: list[str] = []
        """Addresses of peers that were refused. Whoever reads the list clears it."""

    def answer_requests(self) -> None:
        """Answer all pending requests. The node number becomes the User-Id of all frames of the connection."""
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
        """Close the socket, so that no further peer is admitted."""
        self.socket.close()
