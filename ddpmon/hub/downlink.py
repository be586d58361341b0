"""Connects the root hub to the hubs of other nodes, and processes the messages of these nodes' ranks."""

from __future__ import annotations

import contextlib
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

import zmq

from ddpmon.analysis.words import format_count, named_ranks
from ddpmon.hub import curve_keys
from ddpmon.hub.bundles import IN_FLIGHT
from ddpmon.hub.curve_keys import DOMAIN, UNNUMBERED, Admission, Keys, curve_socket
from ddpmon.hub.sockets import Socket
from ddpmon.messages import AskedOfRank, PrintedView, ToRank, Welcome, WireError, encode
from ddpmon.messages import nodes as link
from ddpmon.messages.vocabulary import MAX_WORLD
from ddpmon.recording.collector import Collector
from ddpmon.recording.node_blocks import NodeBlock, are_rows_possible, check_rows, decode_block
from ddpmon.store.peers import NO_KEY, NO_MESSAGE, Peer, process_key
from ddpmon.store.processes import RankProcess
from ddpmon.store.store import Store

MAX_NODE_FRAME_BYTES = 8 << 20
HANDSHAKE_MS = 10_000
"""Time limit of a handshake. If a thousand nodes connect at once, their handshakes take three seconds."""
BACKLOG = 1024
"""Largest number of connections that wait to be accepted."""
NODE_BEAT_S = 1.0
MS_A_NODE = 4.0
"""Milliseconds between two bundles of a node, times the number of nodes, so that at most 250 bundles/s arrive."""
NODE_SILENCE_S = 4.0
"""Seconds without a message after which a node is reported. Hubs send a message every second, and a hub restarts in
less than four seconds."""
ASK_NODE_AGAIN_S = 1.0
MOST_PER_TURN = 200
CLOCKS = 240
"""Number of latest bundles, about a minute's, of which the fastest gives the offset of two clocks. The offset is
accurate to milliseconds, which suffices to order failures and stacks of several machines. Steps are aligned by the ends
of their gradient synchronisations instead."""
GONE = "critical", "{who} {are} gone: {ranks}"
UNHEARD = "warn", "no data from {who} ({ranks}); the other hosts continue, so {its} or the link has failed"
"""Severity and sentence of the events about silent nodes."""
_CONNECTION = re.compile(rb"N(\d{1,9})/(.+)", re.DOTALL)
"""Matches the name of a connection on another node: the node's number, and the pid of a rank or the name of a viewer.
ZeroMQ's own names begin with a zero byte, but a process on this machine may choose a name that matches."""


@dataclass
class Node:
    """State of another node and of the link to its hub."""

    number: int
    connection: bytes
    epoch: str = ""
    host: str = ""
    seq: int = 0
    """Number of the last bundle that was received in order."""
    recorded: int = 0
    """Number of the last bundle that is completely on the disk."""
    heard_at: float = 0.0
    beat_at: float = float("-inf")
    again_at: float = float("-inf")
    reported_silent: bool = False
    """True if an event has reported that the node is silent."""
    stopping: bool = False
    over: bool = False
    """True if the run is over on the node, and the node has reported everything about its end."""
    later_us: deque[int] = field(default_factory=lambda: deque(maxlen=CLOCKS))
    """Microseconds by which this clock was ahead of the node's at each of the last bundles, including the time that the
    bundle took."""


_Came = tuple[Node, link.FromNode, list[NodeBlock]]
"""A message of a node, with the unpacked blocks in it."""


