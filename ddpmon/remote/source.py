"""The source of a run on another machine, read through ssh, and the list of the runs on that machine.

A background thread reads the messages. If the ssh connection is cut, the thread connects again, after growing pauses.
Until then the last snapshot stays, and `silent_for` returns its age in seconds.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections import deque
from collections.abc import Sequence
from socket import socketpair

import msgspec

import ddpmon
from ddpmon.errors import DdpmonError, UnreachableError
from ddpmon.messages import END_STATES, Ask, Snapshot, ViewRequest
from ddpmon.plain import plain
from ddpmon.remote import channel
from ddpmon.remote.address import Address
from ddpmon.remote.ssh_line import Conversation, Line
from ddpmon.runs import Run
from ddpmon.runs.logs import Log, Said
from ddpmon.source import Source
from ddpmon.source.run_list import Listed, ListedVerdict

PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Seconds before each attempt to connect again. The last value is repeated."""
LASTING_LINE_S = 10.0
"""Seconds that a connection must last to reset the pauses to the first one."""
SILENT_LINE_S = 30.0
"""Seconds without data after which the connection is closed. The run's machine sends a heartbeat every second."""
LOOKED_AT_S = 5.0
"""Seconds without a read of the list of runs, or of the ranks' output, after which the data is no longer requested."""
_POLL_S = 0.25


