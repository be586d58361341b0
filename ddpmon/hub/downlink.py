"""The root's end of the links to other nodes' hubs: takes in what their ranks send as if they had connected here."""

from __future__ import annotations

import contextlib
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import zmq

from ddpmon.analysis.words import counted, named_ranks
from ddpmon.hub import curve_keys
from ddpmon.hub.bundles import IN_FLIGHT
from ddpmon.hub.curve_keys import DOMAIN, UNNUMBERED, Admission, Keys, linked
from ddpmon.hub.receiving import Socket
from ddpmon.messages import AskedOfRank, PrintedView, ToRank, Welcome, WireError, encode
from ddpmon.messages.nodes import (
    MOST_EVERY_MS,
    Bundle,
    FetchOutput,
    FromNode,
    Join,
    Joined,
    Locate,
    Output,
    Recorded,
    Roster,
    SendAgain,
    Stop,
    ToNode,
    ViewerRequest,
    ViewerSnapshot,
    decode_from_node,
)
from ddpmon.messages.vocabulary import MAX_WORLD
from ddpmon.recording.collector import Collector
from ddpmon.recording.node_blocks import NodeBlock, check_rows, possible, unpack
from ddpmon.store.peers import NO_KEY, NO_MESSAGE, Peer, process_key
from ddpmon.store.processes import RankProcess
from ddpmon.store.store import Store

FRAME_BYTES = 8 << 20
HANDSHAKE_MS = 10_000
"""Time limit for a handshake; a thousand nodes that come at once take three seconds for theirs."""
BACKLOG = 1024
"""Connections that wait to be taken."""
BEAT_S = 1.0
MS_A_NODE = 4.0
"""Between two bundles of each node: 250 of them a second, however many nodes there are."""
GONE_S = 4.0
"""A node's hub says something every second. One that restarts is back sooner."""
AGAIN_S = 1.0
MOST_PER_TURN = 200
CLOCKS = 240
"""Bundles, a minute of them, of which the one that came fastest tells how far two clocks are apart: to milliseconds, so
that failures and stacks of several machines have an order. Steps are aligned by the ends of their synchronisations."""
GONE = "critical", "{who} {are} gone: {ranks}"
UNHEARD = "warn", "no data from {who} ({ranks}); the other hosts continue, so {its} or the link has failed"
"""Events of nodes of which nothing is heard: severity and sentence."""
_CONNECTION = re.compile(rb"N(\d{1,9})/(.+)", re.DOTALL)
"""The name of another node's connection: the node, and a rank's pid or a viewer there. ZeroMQ's own begin with a zero,
but whoever connects on this machine may choose one like it."""


@dataclass
class Node:
    """Another node, as its hub tells of it."""

    number: int
    connection: bytes
    epoch: str = ""
    host: str = ""
    seq: int = 0
    """The last bundle that was taken in."""
    recorded: int = 0
    """Up to which bundle all is on the disk."""
    heard_at: float = 0.0
    beat_at: float = float("-inf")
    again_at: float = float("-inf")
    reported_silent: bool = False
    """True if an event says that nothing is heard of it."""
    stopping: bool = False
    over: bool = False
    """True if the run is over there, and all was reported of its end."""
    later_us: deque[int] = field(default_factory=lambda: deque(maxlen=CLOCKS))
    """Lead of this clock over the node's as each of the last bundles came, with the time that took."""


_Came = tuple[Node, FromNode, list[NodeBlock]]
"""A message of a node, with the blocks in it."""


