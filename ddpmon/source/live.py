"""The source of a run on this machine: the hub's snapshots and the ranks' output or, after the run's end, the
recording.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import groupby
from socket import socketpair

import zmq

from ddpmon import runs
from ddpmon.errors import DdpmonError, RecordingError, RunNotFoundError, UnsafePathError
from ddpmon.messages import END_STATES, Ask, Next, Snapshot, ViewRequest, WireError, encode, validated_snapshot
from ddpmon.messages.changes import LARGEST_BYTES, apply_changes
from ddpmon.messages.guarded_socket import GuardedSocket, folder_problem
from ddpmon.plain import plain
from ddpmon.runs import Run
from ddpmon.runs.logs import Log, Reader, Said
from ddpmon.source.protocol import LocalSource


class RankLog:
    """The output of all ranks: lines of log files on this machine, and lines that the hub sent from other machines.

    Viewers read the output from `log`. The source's thread passes each snapshot of the hub to `take`.
    """

    def __init__(self, run: Run) -> None:
        self.log = Log(self._read)
        self._host = run.host
        self._reader = Reader(run)
        self._here: set[int] = set()
        """Ranks whose log files are on this machine."""
        self._came: deque[Said] = deque()
        self._totals: dict[int, int] = {}
        """By rank: the number of output lines that the hub had read, according to the last snapshot that added
        lines."""

    def _read(self) -> list[Said]:
        said = self._reader()
        self._here.update(each.rank for each in said)
        while self._came:
            said.append(self._came.popleft())
        return said

    def take(self, shot: Snapshot) -> None:
        """Append the snapshot's new lines of output, if these lines belong to a rank on another machine."""
        view = shot.printed
        if view is None or not view.lines or view.rank in self._here or view.rank >= len(shot.ranks):
            return
        if shot.ranks[view.rank].host == self._host:
            return
        before = self._totals.get(view.rank, 0)
        new = view.total - before if view.total >= before else view.total  # the hub's count restarted
        if new <= 0:
            return
        self.log.elsewhere.add(view.rank)
        self._totals[view.rank] = view.total
        if new > len(view.lines):
            self._came.append(Said(view.rank, view.lines[0].stream, [f"… {new - len(view.lines):,} earlier lines"]))
        for stream, lines in groupby(view.lines[-new:], key=lambda line: line.stream):
            said = [plain(line.text) for line in lines]
            self._came.append(Said(view.rank, stream if stream in {"out", "err"} else "launcher", said))


POLL_MS = 250
ASK_AGAIN_S = 3.0
"""Seconds without an answer after which a request is repeated. A live hub answers every second, so a request without an
answer was lost."""
SEE_TO_S = 5.0
"""Seconds between two checks whether the run's supervisor is alive."""


