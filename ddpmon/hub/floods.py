"""Cuts off who floods the hub: a message of many parts that never ends grows in ZeroMQ, where no limit of its counts.

MAXMSGSIZE bounds a part, RCVHWM whole messages. What is incomplete is handed to nobody and kept until its connection
ends. So a thread of its own watches two things. A connection by which no whole message comes for a while is closed:
a rank beats every second and a viewer asks as often, and whoever of them was stopped connects again by itself and
sends again what was not acknowledged. And where the hub's memory grows fast, connections are closed one by one, those
first of which bytes wait, until it is seen whose end gives the memory back: a process of which that is seen twice is
let in no more.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Mapping

import zmq
from zmq.utils.monitor import recv_monitor_message

from ddpmon.hub.connections import Connection
from ddpmon.hub.receiving import Receiver, Socket
from ddpmon.hub.strangers import Strangers
from ddpmon.messages.nodes import MOST_EVERY_MS
from ddpmon.runs import Process, proc

POLL_S = 0.03
IDLE_S = 15.0
GROWTH_BYTES = 24 << 20
"""Memory that the hub may gain within CALM_S where next to nobody is connected."""
HONEST_BYTES = 512 << 10
"""What it may gain more for each connection by which a whole message has come: what eight ranks of ten steps a second
leave in the store of a root within CALM_S; of a rank's own connection it is less."""
CALM_S = 10.0
GOES_ON_BYTES = 16 << 20
"""Memory that the hub may gain after a connection was closed; with more, that one was not the flood."""
QUIET_S = MOST_EVERY_MS / 1e3 + 1.0
"""A connection by which a whole message came so lately, and on which no bytes wait, is no flood: hubs of nodes send one
every two seconds where there are many."""
CUTS_MOST = 16
"""Connections that are closed for one fast growth; it may be the hub's own."""
CLOSING_S = 0.25
NOTICES_MOST = 50
"""Cuts that are reported, at most: whoever is cut off may come back as another process."""
EVENTS_AT_ONCE = 1000
"""Of one socket, before memory is looked at again."""


