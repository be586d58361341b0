"""The link from the hub of a node to the root hub, which has the data of all ranks."""

from __future__ import annotations

import contextlib
import ipaddress
import time
from collections.abc import Callable

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from ddpmon.addresses import split
from ddpmon.hub import curve_keys
from ddpmon.hub.bundles import Bundles
from ddpmon.hub.curve_keys import Keys, curve_socket
from ddpmon.hub.sockets import Socket
from ddpmon.messages import AskedOfRank, Batch, Card, FromRank, Hello, Meeting, PrintedView, WireError, encode
from ddpmon.messages import nodes as link
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry

MIN_BUNDLE_INTERVAL_S = 0.25
"""Shortest interval in seconds between two bundles."""
SPARSE_S = 2.0
"""Seconds. If the root requests bundles at this interval or a longer one, every two samples of a rank are merged into
one, because the root has too many ranks to process a sample of each rank every second."""
MAX_BUNDLE_INTERVAL_S = 1.0
"""Longest interval in seconds between two bundles. If there is no data, an empty bundle is sent."""
LOST_S = 3.0
"""Seconds without a message after which the root counts as unreachable. The root sends a message every second."""
LOST_BUNDLES = 5
"""Number of bundle intervals without a message after which the root counts as unreachable, if longer than LOST_S. A
root with very many nodes requests a bundle only every two seconds, and may be busy for longer. If all nodes reconnected
then, the root would be even busier."""
MAX_RECONNECT_WAIT_S = 24.0
"""Longest wait in seconds before another attempt to connect. The wait doubles with each attempt: if thousands of hubs
connect at once, the handshakes take seconds, and early retries would block each other forever."""
MAX_ROOT_FRAME_BYTES = 1 << 28
"""Largest message of the root, in bytes. A snapshot of the largest world takes half of it."""

_REFUSALS = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
)  # fmt: skip
_HANDSHAKES = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_CLOSED | sum(_REFUSALS)


