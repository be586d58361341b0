"""The near side of one line: messages to and from ddpmon there."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ddpmon.errors import DdpmonError, UnreachableError
from ddpmon.messages import Snapshot, WireError
from ddpmon.messages.changes import changed
from ddpmon.plain import plain
from ddpmon.remote.channel import About, Framer, FromHere, FromThere, Remark, Shot, Unframer, from_there
from ddpmon.remote.ssh_line import Line

_GARBAGE = "the answer does not come from ddpmon; perhaps a login script prints text"


class Conversation:
    """Messages over a line. UnreachableError, with the reason, where the line ends or does not hold."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.version = ""
        """Version of ddpmon there, once it has greeted."""
        self._framer, self._unframer = Framer(), Unframer()
        self._base: Snapshot | None = None
        """The snapshot that the next changes start from."""
        self._unread: list[bytes] = []
        """Messages that came with the first one."""

    def begin(self) -> About:
        """Wait for the login and the first message; DdpmonError if there is no such run there."""
        self.version = self.line.greeted()
        self.line.keep_quiet()
        os.set_blocking(self.line.stdin, False)
        while not self._unread:
            self._unread = self._read()
        first = _decoded(self._unread.pop(0))
        if isinstance(first, Remark):
            raise DdpmonError(f"{self.line.where}: {plain(first.text)}")
        if not isinstance(first, About):
            raise UnreachableError(f"{self.line.where}: {_GARBAGE}")
        return first

    @property
    def pending(self) -> bool:
        """Return whether `messages` can go on without anything new from the line."""
        return bool(self._unread) or self.line.early

    def messages(self) -> Iterator[FromThere]:
        """The messages that came; waits for the first."""
        unread, self._unread = self._unread or self._read(), []
        for encoded in unread:
            message = _decoded(encoded)
            if message is not None:
                yield message

    def send(self, message: FromHere) -> None:
        """Send a message; the line is cut if it does not take it at once."""
        frame = self._framer.frame(message)
        try:
            written = os.write(self.line.stdin, frame)
        except BlockingIOError:
            written = 0
        if written != len(frame):
            self.line.hang_up()
            raise UnreachableError(f"{self.line.where}: the connection accepts no more data")

    def snapshot(self, shot: Shot) -> Snapshot:
        """Return the snapshot that a message makes of the one before."""
        try:
            self._base = changed(self._base, shot.changes)
        except WireError:
            raise self._garbage() from None
        return self._base

    def _read(self) -> list[bytes]:
        data = self.line.read()
        if not data:
            raise UnreachableError(self.line.why())
        try:
            return self._unframer.feed(data)
        except WireError:
            raise self._garbage() from None

    def _garbage(self) -> UnreachableError:
        self.line.hang_up()
        return UnreachableError(f"{self.line.where}: {_GARBAGE}")


def _decoded(message: bytes) -> FromThere | None:
    """None: something that only a newer ddpmon says."""
    try:
        return from_there(message)
    except WireError:
        return None