class Floods(threading.Thread):
    """Watches the connections of some sockets until they are no longer monitored."""

    def __init__(self, receivers: Mapping[Socket, Receiver]) -> None:
        """receivers: by what `monitored` made of each one's socket. They must stay open until `finish`."""
        super().__init__(name="floods", daemon=True)
        self._monitors = dict(receivers)
        self._to_come: deque[tuple[Socket, Receiver]] = deque()
        self._asked = set(receivers)
        self._ending = threading.Event()
        self._lenient = False
        self._open: dict[tuple[Receiver, int], Connection] = {}
        """By whose they are and their descriptor: of one that ended, another socket may have the descriptor before its
        end is heard of."""
        self._strangers = Strangers()
        self._denied: set[Socket] = set()
        """By whose sockets a connection was just refused for its key."""
        self._suspected: set[Process] = set()
        self._refused: set[Process] = set()
        self._notices: deque[str] = deque()
        self._notices_left = NOTICES_MOST
        self._growth_bytes = GROWTH_BYTES
        self._calm_bytes = proc.own_memory_bytes()
        self._calm_at = self._idle_at = time.monotonic()

    def be_lenient(self) -> None:
        """Take nobody for a flood from here on, but follow who comes and goes."""
        self._lenient = True

    def finish(self) -> None:
        """End the thread, once the socket for other machines is closed."""
        self._lenient = True
        self._ending.set()
        self.join()

    def watch(self, receivers: Mapping[Socket, Receiver]) -> None:
        """Watch these too, each from the first time that it is given."""
        for monitor, receiver in receivers.items():
            if monitor not in self._asked:
                self._asked.add(monitor)
                self._to_come.append((monitor, receiver))

    def take_notices(self) -> list[str]:
        """Who was cut off since, a sentence each."""
        return [self._notices.popleft() for _ in range(len(self._notices))]

    def run(self) -> None:
        poller = zmq.Poller()
        for monitor in self._monitors:
            poller.register(monitor, zmq.POLLIN)
        while not self._ending.is_set():
            while self._to_come:
                monitor, self._monitors[monitor] = self._to_come.popleft()
                poller.register(monitor, zmq.POLLIN)
            self._follow(poller, POLL_S)
            with contextlib.suppress(OSError):  # no file was free to read the memory by: the next time, perhaps
                if not self._lenient:
                    self._check(time.monotonic())

    def _follow(self, poller: zmq.Poller, seconds: float) -> None:
        """Take notice of connections that came and went."""
        for monitor, _ in poller.poll(int(seconds * 1e3)):
            receiver = self._monitors[monitor]
            for _ in range(EVENTS_AT_ONCE):
                if not monitor.poll(0):
                    break
                event = recv_monitor_message(monitor)
                if event["event"] == zmq.EVENT_ACCEPTED:
                    self._accepted(receiver, event["value"])
                elif event["event"] == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                    self._denied.add(monitor)  # its end is the next event
                elif event["event"] == zmq.EVENT_MONITOR_STOPPED:
                    self._forget(receiver)
                elif connection := self._open.pop((receiver, event["value"]), None):
                    self._ended(connection, denied=monitor in self._denied)
                    self._denied.discard(monitor)

    def _ended(self, connection: Connection, *, denied: bool) -> None:
        """denied: its key was not admitted, and it is counted as that."""
        self._strangers.remove(connection)
        if not connection.address or denied or connection.has_spoken:
            return
        if not connection.receiver.was_away(time.monotonic()):  # else a node of the run may have given it up
            connection.receiver.unproven.append(connection.address)

    def _forget(self, receiver: Receiver) -> None:
        """Its socket is closed, and its connections with it."""
        for connection in [each for each in self._open.values() if each.receiver is receiver]:
            del self._open[receiver, connection.descriptor]
            self._strangers.remove(connection)

    def _accepted(self, receiver: Receiver, descriptor: int) -> None:
        try:
            end = socket.socket(fileno=descriptor)
        except OSError:
            self._gone_already(receiver, descriptor)
            return
        try:
            local = end.family == socket.AF_UNIX
            pid = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0] if local else 0
            address = "" if local else end.getpeername()[0]
            inode = os.fstat(descriptor).st_ino
        except OSError:
            self._gone_already(receiver, descriptor)
            return
        finally:
            end.detach()
        if local == receiver.remote:  # its descriptor is another one's by now
            self._gone_already(receiver, descriptor)
            return
        receiver.last_message_at.pop(descriptor, None)
        connection = Connection(receiver, descriptor, inode, pid, address, time.monotonic())
        self._open[receiver, descriptor] = connection
        if self._refused and pid and Process.of(pid) in self._refused:
            connection.close()
        if receiver.remote and (crowd := self._strangers.add(connection)):
            self._say(crowd)

    def _gone_already(self, receiver: Receiver, descriptor: int) -> None:
        """It ended before it was looked at: what comes next of it is its end."""
        if receiver.remote:
            receiver.last_message_at.pop(descriptor, None)
            unseen = Connection(receiver, descriptor, 0, 0, "an unknown address", time.monotonic())
            self._open[receiver, descriptor] = unseen

    def _check(self, now: float) -> None:
        for receiver in self._monitors.values():
            while receiver.hostile:
                connection = self._open.get((receiver, receiver.hostile.pop()))
                if connection is not None:
                    self._refuse(connection, "a message of too many parts")
        if now - self._idle_at >= IDLE_S / 10:
            self._idle_at = now
            honest = 0
            for connection in self._open.values():
                honest += connection.has_spoken
                if connection.idle_s() > IDLE_S:
                    connection.close()
            self._growth_bytes = GROWTH_BYTES + honest * HONEST_BYTES
        memory = proc.own_memory_bytes()
        if memory > self._calm_bytes + self._growth_bytes:
            self._find_flood()
            self._calm_bytes, self._calm_at = proc.own_memory_bytes(), time.monotonic()
        elif now - self._calm_at >= CALM_S or memory < self._calm_bytes:
            self._calm_bytes, self._calm_at = memory, now

    def _find_flood(self) -> None:
        _give_back()
        if proc.own_memory_bytes() <= self._calm_bytes + self._growth_bytes:
            return  # it was the hub's own, and is free again
        poller = zmq.Poller()
        for monitor in self._monitors:
            poller.register(monitor, zmq.POLLIN)
        waits = dict.fromkeys(self._open.values(), 0)
        for _ in range(5):
            for connection in waits:
                waits[connection] += connection.waiting_bytes() > 0
            time.sleep(0.001)
        suspects = [each for each in waits if waits[each] or each.idle_s() > QUIET_S]
        suspects.sort(key=lambda each: (-waits[each], -each.idle_s()))
        for suspect in suspects[:CUTS_MOST]:
            if self._gives_back(suspect, poller):
                self._convict(suspect)
            if proc.own_memory_bytes() <= self._calm_bytes + self._growth_bytes or self._lenient:
                return

    def _gives_back(self, suspect: Connection, poller: zmq.Poller) -> bool:
        """End a connection; says whether most of what the hub gained came back with that."""
        before = proc.own_memory_bytes()
        evidence = (before - self._calm_bytes) // 2
        suspect.close()
        deadline = time.monotonic() + CLOSING_S
        while time.monotonic() < deadline and not self._lenient:
            self._follow(poller, 0.005)
            if self._open.get((suspect.receiver, suspect.descriptor)) is suspect:
                continue
            _give_back()
            gained = proc.own_memory_bytes() - before
            if gained < -evidence or gained > GOES_ON_BYTES:
                return gained < 0
        return False

    def _convict(self, connection: Connection) -> None:
        """What gives memory back at that moment may be the hub itself, once: the second time nobody else is meant."""
        process = Process.of(connection.pid) if connection.pid else None
        if process is not None and process not in self._suspected:
            self._suspected.add(process)
            self._say(f"{connection.who} sent a message without end: its connection was closed")
        else:
            self._refuse(connection, "a message without end" + " again" * (process is not None))

    def _refuse(self, connection: Connection, violation: str) -> None:
        connection.close()
        process = Process.of(connection.pid) if connection.pid not in {0, os.getpid()} else None
        if process is not None:
            self._refused.add(process)
        self._say(f"{connection.who} sent {violation} and was cut off")

    def _say(self, text: str) -> None:
        if self._notices_left:
            self._notices_left -= 1
            self._notices.append(text)


def _give_back() -> None:
    """Have the allocator return what is free, so that memory tells what is in use."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it; others return it by themselves
        ctypes.CDLL(None).malloc_trim(0)
