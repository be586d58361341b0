"""The way from the hub of a node to the root hub, which has the whole world."""

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
from ddpmon.hub.curve_keys import Keys, linked
from ddpmon.hub.receiving import Socket
from ddpmon.messages import (
    AskedOfRank,
    Batch,
    Card,
    FromRank,
    Hello,
    Meeting,
    PrintedView,
    WireError,
    encode,
)
from ddpmon.messages.nodes import (
    LINK,
    End,
    FetchOutput,
    FromNode,
    Item,
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
    decode_to_node,
)
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry

EVERY_S = 0.25
"""A bundle at most this often."""
SPARSE_S = 2.0
"""A root that wants bundles this seldom has more ranks than it can take a sample of in each second: of two."""
BEAT_S = 1.0
"""A bundle at least this often, empty if need be."""
LOST_S = 3.0
"""The root says something every second; one that is silent for so long is not reached."""
LOST_BUNDLES = 5
"""A root of so many nodes that each is to send a bundle every two seconds may be busy with them for longer than that:
it is not reached when it is silent for so many bundles. All would connect anew at once, which makes it busier still."""
PATIENCE_S = 24.0
"""A root that thousands of hubs come to at once takes seconds for their handshakes: who tries again waits longer each
time, up to so long, or they would hold up each other for ever."""
FRAME_BYTES = 1 << 28
"""The largest message of the root, a snapshot for a viewer: one of the largest world takes half of it."""

_REFUSALS = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
)  # fmt: skip
_HANDSHAKES = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_CLOSED | sum(_REFUSALS)


