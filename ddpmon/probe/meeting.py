"""Lets the hubs of several nodes find and trust each other, through the store of the ranks' own process group.

Rank 0 puts there where its hub listens and with what public key; the first rank of every other node puts its hub's key
there, and reads that of rank 0's hub once it lets this one in. Whoever can write to that store can ruin the training
anyway. The store is torch's and private: where it is not to be had, each machine shows its own ranks, and says so.

torchrun tells its ranks which node is theirs. Where nobody does, ranks that speak to the same hub are a node: the first
of them that comes to the store speaks for it, and has it numbered there, unless it turns out to be rank 0's.

A store is one process group's: the first rank that comes gives it a name, by which hubs tell ranks of this group from
those of one before, whatever numbers they have now.

All of it happens on a thread of its own, on a connection of its own to the store, and nothing waits there for a value.
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
from ddpmon.messages.wire import check_card
from ddpmon.probe import run_settings
from ddpmon.probe.common_start import CommonStart
from ddpmon.probe.identity import Identity

EVERY_S = 0.25
"""Interval at which the store is asked at first."""
LATER_S = 2.0
"""Interval after PATIENCE_S: a node may train without ddpmon, or come late."""
PATIENCE_S = 60.0
ROOT = "ddpmon/root"
WORLD = "ddpmon/world"
FIRST = "ddpmon/first"
"""Key of the hub of rank 0, where no launcher gives ranks their node."""
COUNT, COME = "ddpmon/nodes", "ddpmon/come"
"""Keys of the number of other hubs so far, and of the ranks that have come to count theirs."""
ALONE = "ddpmon cannot find the other machines, so each machine shows only its own ranks"


def node_key(node: int) -> str:
    """Under which name the card of a node's hub is in the store."""
    return f"ddpmon/node/{node}"


class Exchange(threading.Thread):
    """Reads and writes until it has the card of every hub that it needs. `message`: what it has so far."""

    def __init__(
        self,
        identity: Identity,
        node: int | None,
        nodes: int = 1,
        *,
        speaks: bool = True,
        start: CommonStart | None = None,
    ) -> None:
        """Begin with nothing known.

        Args:
            identity: This rank's.
            node: Its number; None: to be counted in the store.
            nodes: Count of nodes, as far as that is known.
            speaks: This rank may speak for its node.
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
        """True if every node is counted."""
        self._card: Card | None = None
        """Card of this node's hub, for the others to read."""
        self._root: Card | None = None
        self._keys: dict[int, str] = {}
        self.version = int(self._numbered and speaks)
        """Rises with each new card; 0: there is nothing to tell the hub."""

    def offer(self, card: Card) -> None:
        """Take what this node's hub says of itself."""
        self._card = card

    @property
    def unanswered(self) -> bool:
        """Return whether the hub has not said yet who it is."""
        return self._card is None

    def message(self) -> Meeting:
        """Return the meeting of this node, for its hub."""
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
            if not self._ending.is_set() and self._nodes > 1 and self._speaks:
                reason = str(error).partition("\n")[0][:80]
                self._identity.add_note(f"{ALONE}: {type(error).__name__}: {reason}")

    def _exchange(self, store: Any) -> None:
        self._identity.change(world=store.compare_set(WORLD, "", secrets.token_hex(8)).decode()[:MAX_NAME])
        if self._start is not None and self._start.machines:
            self._start.exchange(store, self._identity, self._ending.wait)
        if not self._speaks:
            return
        written: Card | None = None
        waited_s = 0.0
        if not self._numbered and self._identity.rank != 0:
            if store.add(f"ddpmon/hub/{self._identity.run_id}", 1) != 1:
                store.add(COME, 1)
                return  # another rank speaks for this node
        elif not self._numbered:
            store.set(FIRST, self._identity.run_id)
            store.add(COME, 1)
        while not self._ending.is_set():
            if not self._numbered and self._counted(store):
                return
            if self._card is not None and self._card != written:
                written = self._card
                store.set(ROOT if self._identity.rank == 0 else node_key(self._node), encode(written))
            if written is not None and self._learnt(store, written):
                return
            every_s = EVERY_S if waited_s < PATIENCE_S else LATER_S
            waited_s += every_s
            self._ending.wait(every_s)

    def _counted(self, store: Any) -> bool:
        """Count the nodes where no launcher gives their number; whether there is nothing to be exchanged."""
        if self._identity.rank != 0:
            if not store.check([FIRST]):
                return False
            self._numbered = True
            alone = bool(store.get(FIRST) == self._identity.run_id.encode())
            if not alone:
                self._node = store.add(COUNT, 1)
                self._nodes = self._node + 1
                self.version += 1
            store.add(COME, 1)
            return alone
        self._all_came = store.add(COME, 0) >= self._identity.world_size  # before the nodes: these are complete then
        nodes = 1 + store.add(COUNT, 0)
        if nodes > self._nodes:
            self._nodes = nodes
            self.version += 1
        return self._all_came and nodes == 1

    def _learnt(self, store: Any, written: Card) -> bool:
        """Read what is new; whether nothing more is to be read or written."""
        if self._identity.rank == 0:
            for node in range(1, self._nodes):
                if node not in self._keys and (card := _read(store, node_key(node))):
                    self._keys[node] = card.key
                    self.version += 1
            return self._all_came and len(written.admits) == self._nodes - 1
        root = _read(store, ROOT)
        if root is None or self._node not in root.admits:
            return False
        self._root = root
        self.version += 1
        return True


def exchange(identity: Identity, start: CommonStart | None = None) -> Exchange | None:
    """Begin, if this is a rank of a process group of several that may span nodes, or others may follow; else None.

    Where their hubs were given a place to meet, the group is given a name all the same, and nothing else is exchanged
    but where steps begin to count. start: the agreement on that, if the ranks trained before they were watched.
    """
    settings = run_settings.current()
    given = settings.hub_given
    if identity.world_size < 2 or settings.alone:
        return None
    node, nodes = (os.environ.get(name, "") for name in ("GROUP_RANK", "GROUP_WORLD_SIZE"))
    by_torchrun = node.isdecimal() and nodes.isdecimal()
    alone = os.environ.get("LOCAL_WORLD_SIZE") == str(identity.world_size) or (bool(nodes) and not by_torchrun)
    if by_torchrun:
        speaks = not alone and not given and int(nodes) > 1 and os.environ.get("LOCAL_RANK") == "0"
        begun = Exchange(identity, int(node), int(nodes), speaks=speaks, start=start)
    else:
        speaks = not alone and not given
        begun = Exchange(identity, None, speaks=speaks, start=start)
    if not hasattr(distributed_c10d, "_get_default_store") or not hasattr(distributed_c10d.Store, "clone"):
        if by_torchrun and speaks:
            identity.add_note(f"torch {torch.__version__} does not give access to the process group's store: {ALONE}")
        return None
    begun.start()
    return begun


def _read(store: Any, name: str) -> Card | None:
    """Return what is there under a name; None: nothing of ours."""
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
