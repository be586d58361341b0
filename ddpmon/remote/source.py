"""The near side of a line: a source whose run is on another machine.

A thread of its own reads what comes. A line that is cut comes back by itself, after pauses that grow; until then the
last snapshot stays, and `silent_for` says how old it is.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Sequence
from socket import socketpair

import msgspec

import ddpmon
from ddpmon.errors import DdpmonError, UnreachableError
from ddpmon.messages import END_STATES, Snapshot, WireError, Wish
from ddpmon.plain import plain
from ddpmon.remote.address import Address
from ddpmon.remote.channel import (
    BEAT_S,
    About,
    AskThere,
    Beat,
    Framer,
    FromHere,
    FromThere,
    Printed,
    RunsThere,
    Shot,
    Sorry,
    StopThere,
    Taken,
    Unframer,
    Want,
    from_there,
)
from ddpmon.remote.deltas import Patcher
from ddpmon.remote.line import Line
from ddpmon.runs.logs import Log, Said
from ddpmon.source.listed import Listed, Verdict

PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Before each new try, the last one again and again."""
HELD_S = 10.0
"""After a line that held so long the pauses begin anew."""
GIVE_UP_S = 30.0
"""A line on which nothing came for so long is cut: a beat is due every second."""
LOOKED_AT_S = 5.0
"""What was not read for so long is not looked at any more."""
_POLL_S = 0.25