class Downlink:
    """Serves the hubs of other nodes.

    take_request(viewer, request): of a viewer there; `show` sends it the answer. stop(): ends the whole run.
    came(view, node): takes what a rank there printed; False: it is none of that node's, or nobody asked.
    """

    def __init__(
        self,
        context: zmq.Context[Socket],
        keys: Keys,
        store: Store,
        collector: Collector,
        epoch: str,
        take_request: Callable[[bytes, bytes], None],
        stop: Callable[[], None],
        came: Callable[[PrintedView, int], bool],
        job_key: str | None = None,
    ) -> None:
        """job_key: by which other hubs are let in; None: by keys of their own, that were told of."""
        self._keys = keys
        members = curve_keys.of_job(job_key, "node") if job_key else None
        self.admission = Admission(context, keys.admitted, members.public if members else "")
        own = curve_keys.of_job(job_key, "root") if job_key else keys
        self.socket = linked(context, zmq.ROUTER, own, FRAME_BYTES)
        self.socket.setsockopt(zmq.RCVHWM, 2 * IN_FLIGHT)
        self.socket.setsockopt(zmq.SNDHWM, 100)
        self.socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self.socket.setsockopt(zmq.BACKLOG, BACKLOG)
        self.socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
        self.socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # else everyone is let in while nobody answers
        self.socket.setsockopt(zmq.CURVE_SERVER, 1)
        self._store, self._collector, self._epoch = store, collector, epoch
        self._take_request, self._stop, self._came = take_request, stop, came
        self.nodes: dict[int, Node] = {}
        self._hosts: set[str] = set()
        """Names of the nodes' hosts."""
        self._numbers: dict[bytes, int] = {}
        """Nodes by their connections, where all came with the job's key."""

    def listen(self, address: str) -> str:
        """Bind; returns the endpoint with its port. zmq.ZMQError where that is not possible."""
        self.socket.setsockopt(zmq.IPV6, "[" in address)
        self.socket.bind(address)
        return self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def receive(self, now: float, unix: float) -> None:
        """Take in what nodes say, a bounded lot of it."""
        self.admission.answer()
        for address in self.admission.refused:
            self._store.registry.refusals.count(NO_KEY, why=f"from {address}")
        self.admission.refused.clear()
        came: list[_Came] = []
        for _ in range(MOST_PER_TURN):
            try:
                connection, *frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            number = int(frames[0].get("User-Id")) if frames else 0
            node = self._node(number or self._numbers.get(connection.bytes, UNNUMBERED), connection.bytes, now)
            try:
                if len(frames) != 1:
                    raise WireError("not one frame")
                message = decode_from_node(frames[0].bytes)
                if number == UNNUMBERED and isinstance(message, Join):
                    node = self._numbered(message, connection.bytes, now)
                blocks = [unpack(packed.block) for packed in message.blocks] if isinstance(message, Bundle) else []
            except WireError as error:
                self._refuse(node, error)
            else:
                came.append((node, message, blocks))
        self._take_all(came, now, unix)

    def _node(self, number: int, connection: bytes, now: float) -> Node:
        """The node by whose connection something comes."""
        if number == UNNUMBERED:
            return Node(number, connection)  # it is asked to join before anything of it is taken
        node = self.nodes.setdefault(number, Node(number, connection))
        node.connection, node.heard_at = connection, now
        return node

    def _numbered(self, join: Join, connection: bytes, now: float) -> Node:
        """The node that a hub with the job's key says it is. WireError: it cannot be."""
        number = self._keys.number(join.key, MAX_WORLD) if join.key else None
        if number is None:
            raise WireError("the hub does not identify itself" if not join.key else "too many hubs")
        if number in self.nodes:
            self._numbers.pop(self.nodes[number].connection, None)
        self._numbers[connection] = number
        return self._node(number, connection, now)

    def _take_all(self, came: list[_Came], now: float, unix: float) -> None:
        """Take in what came in a turn."""
        checked = possible([block for _, _, blocks in came for block in blocks])
        for node, message, blocks in came:
            try:
                if not checked:
                    for block in blocks:
                        check_rows(block.table)
                self._take(node, message, blocks, now, unix)
            except WireError as error:
                self._refuse(node, error)
        self._collector.flush(now)

    def _refuse(self, node: Node, error: WireError) -> None:
        self._store.registry.refusals.count(NO_MESSAGE, why=f"node {node.number}: {error}"[:200])

    def _take(self, node: Node, message: FromNode, blocks: Sequence[NodeBlock], now: float, unix: float) -> None:
        if isinstance(message, Join):
            if message.epoch != node.epoch:
                node.seq = node.recorded = 0
                node.later_us.clear()  # a machine that was booted again has another clock
            came_early = bool(message.key) and not node.epoch  # before its ranks can be seen
            self._hosts.discard(node.host)
            taken = message.host == self._store.registry.host or message.host in self._hosts
            node.host = f"{message.host}-{node.number}" if taken else message.host
            self._hosts.add(node.host)
            node.epoch = message.epoch
            if came_early:
                self._store.add_event(unix, "info", f"{node.host} has joined the run")
            self._send(node, Joined(self._epoch, node.host, self._store.run.id))
        elif not node.epoch:
            self._send(node, SendAgain(join=True))
        elif isinstance(message, Roster):
            for hello in message.hellos:
                name = _name(node, b"%d" % hello.pid)
                self._collector.take([name, encode(hello)], now, unix, Peer(0, node.number))
        elif isinstance(message, ViewerRequest):
            self._take_request(_name(node, message.viewer), message.request)
        elif isinstance(message, Output):
            if not self._came(message.view, node.number):
                raise WireError("output that this hub did not request, or output of another node's rank")
        else:
            self._bundle(node, message, deque(blocks), now, unix)

    def _bundle(self, node: Node, bundle: Bundle, blocks: deque[NodeBlock], now: float, unix: float) -> None:
        if bundle.seq <= node.seq:
            return
        if bundle.seq > node.seq + 1 and bundle.seq != bundle.first:
            self._ask_again(node, now)  # some of those before are on the node still
            return
        node.seq = bundle.seq
        node.later_us.append(time.monotonic_ns() // 1000 - bundle.now_us)
        if bundle.stopping and not node.stopping:
            node.stopping = True
            self._stop()
        node.over = node.over or bundle.over
        places = deque(packed.place for packed in bundle.blocks)
        for place, item in enumerate(bundle.items):
            self._take_blocks(node, blocks, places, place, now, unix)
            if item.frame:
                name, peer = _name(node, b"%d" % item.pid), Peer(0, node.number)
                self._collector.take([name, item.frame], now, unix, peer, later_us=min(node.later_us))
            elif process := self._store.registry.everyone.get(process_key(item.pid, node.number)):
                was_gone = process.gone
                self._collector.ended(process, now, left=item.left, end=item.end, steps=item.steps)
                if (
                    process.dead
                    and not was_gone
                    and not self._store.winding_down(unix)
                    and not any(process.failed_of(failure) for failure in self._store.failures)
                ):
                    text = f"rank {process.rank} (pid {item.pid} on {node.host}) exited unexpectedly"
                    self._store.add_event(unix, "critical" if self._store.blames_the_gone else "info", text)
        self._take_blocks(node, blocks, places, len(bundle.items), now, unix)

    def _take_blocks(
        self, node: Node, blocks: deque[NodeBlock], places: deque[int], place: int, now: float, unix: float
    ) -> None:
        """Take those that came before an item of the bundle. places: of each, before which it did."""
        while places and places[0] <= place:
            places.popleft()
            self._collector.take_block(
                blocks.popleft(), node.number, lambda pid: _name(node, b"%d" % pid), now, unix, min(node.later_us)
            )

    def _ask_again(self, node: Node, now: float, *, join: bool = False) -> None:
        if now - node.again_at >= AGAIN_S:
            node.again_at = now
            self._send(node, SendAgain(join=join))

    def answer(self, identity: bytes, message: ToRank, now: float) -> bool:
        """Answer a rank of another node, as far as its hub does not; False: it is none."""
        node, pid = self._split(identity)
        if node is None or not pid.isdigit():
            return False
        if isinstance(message, AskedOfRank):
            self._send(node, Locate.of(int(pid), message))
        elif isinstance(message, Welcome) and not message.has_hello:
            self._ask_again(node, now, join=True)
        return True

    def fetch(self, number: int, rank: int) -> None:
        """Ask a node's hub for what a rank there printed."""
        if node := self.nodes.get(number):
            self._send(node, FetchOutput(rank))

    def show(self, viewer: bytes, frame: bytes) -> bool:
        """Send a viewer on another node what it asked for; False: it is on none."""
        node, name = self._split(viewer)
        if node is None:
            return False
        self._send(node, ViewerSnapshot(name, frame))
        return True

    def _split(self, connection: bytes) -> tuple[Node | None, bytes]:
        """The node that a connection is of, and what that one calls it; None: it is of this machine."""
        parts = _CONNECTION.fullmatch(connection)
        return (self.nodes.get(int(parts[1])), parts[2]) if parts else (None, b"")

    def tick(self, now: float, unix: float, *, recorded: bool, stopping: bool) -> None:
        """Tell nodes what is recorded, and to stop; make events of silent nodes. recorded: all that came is on disk."""
        every_ms = min(MOST_EVERY_MS, int(len(self.nodes) * MS_A_NODE))
        changed = []
        for node in self.nodes.values():
            if recorded and node.recorded < node.seq:
                node.recorded, node.beat_at = node.seq, float("-inf")
            if now - node.beat_at >= BEAT_S:
                node.beat_at = now
                self._send(node, Recorded(node.recorded, every_ms))
                if stopping:
                    self._send(node, Stop())
            if node.epoch and node.reported_silent != (now - node.heard_at >= GONE_S):
                node.reported_silent = not node.reported_silent
                changed.append(node)
        self._store.registry.heard_nodes = {node.number for node in self.nodes.values() if not node.reported_silent}
        self._add_node_events(changed, unix)

    def _add_node_events(self, changed: Sequence[Node], unix: float) -> None:
        """Say who fell silent and who is back: many at once, as behind one switch, in a sentence."""
        by_node = self._by_node() if changed else {}
        said: dict[tuple[str, str], list[Node]] = {}
        for node in changed:
            ranks = by_node.get(node.number, [])
            if not node.reported_silent:
                said.setdefault(("info", "{who} {are} back"), []).append(node)
            elif any(not process.gone for process in ranks):
                others_go_on = self._store.stands_since is not None and (
                    self._store.stands_since > node.heard_at + GONE_S / 2
                )
                said.setdefault(UNHEARD if others_go_on else GONE, []).append(node)
        for (severity, sentence), nodes in said.items():
            those = [process for node in nodes for process in by_node.get(node.number, ())]
            last = max((process.steps for process in those), default=0)
            named = named_ranks([process.rank for process in those], self._store.registry.world_size)
            first = min(nodes, key=attrgetter("number"))
            text = sentence.format(
                who=first.host if len(nodes) == 1 else f"{first.host} and {counted(len(nodes) - 1, 'other host')}",
                are="is" if len(nodes) == 1 else "are",
                ranks=f"{named}, last step {last:,}",
                its="its hub" if len(nodes) == 1 else "their hubs",
            )
            self._store.add_event(unix, severity, text)

    def _by_node(self) -> dict[int, list[RankProcess]]:
        """The ranks of every node."""
        by_node: dict[int, list[RankProcess]] = {}
        for process in self._store.registry.seats.values():
            by_node.setdefault(process.hello.through, []).append(process)
        return by_node

    def settled(self, *, failed: bool) -> bool:
        """Return whether every rank of a node that is heard has said goodbye; of a run that failed, how all of them
        ended.
        """
        by_node = self._by_node()
        heard = [node for node in self.nodes.values() if not node.reported_silent and node.number in by_node]
        left = all(process.gone for node in heard for process in by_node[node.number])
        return left and (not failed or all(node.over for node in heard))

    def close(self) -> None:
        """Let go."""
        self._store.registry.heard_nodes.clear()
        self.socket.disable_monitor()
        self.socket.close()
        self.admission.close()

    def _send(self, node: Node, message: ToNode) -> None:
        with contextlib.suppress(zmq.ZMQError):  # gone, or does not read: what matters is said again
            self.socket.send_multipart([node.connection, encode(message)], zmq.NOBLOCK)


def _name(node: Node, connection: bytes) -> bytes:
    """Return how a connection of another node is called here."""
    return b"N%d/%b" % (node.number, connection)
