"""Lets the hubs of several nodes find and trust each other, through the store of the ranks' own process group.

Rank 0 puts there where its hub listens and with what public key; the first rank of every other node puts its hub's key
there, and reads that of rank 0's hub once it lets this one in. Whoever can write to that store can ruin the training
anyway. The store is torch's and private: where it is not to be had, each machine shows its own ranks, and says so.

All of it happens on a thread of its own, on a connection of its own to the store, and nothing waits there for a value.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import torch
from torch.distributed import distributed_c10d

from ddpmon.messages import Card, Meeting, WireError, decode_to_rank, encode
from ddpmon.messages.wire import check_card
from ddpmon.probe.identity import Identity

EVERY_S = 0.25
"""How often the store is asked at first."""
LATER_S = 2.0
"""How often after PATIENCE_S: a node may train without ddpmon, or come late."""
PATIENCE_S = 60.0
ROOT = "ddpmon/root"
ALONE = "the hubs of other machines cannot be found, each shows its own ranks only"


def node_key(node: int) -> str:
    """Under which name the card of a node's hub is in the store."""
    return f"ddpmon/node/{node}"


class Exchange(threading.Thread):
    """Reads and writes until every hub that has to be known is. `message` says what is known so far."""

    def __init__(self, identity: Identity, node: int, nodes: int) -> None:
        super().__init__(name="ddpmon-nodes", daemon=True)
        self._identity = identity
        self._node, self._nodes = node, nodes
        self._ending = threading.Event()
        self._card: Card | None = None
        """What this node's hub wants the others to read."""
        self._root: Card | None = None
        self._keys: dict[int, str] = {}
        self.version = 1
        """Rises with all that is learnt."""

    def offer(self, card: Card) -> None:
        """Take what this node's hub says of itself."""
        self._card = card

    def message(self) -> Meeting:
        """For this node's hub."""
        towards = os.environ.get("MASTER_ADDR", "")
        rank, pid = self._identity.rank, os.getpid()
        return Meeting(rank, pid, self._node, self._nodes, towards, self._root, dict(self._keys))

    def finish(self) -> None:
        """End the thread, if it has not ended by itself."""
        self._ending.set()
        if self.is_alive():
            self.join(0.2)

    def run(self) -> None:
        try:
            self._exchange(distributed_c10d._get_default_store().clone())
        except Exception as error:  # the group or the store is gone, or they are others than those we know
            if not self._ending.is_set():
                self._identity.note(f"{ALONE}: {type(error).__name__}: {str(error).splitlines()[0][:80]}")

    def _exchange(self, store: Any) -> None:
        written: Card | None = None
        waited_s = 0.0
        while not self._ending.is_set():
            if self._card is not None and self._card != written:
                written = self._card
                store.set(ROOT if self._identity.rank == 0 else node_key(self._node), encode(written))
            if written is not None and self._learnt(store, written):
                return
            every_s = EVERY_S if waited_s < PATIENCE_S else LATER_S
            waited_s += every_s
            self._ending.wait(every_s)

    def _learnt(self, store: Any, written: Card) -> bool:
        """Read what is new; whether nothing more is to be read or written."""
        if self._identity.rank == 0:
            for node in range(1, self._nodes):
                if node not in self._keys and (card := _read(store, node_key(node))):
                    self._keys[node] = card.key
                    self.version += 1
            return len(written.admits) == self._nodes - 1
        root = _read(store, ROOT)
        if root is None or self._node not in root.admits:
            return False
        self._root = root
        self.version += 1
        return True


def exchange(identity: Identity) -> Exchange | None:
    """Begin, if this is the first rank of its node in a process group of several; None otherwise."""
    node, nodes = (os.environ.get(name, "") for name in ("GROUP_RANK", "GROUP_WORLD_SIZE"))
    if os.environ.get("LOCAL_RANK") != "0" or not (node.isdecimal() and nodes.isdecimal()) or int(nodes) < 2:
        return None
    if not hasattr(distributed_c10d, "_get_default_store") or not hasattr(distributed_c10d.Store, "clone"):
        identity.note(f"torch {torch.__version__} has no store of the process group to share: {ALONE}")
        return None
    begun = Exchange(identity, int(node), int(nodes))
    begun.start()
    return begun


def _read(store: Any, name: str) -> Card | None:
    """What is there under a name; None: nothing of ours."""
    if not store.check([name]):
        return None
    try:
        card = decode_to_rank(store.get(name))
        if not isinstance(card, Card):
            return None
        check_card(card)
    except WireError:
        return None
    return card