class Downlink:
    """The connections to the hubs of all other nodes.

    Args:
        context: ZeroMQ's context.
        keys: This hub's keys, and the hubs it admits.
        store: The run's data.
        collector: Processes the messages of ranks.
        epoch: Identifies this process of the hub.
        take_request: Takes a viewer's name and its request. The answer is sent with `send_to_viewer`.
        stop: Ends the whole run.
        came: Stores a rank's output from the node with a number. Returns False if the output was not requested, or
            the node has no such rank.
        job_key: Key with which all hubs are admitted, or None if each hub has its own key.

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
        """Make the sockets without binding them."""
        self._keys = keys
        members = curve_keys.of_job(job_key, "node") if job_key else None
        self.admission = Admission(context, keys.admitted, members.public if members else "")
        own = curve_keys.of_job(job_key, "root") if job_key else keys
        self.socket = curve_socket(context, zmq.ROUTER, own, MAX_NODE_FRAME_BYTES)
        self.socket.setsockopt(zmq.RCVHWM, 2 * IN_FLIGHT)
        self.socket.setsockopt(zmq.SNDHWM, 100)
        self.socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self.socket.setsockopt(zmq.BACKLOG, BACKLOG)
        self.socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
        # Without this option, ZeroMQ admits every peer if the authenticator is missing.
        self.socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        self.socket.setsockopt(zmq.CURVE_SERVER, 1)
        self._store, self._collector, self._epoch = store, collector, epoch
        self._take_request, self._stop, self._came = take_request, stop, came
        self.nodes: dict[int, Node] = {}
        self._hosts: set[str] = set()
        """Names of the nodes' hosts."""
        self._numbers: dict[bytes, int] = {}
        """Nodes by the names of their connections, if all hubs use the job's key."""

    def listen(self, address: str) -> str:
        """Bind to an address and return the endpoint with its port, or raise zmq.ZMQError."""
        self.socket.setsockopt(zmq.IPV6, "[" in address)
        self.socket.bind(address)
        return self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def receive(self, now: float, unix: float) -> None:
        """Process messages of nodes, at most MOST_PER_TURN in one call."""
        self.admission.answer_requests()
        for address in self.admission.refused:
            self._store.registry.refusals.add_refusal(NO_KEY, why=f"from {address}")
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
                message = link.decode_from_node(frames[0].bytes)
                if number == UNNUMBERED and isinstance(message, link.Join):
                    node = self._admit_node(message, connection.bytes, now)
                items = message.items if isinstance(message, link.Bundle) else ()
                blocks = [decode_block(item.frame) for item in items if isinstance(item, link.Packed)]
            except WireError as error:
                self._refuse(node, error)
            else:
                came.append((node, message, blocks))
        self._take_all(came, now, unix)

    def _node(self, number: int, connection: bytes, now: float) -> Node:
        """Return the node of a connection on which a message arrived."""
        if number == UNNUMBERED:
            return Node(number, connection)  # Its other messages are not processed before its `Join`.
        node = self.nodes.setdefault(number, Node(number, connection))
        node.connection, node.heard_at = connection, now
        return node

    def _admit_node(self, join: link.Join, connection: bytes, now: float) -> Node:
        """Return the node of a hub that joins with the job's key. Raise WireError if there are too many hubs."""
        number = self._keys.node_number(join.key, MAX_WORLD) if join.key else None
        if number is None:
            raise WireError("the hub does not identify itself" if not join.key else "too many hubs")
        if number in self.nodes:
            self._numbers.pop(self.nodes[number].connection, None)
        self._numbers[connection] = number
        return self._node(number, connection, now)

    def _take_all(self, came: list[_Came], now: float, unix: float) -> None:
        """Check and process the messages that one call of `receive` has read."""
        checked = are_rows_possible([block for _, _, blocks in came for block in blocks])
        for node, message, blocks in came:
            try:
                if not checked:
                    for block in blocks:
                        check_rows(block.table)
                self._process_message(node, message, blocks, now, unix)
            except WireError as error:
                self._refuse(node, error)
        self._collector.pass_on_steps(now)

    def _refuse(self, node: Node, error: WireError) -> None:
        self._store.registry.refusals.add_refusal(NO_MESSAGE, why=f"node {node.number}: {error}"[:200])

    def _process_message(
        self, node: Node, message: link.FromNode, blocks: Sequence[NodeBlock], now: float, unix: float
    ) -> None:
        if isinstance(message, link.Join):
            if message.epoch != node.epoch:
                node.seq = node.recorded = 0
                node.later_us.clear()  # After a reboot, the node's monotonic clock starts anew.
            came_early = bool(message.key) and not node.epoch  # With the job's key, hubs join before their ranks.
            self._hosts.discard(node.host)
            taken = message.host == self._store.registry.host or message.host in self._hosts
            node.host = f"{message.host}-{node.number}" if taken else message.host
            self._hosts.add(node.host)
            node.epoch = message.epoch
            if came_early:
                self._store.add_event(unix, "info", f"{node.host} has joined the run")
            self._send(node, link.Joined(self._epoch, node.host, self._store.run.id))
        elif not node.epoch:
            self._send(node, link.SendAgain(join=True))
        elif isinstance(message, link.Roster):
            for hello in message.hellos:
                name = _rank_name(node, hello.pid)
                self._collector.process_message([name, encode(hello)], now, unix, Peer(0, node.number))
        elif isinstance(message, link.ViewerRequest):
            self._take_request(_name(node, message.viewer), message.request)
        elif isinstance(message, link.Output):
            if not self._came(message.view, node.number):
                raise WireError("output that this hub did not request, or output of another node's rank")
        else:
            self._process_bundle(node, message, iter(blocks), now, unix)

    def _process_bundle(
        self, node: Node, bundle: link.Bundle, blocks: Iterator[NodeBlock], now: float, unix: float
    ) -> None:
        if bundle.seq <= node.seq:
            return
        if bundle.seq > node.seq + 1 and bundle.seq != bundle.first:
            self._ask_again(node, now)  # The node can send some of the missing bundles again.
            return
        node.seq = bundle.seq
        node.later_us.append(time.monotonic_ns() // 1000 - bundle.now_us)
        if bundle.stopping and not node.stopping:
            node.stopping = True
            self._stop()
        node.over = node.over or bundle.over
        later_us, peer = min(node.later_us), Peer(0, node.number)
        for item in bundle.items:
            if isinstance(item, link.RankFrame):
                name = _rank_name(node, item.pid)
                self._collector.process_message([name, item.frame], now, unix, peer, later_us=later_us)
            elif isinstance(item, link.ProcessEnd):
                self._process_end(node, item, now, unix)
            else:
                self._collector.take_block(next(blocks), node.number, partial(_rank_name, node), now, unix, later_us)

    def _process_end(self, node: Node, ended: link.ProcessEnd, now: float, unix: float) -> None:
        store = self._store
        process = store.registry.processes.get(process_key(ended.pid, node.number))
        if process is None:
            return
        was_gone = process.gone
        self._collector.note_process_end(process, now, left=ended.left, end=ended.end, steps=ended.steps)
        has_failed = any(process.failed_of(failure) for failure in store.failures)
        if process.dead and not (was_gone or has_failed or store.winding_down(unix)):
            text = f"rank {process.rank} (pid {ended.pid} on {node.host}) exited unexpectedly"
            store.add_event(unix, "critical" if store.blames_the_gone else "info", text)

    def _ask_again(self, node: Node, now: float, *, join: bool = False) -> None:
        if now - node.again_at >= ASK_NODE_AGAIN_S:
            node.again_at = now
            self._send(node, link.SendAgain(join=join))

    def answer(self, identity: bytes, message: ToRank, now: float) -> bool:
        """Answer a rank on another node, through its hub; return whether the rank is on another node."""
        node, pid = self._split(identity)
        if node is None or not pid.isdigit():
            return False
        if isinstance(message, AskedOfRank):
            self._send(node, link.Locate(int(pid), message))
        elif isinstance(message, Welcome) and not message.has_hello:
            self._ask_again(node, now, join=True)
        return True

    def fetch_output(self, number: int, rank: int) -> None:
        """Ask a node's hub for the output of a rank there."""
        if node := self.nodes.get(number):
            self._send(node, link.FetchOutput(rank))

    def send_to_viewer(self, viewer: bytes, frame: bytes) -> bool:
        """Send a frame to a viewer on another node, and return whether the viewer is on another node."""
        node, name = self._split(viewer)
        if node is None:
            return False
        self._send(node, link.ViewerSnapshot(name, frame))
        return True

    def _split(self, connection: bytes) -> tuple[Node | None, bytes]:
        """Return the node of a connection and the connection's name there. The node is None for this machine."""
        parts = _CONNECTION.fullmatch(connection)
        return (self.nodes.get(int(parts[1])), parts[2]) if parts else (None, b"")

    def report_to_nodes(self, now: float, unix: float, *, recorded: bool, stopping: bool) -> None:
        """Send nodes the numbers of recorded bundles and requests to stop, and add events about silent nodes.

        `recorded` is True if everything that was received is on the disk.
        """
        every_ms = min(link.MOST_EVERY_MS, int(len(self.nodes) * MS_A_NODE))
        changed = []
        for node in self.nodes.values():
            if recorded and node.recorded < node.seq:
                node.recorded, node.beat_at = node.seq, float("-inf")
            if now - node.beat_at >= NODE_BEAT_S:
                node.beat_at = now
                self._send(node, link.Recorded(node.recorded, every_ms))
                if stopping:
                    self._send(node, link.Stop())
            if node.epoch and node.reported_silent != (now - node.heard_at >= NODE_SILENCE_S):
                node.reported_silent = not node.reported_silent
                changed.append(node)
        self._store.registry.heard_nodes = {node.number for node in self.nodes.values() if not node.reported_silent}
        self._add_node_events(changed, unix)

    def _add_node_events(self, changed: Sequence[Node], unix: float) -> None:
        """Add one event for all nodes that became silent, and one for all nodes that send messages again."""
        by_node = self._by_node() if changed else {}
        said: dict[tuple[str, str], list[Node]] = {}
        for node in changed:
            ranks = by_node.get(node.number, [])
            if not node.reported_silent:
                said.setdefault(("info", "{who} {are} back"), []).append(node)
            elif any(not process.gone for process in ranks):
                others_go_on = self._store.stands_since is not None and (
                    self._store.stands_since > node.heard_at + NODE_SILENCE_S / 2
                )
                said.setdefault(UNHEARD if others_go_on else GONE, []).append(node)
        for (severity, sentence), nodes in said.items():
            those = [process for node in nodes for process in by_node.get(node.number, ())]
            last = max((process.steps for process in those), default=0)
            named = named_ranks([process.rank for process in those], self._store.registry.world_size)
            first = min(nodes, key=attrgetter("number"))
            text = sentence.format(
                who=first.host if len(nodes) == 1 else f"{first.host} and {format_count(len(nodes) - 1, 'other host')}",
                are="is" if len(nodes) == 1 else "are",
                ranks=f"{named}, last step {last:,}",
                its="its hub" if len(nodes) == 1 else "their hubs",
            )
            self._store.add_event(unix, severity, text)

    def _by_node(self) -> dict[int, list[RankProcess]]:
        """Return the ranks of every node."""
        by_node: dict[int, list[RankProcess]] = {}
        for process in self._store.registry.process_of_rank.values():
            by_node.setdefault(process.hello.through, []).append(process)
        return by_node

    def have_all_ended(self, *, failed: bool) -> bool:
        """Return whether all ranks on nodes that are not silent have ended.

        If `failed` is true, these nodes must also have reported how their ranks ended.
        """
        by_node = self._by_node()
        heard = [node for node in self.nodes.values() if not node.reported_silent and node.number in by_node]
        left = all(process.gone for node in heard for process in by_node[node.number])
        return left and (not failed or all(node.over for node in heard))

    def close(self) -> None:
        """Close the sockets."""
        self._store.registry.heard_nodes.clear()
        self.socket.disable_monitor()
        self.socket.close()
        self.admission.close()

    def _send(self, node: Node, message: link.ToNode) -> None:
        with contextlib.suppress(zmq.ZMQError):  # If the node is gone or does not read, the message is repeated later.
            self.socket.send_multipart([node.connection, encode(message)], zmq.NOBLOCK)


def _name(node: Node, connection: bytes) -> bytes:
    """Return the name that this hub gives to a connection on another node."""
    return b"N%d/%b" % (node.number, connection)


def _rank_name(node: Node, pid: int) -> bytes:
    return _name(node, b"%d" % pid)