class Uplink:
    """Sends the messages of this node's ranks and the requests of its viewers to the root.

    Args:
        context: ZeroMQ's context.
        keys: This hub's keys.
        registry: The run's processes.
        epoch: Identifies this process of the hub.
        locate: Takes a pid and a request of the root, and passes the request to the rank with this pid.
        show: Takes a viewer and an encoded snapshot, and sends the snapshot to the viewer.
        stop: Ends the run on this node.
        printed: Returns the output of a rank of this node.
        job_key: Key with which the root admits this hub, or None if the root knows this hub's own key.

    """

    def __init__(
        self,
        context: zmq.Context[Socket],
        keys: Keys,
        registry: Registry,
        epoch: str,
        locate: Callable[[int, AskedOfRank], None],
        show: Callable[[bytes, bytes], None],
        stop: Callable[[], None],
        printed: Callable[[int], PrintedView],
        job_key: str | None = None,
    ) -> None:
        """Make the socket without connecting it."""
        self._key = keys.public if job_key else None
        own = curve_keys.of_job(job_key, "node") if job_key else keys
        self.socket = curve_socket(context, zmq.DEALER, own, MAX_ROOT_FRAME_BYTES)
        self._monitor: Socket | None = self.socket.get_monitor_socket(_HANDSHAKES) if job_key else None
        self.refused = False
        """True if the last handshake failed, because the root refused this hub's key or has an unexpected key."""
        self._by_ipv6 = False
        self.socket.setsockopt(zmq.SNDHWM, 32)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 200)
        self.socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        self._registry = registry
        self._epoch = epoch
        self._locate, self._show, self._stop, self._printed = locate, show, stop, printed
        self._bundles = Bundles()
        self._root: Card | None = None
        self._host = registry.host
        """Name that the root uses for this machine."""
        self._run_id = ""
        """Id of the run on the root's machine."""
        self._joined = False
        self._patience_s = LOST_S
        self._every_s = MIN_BUNDLE_INTERVAL_S
        self._urgent = False
        """True if the queue has messages other than batches. These messages must be sent without delay."""
        self._over = False
        """True if the run is over on this node; the last bundle reports it to the root."""
        self._stopping = False
        """True if the run is being stopped here. The root must know before its own ranks fail because of the stop."""
        self._heard_at = self._tried_at = self._sent_at = self._closed_at = float("-inf")

    def set_root(self, root: Card) -> None:
        """Set the root's addresses and public key."""
        if self._root is not None:
            if (root.key, root.addresses) == (self._root.key, self._root.addresses):
                return
            self._disconnect()
        self._root, self._joined, self._run_id = root, False, root.run_id
        self._patience_s = LOST_S

    @property
    def dropped_messages(self) -> int:
        """Return the number of rank messages that were discarded because the root did not accept them in time."""
        return self._bundles.dropped

    def is_root_reachable(self, now: float) -> bool:
        """Return whether the root has admitted this hub and is not silent."""
        return self._joined and now - self._heard_at < self._lost_s

    @property
    def _lost_s(self) -> float:
        """Return the silence in seconds after which the root is unreachable."""
        return max(LOST_S, LOST_BUNDLES * self._every_s)

    def queue_message(self, process: RankProcess, message: FromRank) -> None:
        """Queue a message of a rank for the root."""
        if isinstance(message, Hello):
            if self._joined:  # else the Roster will contain it
                self._bundles.add(link.RankFrame(message.pid, encode(self._introduced(message))))
        elif isinstance(message, Batch):
            self._bundles.add(message)
        elif not isinstance(message, Meeting):
            self._bundles.add(link.RankFrame(process.hello.pid, encode(message)))
            self._urgent = True

    def queue_process_end(self, process: RankProcess, end: link.End | None = None) -> None:
        """Queue the report that a rank's process has ended. end: how it ended, according to the logs, if known."""
        self._bundles.add(link.ProcessEnd(process.hello.pid, process.left, end, process.steps))
        self._urgent = True

    def queue_run_end(self) -> None:
        """Queue a last bundle, for which the root waits, with the report that the run is over on this node."""
        self._over = True
        self._bundles.make_bundles(even_empty=True)

    def relay_request(self, viewer: bytes, request: bytes) -> bool:
        """Pass a viewer's request on to the root, and return whether the root is reachable."""
        return self.is_root_reachable(time.monotonic()) and self._send(link.ViewerRequest(viewer, request))

    def send_due(self, now: float, *, stopping: bool) -> None:
        """Connect if necessary, and send all bundles that are due. stopping: the run is being stopped here."""
        begins_to_stop = stopping and not self._stopping
        self._stopping = self._stopping or stopping
        if begins_to_stop or now - self._closed_at >= (MIN_BUNDLE_INTERVAL_S if self._urgent else self._every_s):
            self._closed_at, self._urgent = now, False
            beat = self._joined and now - self._sent_at >= MAX_BUNDLE_INTERVAL_S
            sparse = self._every_s >= SPARSE_S
            self._bundles.make_bundles(even_empty=beat or begins_to_stop, sparse=sparse)
        if self._root is None:
            return
        if now - max(self._heard_at, self._tried_at) >= self._patience_s:
            # ZeroMQ reconnects by itself, but not after a refusal.
            self._disconnect()
            self._tried_at, self._patience_s = now, min(2 * self._patience_s, MAX_RECONNECT_WAIT_S)
            self.socket.setsockopt(zmq.CURVE_SERVERKEY, self._root.key.encode())
            for address in self._root.addresses[:1]:
                with contextlib.suppress(zmq.ZMQError):
                    # A host name may have an IPv4 or an IPv6 address, so try both in turn.
                    self._by_ipv6 = "[" in address or (_is_name(address) and not self._by_ipv6)
                    self.socket.setsockopt(zmq.IPV6, self._by_ipv6)
                    self.socket.connect(address)
            self._join()
        if not self._joined:
            return
        while bundle := self._bundles.next_bundle(
            time.monotonic_ns() // 1000, stopping=self._stopping, over=self._over
        ):
            if not self._send(bundle):
                return
            self._bundles.mark_sent()
            self._sent_at = now

    def process_root_messages(self, now: float) -> None:
        """Process the messages of the root."""
        while self._monitor is not None and self._monitor.poll(0):
            self.refused = recv_monitor_message(self._monitor)["event"] in _REFUSALS
        while True:
            try:
                message = link.decode_to_node(self.socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                return
            except WireError:
                continue  # A newer root may send messages that this hub does not know.
            self._heard_at = now
            self._process_message(message)
            self._patience_s = self._lost_s

    def _process_message(self, message: link.ToNode) -> None:
        if isinstance(message, link.Joined):
            self._host, self._joined = message.host, True
            self._run_id = self._run_id or message.run_id
            processes = (
                self._registry.process_of_rank.values()
            )  # These include other nodes' ranks if this hub was the root.
            hellos = [self._introduced(process.hello) for process in processes if not process.hello.through]
            self._send(link.Roster(hellos))
        elif isinstance(message, link.Recorded):
            self._bundles.mark_recorded(message.seq)
            self._every_s = max(MIN_BUNDLE_INTERVAL_S, message.every_ms / 1e3)
        elif isinstance(message, link.SendAgain):
            if message.join:
                self._join()
            else:
                self._bundles.send_again()
        elif isinstance(message, link.Locate):
            self._locate(message.pid, message.request)
        elif isinstance(message, link.FetchOutput):
            self._send(link.Output(self._printed(message.rank)))
        elif isinstance(message, link.ViewerSnapshot):
            self._show(message.viewer, message.snapshot)
        elif isinstance(message, link.Stop):
            self._stop()

    def send_remaining(self, now: float) -> bool:
        """Send the remaining messages, and return whether the root has recorded everything."""
        self._closed_at = min(self._closed_at, now - self._every_s)
        self.send_due(now, stopping=False)
        self.process_root_messages(now)
        return self._bundles.is_all_recorded

    def close(self) -> None:
        """Close the socket."""
        if self._monitor is not None:
            self.socket.disable_monitor()
            self._monitor.close()
        self.socket.close()

    def _introduced(self, hello: Hello) -> Hello:
        """Return a rank's Hello with the root's run id and the root's name for this machine."""
        host = self._host if hello.host == self._registry.host else hello.host
        return msgspec.structs.replace(hello, run_id=self._run_id, host=host)

    def _join(self) -> None:
        self._send(link.Join(link.LINK, self._epoch, self._registry.host, self._key))

    def _send(self, message: link.FromNode) -> bool:
        try:
            self.socket.send(encode(message), zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def _disconnect(self) -> None:
        self._joined = False
        for address in self._root.addresses[:1] if self._root else ():
            with contextlib.suppress(zmq.ZMQError):  # The socket was not connected.
                self.socket.disconnect(address)


def _is_name(address: str) -> bool:
    """Return whether the host in an address is a name and not an IP address."""
    try:
        ipaddress.ip_address(split(address.removeprefix("tcp://"))[0].partition("%")[0])
    except ValueError:
        return True
    return False
