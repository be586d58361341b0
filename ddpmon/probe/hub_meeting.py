"""Lets the hubs of several nodes find and trust each other, through the store of the ranks' own process group.

A hub's card is its address and its public key. Rank 0 writes the card of its hub into the store. The first rank of
every other node writes the card of its node's hub, and reads the card of rank 0's hub once rank 0's hub admits the
node. The store adds no risk: whoever can write to the store can ruin the training anyway. torch's interface to the
store is private; without it, each machine shows only its own ranks.

torchrun gives each rank the number of its node. Without torchrun, all ranks that connect to the same hub form a node.
The first of these ranks to reach the store represents the node and numbers it; on rank 0's node, rank 0 does so.

A store belongs to one process group. The first rank to reach the store gives the group a random name. By this name,
hubs distinguish the group's ranks from the ranks of an earlier group.

The exchange runs on a separate thread, over a separate connection to the store, and never blocks on a value.
"""

from __future__ import annotations

import os
import secrets
import threading
from typing import Any

import torch
from torch.distributed import distributed_c10d

from ddpmon.messages import Card, Meeting, WireError, decode_to_rank, encode
from ddpmon.messages.vocabulary import MAX_NAME
from ddpmon.probe import run_settings
from ddpmon.probe.common_start import CommonStart
from ddpmon.probe.identity import Identity

FIRST_READ_INTERVAL_S = 0.25
"""Interval in seconds at which the store is read at first."""
LATER_S = 2.0
"""Interval in seconds at which the store is read after MEETING_PATIENCE_S: a node may start late, or without ddpmon."""
MEETING_PATIENCE_S = 60.0
ROOT_CARD_KEY = "ddpmon/root"
WORLD = "ddpmon/world"
FIRST_RUN_KEY = "ddpmon/first"
"""Key of rank 0's run id, used if no launcher numbers the nodes."""
COUNT, COME = "ddpmon/nodes", "ddpmon/come"
"""Keys of the number of hubs other than rank 0's, and of the number of ranks whose hub has been counted."""
ALONE_CAUSE = "ddpmon cannot find the other machines, so each machine shows only its own ranks"


def node_key(node: int) -> str:
    """Return the store's key for the card of a node's hub."""
    return f"ddpmon/node/{node}"