class LiveSource(LocalSource):
    """The source of a running run. Its own thread requests one snapshot after another from the hub.

    The thread reconnects after a failure. If the run ends while no hub answers, the last snapshot comes from the
    recording.
    """

    tape = None

    def __init__(self, run: Run) -> None:
        """Start the thread that requests snapshots.

        Raises:
            UnsafePathError: Another user could have created the sockets and answer in the hub's place.

        """
        folder = runs.socket_dir(run.id)
        if why := folder_problem(str(folder)) or folder_problem(os.path.realpath(folder.parent)):
            raise UnsafePathError(
                f"{why}, so ddpmon does not use it for sockets; remove the folder, or set "
                "DDPMON_RUNTIME_DIR to another folder"
            )
        self._run = run
        self._output = RankLog(run)
        self._snapshot: Snapshot | None = None
        self._base: Snapshot | None = None
        """The hub's last snapshot, against which the hub sends the changes."""
        self.refused = ""
        self._view_request = self._sent_request = self._answered_request = ViewRequest()
        """Three requests: the parts that the viewer needs now, the parts in the last request that was sent, and the
        parts in the last answer."""
        self._heard_at = self._see_to_at = time.monotonic()
        self._ended = False
        self._questions: deque[Ask] = deque()
        self._news: deque[str] = deque()
        self._asking, self._asked_for = socketpair()
        """A pair of connected sockets. A byte sent to the first socket wakes the thread, which polls the second
        socket."""
        self._asking.setblocking(False)  # once the run has ended, nobody reads these bytes
        self._closing = threading.Event()
        self._view_requested = threading.Event()
        self._thread = threading.Thread(target=self._read, name="ddpmon-source", daemon=True)
        self._thread.start()

    @property
    def stoppable(self) -> bool:
        return not self._ended

    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    def request_view(self, view_request: ViewRequest) -> None:
        if view_request != self._view_request:
            self._view_request = view_request
            self._view_requested.set()
            self._wake()

    @property
    def askable(self) -> bool:
        return not self._ended

    def ask(self, ranks: Sequence[int] = (), profile_steps: int = 0, peak_flops: float = 0.0) -> None:
        if not self._ended:
            self._questions.append(Ask(list(ranks), profile_steps, peak_flops))
            self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # the socket is closed, or full of unread bytes
            self._asking.send(b".")

    def silent_for(self) -> float:
        return 0.0 if self._ended else time.monotonic() - self._heard_at

    def news(self) -> str:
        return self._news.popleft() if self._news else ""

    def logs(self) -> Log:
        return self._output.log

    def stop(self, now: bool = False) -> None:
        from ddpmon.launch import stop

        stop.request_stop(self._run, now=now)

    def close(self) -> None:
        self._closing.set()
        self._view_requested.set()
        self._wake()
        self._thread.join(2.0)
        self._asking.close()
        self._asked_for.close()

    def _read(self) -> None:
        context = zmq.Context(io_threads=1)
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, 4)
        socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_BYTES)
        socket.setsockopt(zmq.RECONNECT_IVL, 100)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        self._door = GuardedSocket(socket, runs.view_address(self._run.id))
        self._poller = zmq.Poller()
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(self._asked_for, zmq.POLLIN)
        try:
            while not self._closing.is_set() and not self._ended:
                self._see_to_the_run()
                self._ask(socket)
                self._hear(socket)
        finally:
            self._door.close()
            socket.close()
            context.term()
        self._grant_from_the_recording()

    def _grant_from_the_recording(self) -> None:
        """Add requested parts to the snapshot from the recording, because no hub answers once the run has ended."""
        from ddpmon.recording.recorded import recorded_state
        from ddpmon.store.parts import with_parts

        store = None
        while not self._closing.is_set():
            self._view_requested.clear()
            if self._view_request != self._answered_request and self._snapshot is not None:
                try:
                    store = store or recorded_state(runs.load(self._run.id))[1]
                except (RecordingError, RunNotFoundError):
                    return
                self._answered_request = self._view_request
                with contextlib.suppress(WireError):  # the previous snapshot stays on the screen
                    self._snapshot = validated_snapshot(with_parts(self._snapshot, store, self._answered_request))
            self._view_requested.wait()

    def _see_to_the_run(self) -> None:
        """If the run's supervisor was killed, start another one, so that the run's end is recorded, and show the user a
        message.
        """
        from ddpmon.launch.adoption import adopt_run

        if time.monotonic() < self._see_to_at:
            return
        self._see_to_at = time.monotonic() + SEE_TO_S
        with contextlib.suppress(DdpmonError):  # the next command reports the error
            if runs.load(self._run.id).lost():
                adopt_run(self._run, self._news.append)

    def _ask(self, socket: zmq.Socket[bytes]) -> None:
        self._door.reconnect()
        newest = self._snapshot
        self._sent_request = self._view_request
        answered = newest is not None and self._sent_request == self._answered_request
        epoch = newest.epoch if newest else ""
        base = self._base.version if self._base and self._base.epoch == epoch else 0
        request = Next(newest.version if newest and answered else 0, epoch, self._sent_request, base)
        try:
            socket.send(encode(request), zmq.NOBLOCK)
        except zmq.Again:
            pass  # earlier requests are still queued for the hub

    def _pass_on(self, socket: zmq.Socket[bytes]) -> None:
        """Send the user's queued requests for stacks and profiles to the hub. Drop requests that cannot be sent,
        because no code waits for their answers.
        """
        while self._questions:
            with contextlib.suppress(zmq.Again):
                socket.send(encode(self._questions.popleft()), zmq.NOBLOCK)

    def _hear(self, socket: zmq.Socket[bytes]) -> None:
        """Wait for the answer to a request. Return without an answer when it is time to repeat the request."""
        asked_at = time.monotonic()
        while not self._closing.is_set() and time.monotonic() - asked_at < ASK_AGAIN_S:
            ready = dict(self._poller.poll(POLL_MS))
            if self._asked_for.fileno() in ready:
                self._asked_for.recv(4096)
                self._pass_on(socket)
                if self._view_request != self._sent_request:
                    return  # the new request gets an answer at once
            if socket not in ready:
                if ready:
                    continue
                self._check_for_the_end()
                if self._ended:
                    return
                continue
            try:
                frame = socket.recv()
                answer = apply_changes(self._base, frame)
            except WireError as error:
                self._base = None  # without a base, the next answer is a whole snapshot
                self.refused = f"the hub sent an invalid value: {error}"
                continue
            self._heard_at, self._base = time.monotonic(), answer
            self.refused = ""
            newest = self._snapshot
            same = newest is not None and (newest.epoch, newest.version) == (answer.epoch, answer.version)
            # The answer to an earlier request may arrive after a new request was sent. The answer to the new request
            # then has the same version.
            if not same or self._sent_request != self._answered_request or answer != newest:
                self._snapshot = answer
            self._answered_request = self._sent_request
            self._output.take(answer)
            if answer.state == "lost":  # the hub saw all processes end, but not how the run ended
                self._take_the_recording()
                self._ended = self._run_is_over()
            elif answer.state in END_STATES:
                self._ended = True
            return

    def _check_for_the_end(self) -> None:
        """Show the recording if the run has ended and its hub can no longer report the end."""
        if time.monotonic() - self._heard_at >= ASK_AGAIN_S:
            self._take_the_recording()

    def _run_is_over(self) -> bool:
        try:
            return runs.load(self._run.id).state() != "running"
        except RunNotFoundError:
            return True

    def _take_the_recording(self) -> None:
        from ddpmon.recording.recorded import recorded_snapshot

        try:
            if runs.load(self._run.id).lost():
                self._see_to_at = 0.0
                self._see_to_the_run()
            run = runs.load(self._run.id)
            if run.state() == "running" or (run.hub is not None and run.hub.alive()):
                return
            self._snapshot, self._answered_request = validated_snapshot(recorded_snapshot(run)), ViewRequest()
            self._ended, self.refused = True, ""
        except (RecordingError, RunNotFoundError, WireError):
            return  # the viewer shows for how long the hub has been silent