class RemoteSource:
    """A run on another machine, over ssh."""

    tape = None
    refused = ""
    """What cannot be a snapshot is refused there, where the hub is."""

    def __init__(self, address: Address, line: Line | None = None) -> None:
        """line: an open one that has greeted; without one it logs in by itself, and never asks for a password."""
        self.address = address
        self.run_id = address.run or ""
        self.run_name = ""
        self._line = line
        self._snapshot: Snapshot | None = None
        self._log = Log(self._take_printed)
        self._printed: list[Said] = []
        self._begun_anew = False
        """The line came back: what ranks print is read from the beginning."""
        self._want = Want()
        self._printed_read_at = self._runs_read_at = float("-inf")
        self._listed: list[tuple[Listed, Verdict]] = []
        self._beat = Beat(0.0, False, False)
        self._beat_at = time.monotonic()
        self._trouble = ""
        self._news: deque[str] = deque(maxlen=8)
        self._version = ""
        self._outgoing: deque[FromHere] = deque()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._waking, self._woken = socketpair()
        self._logged_in = False
        self._thread = threading.Thread(target=self._run, name="ddpmon-remote", daemon=True)

    @staticmethod
    def call(address: Address) -> Line:
        """Begin to log in; ssh asks in the terminal for what it wants to know. UnreachableError: there is no ssh."""
        return Line(address, _words(address.run), unattended=False)

    @classmethod
    def open(cls, address: Address, line: Line) -> RemoteSource:
        """The run at the other end of a line that was called, once it is found there.

        UnreachableError, or whatever ddpmon there has to say against it.
        """
        try:
            version = line.greeted()
            line.keep_quiet()
            source = cls(address, line)
            source._version = version
            source._hear_about(line)
        except BaseException:
            line.close()
            raise
        source._thread.start()
        return source

    @classmethod
    def beside(cls, address: Address) -> RemoteSource:
        """Another run of a machine that lets one in without being asked; returns at once."""
        source = cls(address)
        source._thread.start()
        return source

    # --- what viewers ask for ---

    @property
    def stoppable(self) -> bool:
        return self._beat.stoppable

    @property
    def askable(self) -> bool:
        return self._beat.askable

    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    def wish(self, wish: Wish) -> None:
        if wish != self._want.wish:
            self._change_want(wish=wish)

    def silent_for(self) -> float:
        if self._snapshot is not None and self._snapshot.state in END_STATES:
            return 0.0
        since = time.monotonic() - self._beat_at
        return since if since > 2 * BEAT_S else self._beat.silent_s

    def trouble(self) -> str:
        """Why nothing is heard, where that is the line's fault."""
        if self._trouble:
            return self._trouble
        if time.monotonic() - self._beat_at > 2 * BEAT_S:
            return f"nothing comes from {self.address.where}"
        return ""

    def news(self) -> str:
        return self._news.popleft() if self._news else ""

    def logs(self) -> Log:
        return self._log

    def ask(self, ranks: Sequence[int] = ()) -> None:
        self._send(AskThere(list(ranks)))

    def stop(self, now: bool = False) -> None:
        self.stop_there(self.run_id, now)

    def close(self) -> None:
        self._closing.set()
        self._wake()
        with self._lock:
            line = self._line
        if line is not None and not self._logged_in:
            line.hang_up()  # whose login may never come
        self._thread.join(5.0)
        self._waking.close()
        self._woken.close()

    # --- what the place of this source asks for ---

    def stop_there(self, run_id: str, now: bool) -> None:
        """Ask a run there to stop; UnreachableError while there is no line."""
        if self._trouble:
            raise UnreachableError(f"nothing was stopped: {self._trouble}")
        self._send(StopThere(run_id, now))

    def runs(self) -> list[tuple[Listed, Verdict]]:
        """The runs there, the latest first, with what is to be said of each; they come as long as this is asked."""
        self._runs_read_at = time.monotonic()
        if not self._want.runs:
            self._change_want(runs=True)
        return self._listed

    # --- the thread ---

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

    def _send(self, message: FromHere) -> None:
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
                line = self._line or self._connect()
                self._trouble = ""
                self._pump(line)
            except (DdpmonError, OSError) as error:
                self._trouble = plain(str(error))
            self._drop()
            tries = 0 if time.monotonic() - began > HELD_S else tries
            self._closing.wait(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
            tries += 1
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            line, self._line = self._line, None
        self._outgoing.clear()
        self._logged_in = False
        if line is not None:
            line.close()

    def _connect(self) -> Line:
        """Log in again, to the same run, and ask for what was looked at."""
        line = Line(self.address, _words(self.run_id or None), unattended=True)
        with self._lock:
            self._line = line
        if self._closing.is_set():
            raise UnreachableError("not needed any more")
        self._version = line.greeted()
        self._hear_about(line)
        with self._lock:
            self._printed, self._begun_anew = [], True
        self._send(self._want)
        return line

    def _hear_about(self, line: Line) -> None:
        """Take the first message of a line; DdpmonError if there is no such run there."""
        self._framer, self._unframer, self._patcher = Framer(), Unframer(), Patcher()
        self._first: list[bytes] = []
        while not self._first:
            data = line.read()
            if not data:
                raise UnreachableError(line.why())
            self._first = self._messages(line, data)
        about = self._decoded(line, self._first.pop(0))
        if isinstance(about, Sorry):
            raise DdpmonError(f"{self.address.where}: {plain(about.text)}")
        if not isinstance(about, About):
            raise UnreachableError(f"{line.where}: {_GARBAGE}")
        self.run_id, self.run_name = about.run_id, plain(about.name)
        self._beat_at = time.monotonic()
        self._logged_in = True
        if self._version != ddpmon.__version__:
            self._news.append(self._versions())

    def _versions(self) -> str:
        machine = self.address.where
        return (
            f"{machine} has ddpmon {self._version}, this is {ddpmon.__version__}: what one of them lacks is not shown"
        )

    def _pump(self, line: Line) -> None:
        """Read and write until the line ends; UnreachableError says why."""
        os.set_blocking(line.stdin, False)
        for message in self._first:
            self._take(line, message)
        heard_at = time.monotonic()
        while not self._closing.is_set():
            self._drop_unused_wants(time.monotonic())
            while self._outgoing:
                self._write(line, self._outgoing.popleft())
            ready = select.select([line.stdout, self._woken.fileno()], [], [], 0.0 if line.early else _POLL_S)[0]
            if self._woken.fileno() in ready:
                self._woken.recv(4096)
            if line.early or line.stdout in ready:
                data = line.read()
                if not data:
                    raise UnreachableError(line.why())
                heard_at = time.monotonic()
                for message in self._messages(line, data):
                    self._take(line, message)
            elif time.monotonic() - heard_at > GIVE_UP_S:
                line.hang_up()
                raise UnreachableError(f"{line.where}: nothing came for {GIVE_UP_S:.0f} s")

    def _drop_unused_wants(self, now: float) -> None:
        printed = self._want.printed and now - self._printed_read_at < LOOKED_AT_S
        runs = self._want.runs and now - self._runs_read_at < LOOKED_AT_S
        if (printed, runs) != (self._want.printed, self._want.runs):
            self._change_want(printed=printed, runs=runs)

    def _write(self, line: Line, message: FromHere) -> None:
        frame = self._framer.frame(message)
        try:
            written = os.write(line.stdin, frame)
        except BlockingIOError:
            written = 0
        if written != len(frame):
            line.hang_up()
            raise UnreachableError(f"{line.where}: the line takes nothing more")

    def _messages(self, line: Line, data: bytes) -> list[bytes]:
        try:
            return self._unframer.feed(data)
        except WireError:
            line.hang_up()
            raise UnreachableError(f"{line.where}: {_GARBAGE}") from None

    def _decoded(self, line: Line, message: bytes) -> FromThere | None:
        """None: something that only a newer ddpmon says."""
        try:
            return from_there(message)
        except WireError:
            return None

    def _take(self, line: Line, encoded: bytes) -> None:
        message = self._decoded(line, encoded)
        if isinstance(message, Beat):
            self._beat, self._beat_at = message, time.monotonic()
        elif isinstance(message, Shot):
            self._write(line, Taken())
            try:
                shot = self._patcher.take(message.patch)
            except WireError:
                line.hang_up()
                raise UnreachableError(f"{line.where}: {_GARBAGE}") from None
            self._snapshot = self._with_version(shot)
        elif isinstance(message, Printed):
            with self._lock:
                self._printed += [
                    Said(each.rank, each.stream, [plain(text) for text in each.lines]) for each in message.said
                ]
        elif isinstance(message, RunsThere):
            self._listed = [
                (Listed(each.run, each.state), Verdict(each.verdict, each.verdict_brief or each.verdict))
                for each in message.runs
            ]
        elif isinstance(message, Sorry):
            self._news.append(f"{self.address.where}: {plain(message.text)}")

    def _with_version(self, shot: Snapshot) -> Snapshot:
        if self._version == ddpmon.__version__:
            return shot
        return msgspec.structs.replace(shot, notes=[self._versions(), *shot.notes])


_GARBAGE = "what comes from there is not ddpmon's (does a login print in the background?)"


def _words(run: str | None) -> list[str]:
    return ["_relay", *([] if run is None else [run])]