class Exchange(threading.Thread):
    """Thread that exchanges hubs' cards until all are known. `message_to_hub` has the cards that are known so far."""

    def __init__(
        self,
        identity: Identity,
        node: int | None,
        nodes: int = 1,
        *,
        speaks: bool = True,
        start: CommonStart | None = None,
    ) -> None:
        """Prepare the exchange without any card.

        Args:
            identity: Identity of this rank.
            node: Number of this rank's node; None to let the store assign it.
            nodes: Number of nodes that are known so far.
            speaks: True if this rank may represent its node.
            start: Agreement with the ranks of other nodes on the numbers of steps.

        """
        super().__init__(name="ddpmon-nodes", daemon=True)
        self._identity = identity
        self._speaks = speaks
        self._start = start
        self._numbered = node is not None
        self._node, self._nodes = node or 0, nodes
        self._ending = threading.Event()
        self._all_came = self._numbered
        """True if every node has been counted."""
        self._card: Card | None = None
        """Card of this node's hub; None until the hub has sent it."""
        self._root: Card | None = None
        self._keys: dict[int, str] = {}
        self.version = int(self._numbered and speaks)
        """Version number that rises with each change of `message_to_hub`; 0 while there is nothing to send."""

    def offer_card(self, card: Card) -> None:
        """Accept the card of this node's hub, to be written into the store."""
        self._card = card

    @property
    def unanswered(self) -> bool:
        """Return whether this node's hub has not sent its card yet."""
        return self._card is None

    def message_to_hub(self) -> Meeting:
        """Return the message that tells this node's hub about the other nodes."""
        towards = os.environ.get("MASTER_ADDR", "")
        rank, pid = self._identity.facts.rank, os.getpid()
        return Meeting(rank, pid, self._node, self._nodes, towards, self._root, dict(self._keys))

    def finish(self) -> None:
        """End the thread, if it has not ended by itself."""
        self._ending.set()
        if self.is_alive():
            self.join(0.2)

    def run(self) -> None:
        try:
            self._exchange(distributed_c10d._get_default_store().clone())
        except Exception as error:  # The group or the store is gone, or this torch differs.
            if not self._ending.is_set() and self._nodes > 1 and self._speaks:
                reason = str(error).partition("\n")[0][:80]
                self._identity.add_note(f"{ALONE_CAUSE}: {type(error).__name__}: {reason}")

    def _exchange(self, store: Any) -> None:
        self._identity.set_facts(world=store.compare_set(WORLD, "", secrets.token_hex(8)).decode()[:MAX_NAME])
        if self._start is not None and self._start.machines:
            self._start.exchange_places(store, self._identity, self._ending.wait)
        if not self._speaks:
            return
        written: Card | None = None
        waited_s = 0.0
        if not self._numbered and self._identity.facts.rank != 0:
            if store.add(f"ddpmon/hub/{self._identity.facts.run_id}", 1) != 1:
                store.add(COME, 1)
                return  # Another rank represents this node.
        elif not self._numbered:
            store.set(FIRST_RUN_KEY, self._identity.facts.run_id)
            store.add(COME, 1)
        while not self._ending.is_set():
            if not self._numbered and self._count_nodes(store):
                return
            if self._card is not None and self._card != written:
                written = self._card
                store.set(ROOT_CARD_KEY if self._identity.facts.rank == 0 else node_key(self._node), encode(written))
            if written is not None and self._learnt(store, written):
                return
            every_s = FIRST_READ_INTERVAL_S if waited_s < MEETING_PATIENCE_S else LATER_S
            waited_s += every_s
            self._ending.wait(every_s)

    def _count_nodes(self, store: Any) -> bool:
        """Number this node, or count the nodes on rank 0, if no launcher does; return whether the exchange is done."""
        if self._identity.facts.rank != 0:
            if not store.check([FIRST_RUN_KEY]):
                return False
            self._numbered = True
            alone = bool(store.get(FIRST_RUN_KEY) == self._identity.facts.run_id.encode())
            if not alone:
                self._node = store.add(COUNT, 1)
                self._nodes = self._node + 1
                self.version += 1
            store.add(COME, 1)
            return alone
        # Read COME before the nodes: once all ranks have come, the number of nodes is final.
        self._all_came = store.add(COME, 0) >= self._identity.facts.world_size
        nodes = 1 + store.add(COUNT, 0)
        if nodes > self._nodes:
            self._nodes = nodes
            self.version += 1
        return self._all_came and nodes == 1

    def _learnt(self, store: Any, written: Card) -> bool:
        """Read new cards from the store. Return whether the exchange of cards is complete."""
        if self._identity.facts.rank == 0:
            for node in range(1, self._nodes):
                if node not in self._keys and (card := _read(store, node_key(node))):
                    self._keys[node] = card.key
                    self.version += 1
            return self._all_came and len(written.admits) == self._nodes - 1
        root = _read(store, ROOT_CARD_KEY)
        if root is None or self._node not in root.admits:
            return False
        self._root = root
        self.version += 1
        return True


def start_exchange(identity: Identity, start: CommonStart | None = None) -> Exchange | None:
    """Start the exchange of a rank whose process group may span nodes now or later; return None for all other ranks.

    If the root hub's address was given (`--hub`), the exchange only names the group and agrees on the first step that
    counts. start: this agreement, if the ranks trained before the attach.
    """
    settings = run_settings.in_force()
    given = settings.hub_given
    if identity.facts.world_size < 2 or settings.alone:
        return None
    node, nodes = (os.environ.get(name, "") for name in ("GROUP_RANK", "GROUP_WORLD_SIZE"))
    by_torchrun = node.isdecimal() and nodes.isdecimal()
    alone = os.environ.get("LOCAL_WORLD_SIZE") == str(identity.facts.world_size) or (bool(nodes) and not by_torchrun)
    if by_torchrun:
        speaks = not alone and not given and int(nodes) > 1 and os.environ.get("LOCAL_RANK") == "0"
        begun = Exchange(identity, int(node), int(nodes), speaks=speaks, start=start)
    else:
        speaks = not alone and not given
        begun = Exchange(identity, None, speaks=speaks, start=start)
    if not hasattr(distributed_c10d, "_get_default_store") or not hasattr(distributed_c10d.Store, "clone"):
        if by_torchrun and speaks:
            identity.add_note(
                f"torch {torch.__version__} does not give access to the process group's store: {ALONE_CAUSE}"
            )
        return None
    begun.start()
    return begun


def _read(store: Any, name: str) -> Card | None:
    """Return the card under a key of the store; None if the key has no valid card."""
    if not store.check([name]):
        return None
    try:
        card = decode_to_rank(store.get(name))
    except WireError:
        return None
    return card if isinstance(card, Card) else None
