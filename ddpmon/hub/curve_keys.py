"""Keeps the key pair by which a hub proves itself to those of other nodes: one for each run, so that a hub that
restarts is the same one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import msgspec
import zmq
from zmq.utils import z85

from ddpmon.messages.wire import is_key
from ddpmon.runs import plain_file

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
        draft = run_dir / f"{FILE}.new"
        with contextlib.suppress(OSError):
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(self))
            draft.replace(run_dir / FILE)


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