class RemoteSource:
    """A run on another machine, over ssh."""

    tape = None
    refused = ""
    """Reason for a refused snapshot, which is always "", because the run's machine refuses invalid snapshots before it
    sends them."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.run_id = address.run or ""
        self.run_name = ""
        self._conversation: Conversation | None = None
        """Messages over the ssh connection; None while there is no connection."""
        self._snapshot: Snapshot | None = None
        self._log = Log(self._take_printed)
        self._printed: list[Said] = []
        self._begun_anew = False
        """True after a reconnection, because the output of ranks is then read from the beginning."""
        self._want = channel.Want()
        self._printed_read_at = self._runs_read_at = float("-inf")
        self._listed: list[tuple[Listed, ListedVerdict]] = []
        self._beat = channel.Beat(0.0, False, False)
        self._beat_at = time.monotonic()
        self._trouble = ""
        self._news: deque[str] = deque(maxlen=8)
        self._versions = ""
        """Message to the user that the two machines have different versions of ddpmon; "" if the versions are equal."""
        self._outgoing: deque[channel.FromHere] = deque()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._waking, self._woken = socketpair()
        self._logged_in = False
        self._thread = threading.Thread(target=self._run, name="ddpmon-remote", daemon=True)

    @staticmethod
    def call(address: Address) -> Line:
        """Start to log in. ssh may prompt in the terminal. Raise UnreachableError if ssh is not installed."""
        return Line(address, _words(address.run), unattended=False)

    @classmethod
    def open(cls, address: Address, line: Line) -> RemoteSource:
        """Return the source of a run, once ddpmon on the other machine has found the run.

        Raises:
            UnreachableError: The ssh connection ends, or ddpmon does not answer over it.
            DdpmonError: The error that ddpmon on the other machine reports.

        """
        conversation = Conversation(line)
        try:
            about = conversation.begin()
        except BaseException:
            line.close()
            raise
        source = cls(address)
        source._conversation = conversation
        source._begun(conversation, about)
        source._thread.start()
        return source

    @classmethod
    def beside(cls, address: Address) -> RemoteSource:
        """Return the source of a run on another machine without waiting for the login. A thread logs in, and cannot ask
        for a password.
        """
        source = cls(address)
        source._thread.start()
        return source

    # --- interface of every source ---

    @property
    def stoppable(self) -> bool:
        return self._beat.stoppable

    @property
    def askable(self) -> bool:
        return self._beat.askable

    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    def request_view(self, view_request: ViewRequest) -> None:
        if view_request != self._want.view_request:
            self._change_want(view_request=view_request)

    def silent_for(self) -> float:
        if self._snapshot is not None and self._snapshot.state in END_STATES:
            return 0.0
        since = time.monotonic() - self._beat_at
        return since if since > 2 * channel.LINE_HEARTBEAT_S else self._beat.silent_s

    def trouble(self) -> str:
        """Return the reason why the connection is lost; "" if it is not."""
        if self._trouble:
            return self._trouble
        if time.monotonic() - self._beat_at > 2 * channel.LINE_HEARTBEAT_S:
            return f"no data from {self.address.where}"
        return ""

    def news(self) -> str:
        return self._news.popleft() if self._news else ""

    def logs(self) -> Log:
        return self._log

    def ask(self, ranks: Sequence[int] = (), profile_steps: int = 0, peak_flops: float = 0.0) -> None:
        self._send(Ask(list(ranks), profile_steps, peak_flops))

    def stop(self, now: bool = False) -> None:
        self.stop_there(self.run_id, now)

    def close(self) -> None:
        self._closing.set()
        self._wake()
        with self._lock:
            conversation = self._conversation
        if conversation is not None and not self._logged_in:
            conversation.line.hang_up()  # The login may never finish.
        self._thread.join(5.0)
        self._waking.close()
        self._woken.close()

    # --- runs of the other machine, for `RemotePlace` ---

    def stop_there(self, run_id: str, now: bool) -> None:
        """Ask a run of the other machine to stop. Raise UnreachableError while there is no connection."""
        if self._trouble:
            raise UnreachableError(f"ddpmon did not stop the run: {self._trouble}")
        self._send(channel.StopThere(run_id, now))

    def runs(self) -> list[tuple[Listed, ListedVerdict]]:
        """Return the runs of the other machine, the latest first, each with its verdict.

        The other machine sends the list only while this method is called at least every `LOOKED_AT_S` seconds.
        """
        self._runs_read_at = time.monotonic()
        if not self._want.runs:
            self._change_want(runs=True)
        return self._listed

    # --- the thread that reads messages ---

    def _take_printed(self) -> list[Said]:
        self._printed_read_at = time.monotonic()
        if not self._want.printed:
            self._change_want(printed=True)
        with self._lock:
            printed, self._printed = self._printed, []
            if self._begun_anew:
                self._begun_anew = False
                self._log.clear()
        return printed

    def _change_want(self, **changes: object) -> None:
        self._want = msgspec.structs.replace(self._want, **changes)
        self._send(self._want)

    def _send(self, message: channel.FromHere) -> None:
        self._outgoing.append(message)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waking.send(b".")

    def _run(self) -> None:
        tries = 0
        while not self._closing.is_set():
            began = time.monotonic()
            try:
                conversation = self._conversation or self._connect()
                self._trouble = ""
                self._pump(conversation)
            except (DdpmonError, OSError) as error:
                self._trouble = plain(str(error))
            self._drop()
            tries = 0 if time.monotonic() - began > LASTING_LINE_S else tries
            self._closing.wait(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
            tries += 1
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            conversation, self._conversation = self._conversation, None
        self._outgoing.clear()
        self._logged_in = False
        if conversation is not None:
            conversation.line.close()

    def _connect(self) -> Conversation:
        """Log in again to the same run, and request the same parts of snapshots as before."""
        conversation = Conversation(Line(self.address, _words(self.run_id or None), unattended=True))
        with self._lock:
            self._conversation = conversation
        if self._closing.is_set():
            raise UnreachableError("the dashboard no longer needs this answer")
        self._begun(conversation, conversation.begin())
        with self._lock:
            self._printed, self._begun_anew = [], True
        self._send(self._want)
        return conversation

    def _begun(self, conversation: Conversation, about: channel.About) -> None:
        self.run_id, self.run_name = about.run_id, plain(about.name)
        self._beat_at = time.monotonic()
        self._logged_in = True
        self._versions = ""
        if conversation.version != ddpmon.__version__:
            self._versions = (
                f"{self.address.where} has ddpmon {conversation.version}, and this machine has ddpmon "
                f"{ddpmon.__version__}; the dashboard shows only what both versions support"
            )
            self._news.append(self._versions)

    def _pump(self, conversation: Conversation) -> None:
        """Exchange messages until the source is closed. Raise UnreachableError if the connection ends first."""
        line = conversation.line
        heard_at = time.monotonic()
        while not self._closing.is_set():
            self._drop_unused_wants(time.monotonic())
            while self._outgoing:
                conversation.send(self._outgoing.popleft())
            wait_s = 0.0 if conversation.pending else _POLL_S
            ready = select.select([line.stdout, self._woken.fileno()], [], [], wait_s)[0]
            if self._woken.fileno() in ready:
                self._woken.recv(4096)
            if conversation.pending or line.stdout in ready:
                for message in conversation.messages():
                    self._take(conversation, message)
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > SILENT_LINE_S:
                line.hang_up()
                raise UnreachableError(f"{line.where}: no data for {SILENT_LINE_S:.0f} s")

    def _drop_unused_wants(self, now: float) -> None:
        printed = self._want.printed and now - self._printed_read_at < LOOKED_AT_S
        runs = self._want.runs and now - self._runs_read_at < LOOKED_AT_S
        if (printed, runs) != (self._want.printed, self._want.runs):
            self._change_want(printed=printed, runs=runs)

    def _take(self, conversation: Conversation, message: channel.FromThere) -> None:
        if isinstance(message, channel.Beat):
            self._beat, self._beat_at = message, time.monotonic()
        elif isinstance(message, channel.Shot):
            conversation.send(channel.Taken())
            shot = conversation.snapshot(message)
            if self._versions:
                shot = msgspec.structs.replace(shot, notes=[self._versions, *shot.notes])
            self._snapshot = shot
        elif isinstance(message, channel.Printed):
            with self._lock:
                self._printed += [
                    Said(each.rank, each.stream, [plain(text) for text in each.lines]) for each in message.said
                ]
        elif isinstance(message, channel.RunsThere):
            self._listed = [
                (Listed(each.run, each.state), ListedVerdict(each.verdict, each.verdict_brief)) for each in message.runs
            ]
        elif isinstance(message, channel.Remark):
            self._news.append(f"{self.address.where}: {plain(message.text)}")


def _words(run: str | None) -> list[str]:
    return ["_relay", *([] if run is None else [run])]


class RemotePlace:
    """The machine of a remote run, with all its runs, over the ssh connection of that run's source."""

    def __init__(self, source: RemoteSource) -> None:
        self._source = source

    @property
    def name(self) -> str:
        return self._source.address.where

    def read(self) -> list[Listed]:
        return [listed for listed, _ in self._source.runs()]

    def verdict(self, listed: Listed) -> ListedVerdict:
        return next(
            (reported for each, reported in self._source.runs() if each.run.id == listed.run.id), ListedVerdict()
        )

    def attach(self, run: Run) -> Source:
        return RemoteSource.beside(self._source.address.of(run.id))

    def stop(self, run: Run, now: bool) -> None:
        self._source.stop_there(run.id, now)
