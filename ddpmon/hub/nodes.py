"""Determines this hub's role among several: the root, a node's hub, or neither in a run on one machine."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import zmq

from ddpmon import runs
from ddpmon.addresses import bracketed, own_for_others, split
from ddpmon.hub import curve_keys
from ddpmon.hub.downlink import Downlink
from ddpmon.hub.rank_output import RankOutput
from ddpmon.hub.sockets import Socket
from ddpmon.hub.uplink import MIN_BUNDLE_INTERVAL_S, Uplink
from ddpmon.hub.viewers import Viewers
from ddpmon.messages import AskedOfRank, Card, FromRank, Meeting, PrintedView, ToRank
from ddpmon.messages.nodes import End
from ddpmon.recording.collector import Collector
from ddpmon.runs import job_key
from ddpmon.store.processes import RankProcess
from ddpmon.store.store import Store

ALONE_NOTE = "ddpmon shows only this machine's ranks"
AWAITED_S = 5.0
"""Seconds after which an event reports that the root given by `--hub` is unreachable."""
MAX_NODES_END_S = 3.0
"""Longest time in seconds for which the end of the run waits for the hubs of other nodes."""


class Nodes:
    """Gives this hub its role and runs its links to other hubs.

    Messages of the ranks determine the role: the hub of rank 0 becomes the root, and the others become node hubs. If
    `--hub` is given, it determines the role.
    """

    def __init__(
        self,
        store: Store,
        collector: Collector,
        answer: Callable[[bytes, ToRank], None],
    ) -> None:
        """Begin without a role.

        Args:
            store: The run.
            collector: Processes the messages of ranks on other nodes.
            answer: Sends a message to a rank that is connected to this hub.

        """
        self._store, self._collector = store, collector
        self._answer = answer
        self._viewers: Viewers
        self._dir: Path = runs.run_dir(store.run.id)
        self._epoch = secrets.token_hex(4)
        self._keys = curve_keys.stored_keys(self._dir)
        self._context: zmq.Context[Socket] | None = None
        self._up: Uplink | None = None
        self._down: Downlink | None = None
        self._stopped = self._reached = False
        self._job_key = job_key.kept(store.run.id) if store.run.hub_at else None
        self._root_name = f"the hub at {store.run.hub_at}" if store.run.hub_at else "the hub of rank 0"
        self._awaited_until = math.inf
        self._printed = RankOutput(store.run, store.registry, self._fetch)
        self._sockets: list[Socket] = []
        self._polled: list[Socket] = []

    def take_role(self, viewers: Viewers) -> None:
        """Begin in the role that `--hub` determines, or that an earlier hub of this run had. viewers: this hub's
        viewers.
        """
        self._viewers = viewers
        store = self._store
        if not zmq.has("curve"):
            if store.run.nnodes > 1 or store.run.hub_at:
                store.add_event(time.time(), "warn", f"this build of ZeroMQ has no encryption (CURVE), so {ALONE_NOTE}")
        elif store.run.hub_at:
            self._begin_given(*split(store.run.hub_at))
        elif store.run.nnodes > 1 and not (self._keys and self._keys.addresses):
            self._begin_uplink()  # Rank messages wait until the root's address is known.
        elif self._keys and self._keys.addresses:
            self._begin_downlink(self._keys.addresses)

    def _begin_given(self, host: str, port: int) -> None:
        """Begin as the root or a node's hub, as `--hub` determines."""
        if self._job_key is None:
            self._store.add_event(time.time(), "warn", f"the key for {self._root_name} is missing, so {ALONE_NOTE}")
        elif self._store.run.hub_is_here:
            self._keys = self._keys or curve_keys.new_key_pair()
            self._begin_downlink([f"tcp://{bracketed(own_for_others(host))}:{port}"])
            self._keys.save(self._dir)
        else:
            self._begin_uplink()
            assert self._up is not None  # noqa: S101  _begin_uplink made it
            root = curve_keys.of_job(self._job_key, "root").public
            self._up.set_root(Card(root, "", [f"tcp://{bracketed(host)}:{port}"]))
            self._awaited_until = time.monotonic() + AWAITED_S

    @property
    def every_s(self) -> float:
        """Return the longest interval, in seconds, between two calls of `exchange_messages`."""
        return math.inf if self._up is None else MIN_BUNDLE_INTERVAL_S

    def keep_polled(self, poller: zmq.Poller) -> None:
        """Register the sockets to other hubs with the poller, if they have changed."""
        if self._polled != self._sockets:
            for old in self._polled:
                poller.unregister(old)
            for new in self._sockets:
                poller.register(new, zmq.POLLIN)
            self._polled = self._sockets

    def accept(self, process: RankProcess, message: FromRank) -> None:
        """Process a rank's message after the collector has accepted it."""
        if isinstance(message, Meeting) and not process.hello.through:
            self._meet(process, message)
        elif self._up is not None and not process.hello.through:
            self._up.queue_message(process, message)

    def report_end(self, process: RankProcess) -> None:
        """Report to the root that a rank of this machine has ended."""
        if self._up is not None and not process.hello.through:
            self._up.queue_process_end(process)

    def _meet(self, process: RankProcess, meeting: Meeting) -> None:
        if not zmq.has("curve") or self._store.run.hub_at or not self._store.registry.is_seated(process):
            return
        self._keys = self._keys or curve_keys.new_key_pair()
        if process.rank == 0:
            if self._up is not None:
                self._end_uplink()
            if self._down is None:
                self._begin_downlink([f"tcp://{bracketed(own_for_others(meeting.towards))}:*"])
            for node, key in meeting.keys.items():
                self._keys.admit(key, node)
            self._keys.save(self._dir)
            admits = sorted(meeting.keys)  # numbers of the nodes in this world
            self._answer(process.identity, Card(self._keys.public, self._store.run.id, self._keys.addresses, admits))
            return
        self._answer(process.identity, Card(self._keys.public, self._store.run.id))
        if self._down is not None and meeting.root is not None:
            self._end_downlink()
        if self._up is None and self._down is None:
            self._begin_uplink()
        if self._up is not None and meeting.root is not None and meeting.root.key != self._keys.public:
            self._up.set_root(meeting.root)

    def _begin_uplink(self) -> None:
        if self._keys is None:
            self._keys = curve_keys.new_key_pair()
            self._keys.save(self._dir)
        self._context = self._context or zmq.Context(io_threads=1)
        self._up = Uplink(
            self._context,
            self._keys,
            self._store.registry,
            self._epoch,
            self._locate,
            self._viewers.send_frame,
            self._stop,
            lambda rank: self._printed.local_output(rank, time.monotonic()),
            self._job_key,
        )
        self._sockets = [self._up.socket]

    def _end_uplink(self) -> None:
        if self._up is not None:
            self._up.close()
        self._up, self._sockets = None, []

    def _end_downlink(self) -> None:
        """Stop being the root, because rank 0 has moved to another machine."""
        if self._down is None or self._keys is None:
            return
        self._down.close()
        self._down, self._sockets = None, []
        self._keys.addresses, self._keys.admitted = [], {}
        self._keys.save(self._dir)
        text = "rank 0 moved to another machine, whose hub now has the data of all ranks"
        self._store.add_event(time.time(), "warn", text)

    def _begin_downlink(self, addresses: list[str]) -> None:
        assert self._keys is not None  # noqa: S101  callers have made them
        self._context = self._context or zmq.Context(io_threads=1)
        down = Downlink(
            self._context,
            self._keys,
            self._store,
            self._collector,
            self._epoch,
            self._take_request,
            self._stop,
            self._printed_elsewhere,
            self._job_key,
        )
        try:
            self._keys.addresses = [down.listen(address) for address in addresses]
        except zmq.ZMQError as error:
            down.close()
            text = f"other machines cannot connect to {addresses[0]}: {error.strerror}"
            self._store.add_event(time.time(), "warn", text)
            return
        self._down = down
        self._sockets = [down.socket, down.admission.socket]

    def answer(self, identity: bytes, message: ToRank) -> bool:
        """Answer a rank on another node. Return False if the rank is on this node."""
        return self._down is not None and self._down.answer(identity, message, time.monotonic())

    def rank_output(self, rank: int, now: float) -> PrintedView:
        """Return the part of a rank's output that has arrived at this hub."""
        return self._printed.view(rank, now)

    def _fetch(self, node: int, rank: int) -> None:
        if self._down is not None:
            self._down.fetch_output(node, rank)

    def _printed_elsewhere(self, view: PrintedView, node: int) -> bool:
        if not self._printed.store_output(view, node):
            return False
        self._viewers.expect_news()
        return True

    def relay_request(self, viewer: bytes, request: bytes) -> bool:
        """Pass a viewer's request on to the root; return False if this hub is the root or cannot reach it."""
        return self._up is not None and self._up.relay_request(viewer, request)

    def send_to_viewer(self, viewer: bytes, frame: bytes) -> bool:
        """Send a snapshot to a viewer on another node. Return False if the viewer is on this node."""
        return self._down is not None and self._down.send_to_viewer(viewer, frame)

    def exchange_messages(self, now: float) -> None:
        """Receive messages of other hubs, and send the messages to them that are due."""
        if self._down is not None:
            assert self._keys is not None  # noqa: S101  _begin_downlink needs them
            before = len(self._keys.admitted)
            self._down.receive(now, time.time())
            if len(self._keys.admitted) > before:  # Hubs with the job's key must get the same numbers after a restart.
                self._keys.save(self._dir)
        if self._up is not None:
            self._up.process_root_messages(now)
            self._up.send_due(now, stopping=self._store.run.stopping)

    def send_heartbeats(self, now: float, unix: float, *, recorded: bool) -> None:
        """Send heartbeats and add events about connections. recorded: True if all data is on the disk."""
        if self._down is not None:
            self._down.report_to_nodes(now, unix, recorded=recorded, stopping=self._store.run.stopping)
        if self._up is not None and not self._reached and now >= self._awaited_until:
            self._awaited_until = math.inf
            self._store.add_event(unix, "warn", self._missed())
        if self._up is not None and self._reached != self._up.is_root_reachable(now):
            self._awaited_until = math.inf
            self._reached = not self._reached
            if self._reached:
                self._store.add_event(unix, "info", f"connected to {self._root_name}, which shows all ranks")
            else:
                self._store.add_event(unix, "warn", self._missed())

    @property
    def root_shows(self) -> bool:
        """Return whether the root answers the viewers of this hub, so that they see all ranks."""
        return self._up is not None and self._reached

    def notes(self, now: float) -> list[str]:
        """Return notes for viewers about the connection to the root."""
        if self._up is None:
            return []
        first = self._store.registry.process_of_rank.get(0)
        is_here = first is not None and not first.hello.through  # Other nodes may join later or have left.
        lines = [] if self._up.is_root_reachable(now) or is_here else [self._missed()]
        if self._up.dropped_messages:
            lines.append(
                f"{self._up.dropped_messages:,} messages for {self._root_name} are lost, because the connection was "
                "broken for too long"
            )
        return lines

    def _missed(self) -> str:
        if self._up is not None and self._up.refused:
            return f"{self._root_name} and this machine have different keys, so {ALONE_NOTE}"
        return f"there is no connection to {self._root_name}, so {ALONE_NOTE}"

    def report_run_end(self, ends: Mapping[int, End]) -> None:
        """Report to the root that the run is over on this machine, and how processes ended, by pid."""
        if self._up is not None:
            for pid, process in self._store.registry.processes.items():
                if not process.hello.through and (end := ends.get(pid)):
                    self._up.queue_process_end(process, end)
            if self._store.run.state() == "failed":
                self._up.queue_run_end()

    def is_all_transferred(self, now: float) -> bool:
        """Return whether all messages of and to other hubs have been transferred."""
        up = self._up is None or self._up.send_remaining(now) or not self._up.is_root_reachable(now)
        return up and (self._down is None or self._down.have_all_ended(failed=self._store.run.state() == "failed"))

    def close(self) -> None:
        """Close the links to other hubs."""
        for link in (self._up, self._down):
            if link is not None:
                link.close()
        if self._context is not None:
            self._context.term()

    def _take_request(self, viewer: bytes, request: bytes) -> None:
        self._viewers.process_request(viewer, request, time.monotonic())

    def _locate(self, pid: int, request: AskedOfRank) -> None:
        process = self._store.registry.processes.get(pid)
        if process is not None and not process.gone:
            self._answer(process.identity, request)

    def _stop(self) -> None:
        """End the run on this machine as `ddpmon stop` does, by sending SIGTERM to its supervisor."""
        supervisor = self._store.run.supervisor
        if self._stopped or self._store.run.stopping or self._store.run.ended or supervisor is None:
            return
        self._stopped = True
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(supervisor.pid)
            try:
                if (
                    supervisor.alive()
                ):  # Checked after opening the pidfd, so that the pidfd cannot refer to another process.
                    signal.pidfd_send_signal(handle, signal.SIGTERM)
            finally:
                os.close(handle)