class Uplink:
    """Sends what the ranks of this node say to the root, and its viewers' requests.

    locate(pid, request): asks a rank for its stack. show(viewer, snapshot): sends a viewer a snapshot. stop(): ends the
    run on this node. printed(rank): what a rank here printed.
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
        """job_key: with which the root lets this hub in; None: with its own, that it was told of."""
        self._key = keys.public if job_key else ""
        own = curve_keys.of_job(job_key, "node") if job_key else keys
        self.socket = linked(context, zmq.DEALER, own, FRAME_BYTES)
        self._monitor: Socket | None = self.socket.get_monitor_socket(_HANDSHAKES) if job_key else None
        self.refused = False
        """True if the root was there last time and did not take this hub's key, or has not the one it should have."""
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
        """Name of this machine, as the root calls it."""
        self._run_id = ""
        """The root's."""
        self._joined = False
        self._patience_s = LOST_S
        self._every_s = EVERY_S
        self._urgent = False
        """True if more than batches waits, of which nobody is to wait for."""
        self._over = False
        """The run is over here, and the root is told so."""
        self._stopping = False
        """The run is stopped here, and the root is told so: it is to know that before its own ranks fail of it."""
        self._heard_at = self._tried_at = self._sent_at = self._closed_at = float("-inf")

    def meet(self, root: Card) -> None:
        """Set who the root is, where it listens and with what key it answers."""
        if self._root is not None:
            if (root.key, root.addresses) == (self._root.key, self._root.addresses):
                return
            self._disconnect()
        self._root, self._joined, self._run_id = root, False, root.run_id
        self._patience_s = LOST_S

    @property
    def dropped(self) -> int:
        """Messages of ranks that were thrown away because the root did not take them."""
        return self._bundles.dropped

    def reached(self, now: float) -> bool:
        """Return whether the root answers."""
        return self._joined and now - self._heard_at < self._lost_s

    @property
    def _lost_s(self) -> float:
        """Return how long a root that is reached may be silent."""
        return max(LOST_S, LOST_BUNDLES * self._every_s)

    def add(self, process: RankProcess, message: FromRank) -> None:
        """Take what a rank said for the root."""
        if isinstance(message, Hello):
            if self._joined:  # else the roster has it
                self._bundles.add(Item(message.pid, encode(self._introduced(message))))
        elif isinstance(message, Batch):
            self._bundles.add(message)
        elif not isinstance(message, Meeting):
            self._bundles.add(Item(process.hello.pid, encode(message)))
            self._urgent = True

    def ended(self, process: RankProcess, end: End | None = None) -> None:
        """A rank's process is there no more. end: how it ended, once the logs say it."""
        self._bundles.add(Item(process.hello.pid, b"", left=process.left, end=end, steps=process.steps))
        self._urgent = True

    def end(self) -> None:
        """Let the root know that the run is over here, with the last of what there is to say: it waits for that."""
        self._over = True
        self._bundles.close(even_empty=True)

    def relay(self, viewer: bytes, request: bytes) -> bool:
        """Pass a viewer's request on; False: the root cannot be reached."""
        return self.reached(time.monotonic()) and self._send(ViewerRequest(viewer, request))

    def turn(self, now: float, *, stopping: bool) -> None:
        """Connect, send what is due."""
        begins_to_stop = stopping and not self._stopping
        self._stopping = self._stopping or stopping
        if begins_to_stop or now - self._closed_at >= (EVERY_S if self._urgent else self._every_s):
            self._closed_at, self._urgent = now, False
            beat = self._joined and now - self._sent_at >= BEAT_S
            sparse = self._every_s >= SPARSE_S
            self._bundles.close(even_empty=beat or begins_to_stop, sparse=sparse)
        if self._root is None:
            return
        if now - max(self._heard_at, self._tried_at) >= self._patience_s:
            # Also where ZeroMQ would try again by itself: after a refusal it does not.
            self._disconnect()
            self._tried_at, self._patience_s = now, min(2 * self._patience_s, PATIENCE_S)
            self.socket.setsockopt(zmq.CURVE_SERVERKEY, self._root.key.encode())
            for address in self._root.addresses[:1]:
                with contextlib.suppress(zmq.ZMQError):
                    # a name may have an address of either kind: one after the other
                    self._by_ipv6 = "[" in address or (_is_name(address) and not self._by_ipv6)
                    self.socket.setsockopt(zmq.IPV6, self._by_ipv6)
                    self.socket.connect(address)
            self._join()
        if not self._joined:
            return
        while bundle := self._bundles.next(time.monotonic_ns() // 1000, stopping=self._stopping, over=self._over):
            if not self._send(bundle):
                return
            self._bundles.sent()
            self._sent_at = now

    def receive(self, now: float) -> None:
        """Take the root's messages."""
        while self._monitor is not None and self._monitor.poll(0):
            self.refused = recv_monitor_message(self._monitor)["event"] in _REFUSALS
        while True:
            try:
                message = decode_to_node(self.socket.recv(zmq.NOBLOCK))
            except zmq.Again:
                return
            except WireError:
                continue  # a newer root may say things that this hub does not know
            self._heard_at = now
            self._hear(message)
            self._patience_s = self._lost_s

    def _hear(self, message: ToNode) -> None:
        if isinstance(message, Joined):
            self._host, self._joined = message.host, True
            self._run_id = self._run_id or message.run_id
            seats = self._registry.seats.values()  # of other nodes too, where this hub was the root before
            hellos = [self._introduced(process.hello) for process in seats if not process.hello.through]
            self._send(Roster(hellos))
        elif isinstance(message, Recorded):
            self._bundles.recorded(message.seq)
            self._every_s = max(EVERY_S, message.every_ms / 1e3)
        elif isinstance(message, SendAgain):
            if message.join:
                self._join()
            else:
                self._bundles.send_again()
        elif isinstance(message, Locate):
            self._locate(message.pid, message.request)
        elif isinstance(message, FetchOutput):
            self._send(Output(self._printed(message.rank)))
        elif isinstance(message, ViewerSnapshot):
            self._show(message.viewer, message.snapshot)
        elif isinstance(message, Stop):
            self._stop()

    def finish(self, now: float) -> bool:
        """Send the rest; whether the root has all of it."""
        self._closed_at = min(self._closed_at, now - self._every_s)
        self.turn(now, stopping=False)
        self.receive(now)
        return self._bundles.settled

    def close(self) -> None:
        """Let go."""
        if self._monitor is not None:
            self.socket.disable_monitor()
            self._monitor.close()
        self.socket.close()

    def _introduced(self, hello: Hello) -> Hello:
        """A rank's Hello as the root needs it: of the root's run, with the root's name for this machine."""
        host = self._host if hello.host == self._registry.host else hello.host
        return msgspec.structs.replace(hello, run_id=self._run_id, host=host)

    def _join(self) -> None:
        self._send(Join(LINK, self._epoch, self._registry.host, self._key))

    def _send(self, message: FromNode) -> bool:
        try:
            self.socket.send(encode(message), zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def _disconnect(self) -> None:
        self._joined = False
        for address in self._root.addresses[:1] if self._root else ():
            with contextlib.suppress(zmq.ZMQError):  # it was not connected
                self.socket.disconnect(address)


def _is_name(address: str) -> bool:
    """Return whether the host in an address is a name, not its number."""
    try:
        ipaddress.ip_address(split(address.removeprefix("tcp://"))[0].partition("%")[0])
    except ValueError:
        return True
    return False
