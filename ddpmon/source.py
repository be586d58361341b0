"""The one door of every viewer: a live run, a recording or a made-up one look the same from here."""

from __future__ import annotations

import threading
import time
from typing import Protocol

import zmq

from ddpmon import runs
from ddpmon.errors import RecordingError, RunNotFoundError
from ddpmon.logs import Log, Reader, Said
from ddpmon.messages import END_STATES, Next, Snapshot, WireError, decode_snapshot, encode
from ddpmon.runs import Run

POLL_MS = 250
ASK_AGAIN_S = 3.0
"""A live hub answers every second; a request that this long went unanswered met no hub."""


class Source(Protocol):
    """Where a viewer gets what it shows. Calls never block."""

    @property
    def stoppable(self) -> bool:
        """Whether the run can be stopped from here."""

    def snapshot(self) -> Snapshot | None:
        """The newest snapshot; None before the first. The same object as long as nothing new came."""

    def silent_for(self) -> float:
        """Seconds since the hub was last heard while it should speak; 0.0 for a recording or an ended run."""

    def logs(self) -> Log:
        """What the ranks printed, as far as it was written on this machine; always the same object."""

    def stop(self, now: bool = False) -> None:
        """Ask the run to stop; `now` skips the grace. Returns at once."""

    def close(self) -> None:
        """Let go of sockets and threads."""


class FakeSource:
    """A source that holds what a test or a demonstration gives it."""

    def __init__(self, snapshot: Snapshot | None = None, silent: float = 0.0, stoppable: bool = True) -> None:
        self.current = snapshot
        self.silent = silent
        self.stoppable = stoppable
        self.stops: list[bool] = []
        self.said: list[Said] = []
        """What the ranks print next."""
        self.closed = False
        self._log = Log(self._take_said)

    def snapshot(self) -> Snapshot | None:
        return self.current

    def silent_for(self) -> float:
        return self.silent

    def logs(self) -> Log:
        return self._log

    def _take_said(self) -> list[Said]:
        said, self.said = self.said, []
        return said

    def stop(self, now: bool = False) -> None:
        self.stops.append(now)

    def close(self) -> None:
        self.closed = True


class LiveSource:
    """A running run, from its hub. A thread of its own asks for one snapshot after the other.

    It reconnects by itself. If the run ends while no hub answers, what the recording tells takes its place.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._log = Log(Reader(run))
        self._snapshot: Snapshot | None = None
        self._heard_at = time.monotonic()
        self._ended = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._read, name="ddpmon-source", daemon=True)
        self._thread.start()

    @property
    def stoppable(self) -> bool:
        return not self._ended

    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    def silent_for(self) -> float:
        return 0.0 if self._ended else time.monotonic() - self._heard_at

    def logs(self) -> Log:
        return self._log

    def stop(self, now: bool = False) -> None:
        from ddpmon.launch import stop

        stop.request(self._run, now=now)

    def close(self) -> None:
        self._closing.set()
        self._thread.join(2.0)

    def _read(self) -> None:
        context = zmq.Context(io_threads=1)
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 4)
        socket.setsockopt(zmq.RECONNECT_IVL, 100)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        socket.connect(runs.view_address(self._run.id))
        try:
            while not self._closing.is_set() and not self._ended:
                self._ask(socket)
                self._hear(socket)
        finally:
            socket.close()
            context.term()

    def _ask(self, socket: zmq.Socket[bytes]) -> None:
        newest = self._snapshot
        request = Next(newest.version, newest.epoch) if newest else Next()
        try:
            socket.send(encode(request), zmq.NOBLOCK)
        except zmq.Again:
            pass  # earlier requests wait for a hub already

    def _hear(self, socket: zmq.Socket[bytes]) -> None:
        """Wait for the answer to a request; return without one when it is time to ask again."""
        asked_at = time.monotonic()
        while not self._closing.is_set() and time.monotonic() - asked_at < ASK_AGAIN_S:
            if not socket.poll(POLL_MS):
                self._look_for_the_end()
                if self._ended:
                    return
                continue
            try:
                answer = decode_snapshot(socket.recv())
            except WireError:
                continue
            self._heard_at = time.monotonic()
            newest = self._snapshot
            if newest is None or (newest.epoch, newest.version) != (answer.epoch, answer.version):
                self._snapshot = answer
            if answer.state in END_STATES:
                self._ended = True
            return

    def _look_for_the_end(self) -> None:
        """Take the recording if the run ended and its hub is not there to say so."""
        if time.monotonic() - self._heard_at < ASK_AGAIN_S:
            return
        from ddpmon.hub.recording import recorded_snapshot

        try:
            run = runs.load(self._run.id)
            if run.state() == "running" or (run.hub is not None and run.hub.alive()):
                return
            self._snapshot = recorded_snapshot(run)
            self._ended = True
        except (RecordingError, RunNotFoundError):
            return  # the viewer shows how long nobody was heard


class RecordedSource:
    """A run that has ended, as its dashboard stood at the end."""

    stoppable = False

    def __init__(self, run: Run) -> None:
        """Read a run's recording; RecordingError says what is wrong with it."""
        from ddpmon.hub.recording import recorded_snapshot  # numpy with it, which a live run's viewer never needs

        self._snapshot = recorded_snapshot(run)
        self._log = Log(Reader(run))

    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    def silent_for(self) -> float:
        return 0.0

    def logs(self) -> Log:
        return self._log

    def stop(self, now: bool = False) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is held."""


def attach(run: Run) -> Source:
    """Where to get a run's snapshots: its hub while it runs, its recording once it has ended or was lost."""
    return LiveSource(run) if run.state() == "running" else RecordedSource(run)
