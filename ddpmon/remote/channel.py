"""Defines the messages between the run's machine and the dashboard's machine over an ssh connection, and their frames.

The run's machine begins with a greeting that marks where ddpmon's output begins, because a login may print text before
the greeting. Then both machines send frames. A frame is four bytes of length and a msgpack message. One zlib stream for
each direction compresses all messages.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from typing import TypeAlias

import msgspec

import ddpmon
from ddpmon.messages import MAX_WORLD, Ask, ViewRequest, WireError
from ddpmon.messages.vocabulary import require
from ddpmon.messages.wire import decode
from ddpmon.runs import Run
from ddpmon.runs.logs import LAUNCHER, STREAMS, Said
from ddpmon.runs.run import check_values

CHANNEL_PROTOCOL = 3
"""Version of the protocol. Two machines with different versions cannot communicate. Added messages and fields do
not change the version."""
GREETING = re.compile(rb"<<ddpmon (\d{1,6}) ([0-9A-Za-z.+!-]{1,64})>>\n")
GREETING_MOST = 1 << 17
"""Largest number of bytes that a login may print before the greeting."""
MAX_MESSAGE_BYTES = 16 << 20
"""Largest size of a message in bytes, compressed or not."""
CREDITS = 2
"""Largest number of unacknowledged snapshots, so that a slow connection gets fewer snapshots and a stopped reader gets
none."""
LINE_HEARTBEAT_S = 1.0
"""Longest interval, in seconds, between two heartbeats of the run's machine."""


class About(msgspec.Struct, array_like=True, tag="about"):
    """First message from the run's machine: the run that it forwards."""

    run_id: str
    name: str
    version: str
    """Version of ddpmon on the run's machine."""


class Remark(msgspec.Struct, array_like=True, tag="sorry"):
    """A message for the user from the run's machine: the reason why a request failed, or news of the source.

    If it is the first message, there is no such run, and the connection ends.
    """

    text: str


class Shot(msgspec.Struct, array_like=True, tag="shot"):
    """A snapshot, encoded as the hub encodes it for viewers: the changes since the previous snapshot
    (`messages.changes`).
    """

    changes: bytes


class Beat(msgspec.Struct, array_like=True, tag="beat"):
    """A heartbeat of the run's machine. Its fields are properties of the source that snapshots do not contain."""

    silent_s: float
    stoppable: bool
    askable: bool


class Printed(msgspec.Struct, array_like=True, tag="printed"):
    """Lines that ranks have printed since the last such message."""

    said: list[Said]


class RunThere(msgspec.Struct, array_like=True):
    """A run of the other machine."""

    run: Run
    state: str
    verdict: str
    verdict_brief: str


class RunsThere(msgspec.Struct, array_like=True, tag="runs"):
    """All runs of the other machine, the latest first."""

    runs: list[RunThere]


class Taken(msgspec.Struct, array_like=True, tag="taken"):
    """Confirms that a snapshot was received and read."""


class Want(msgspec.Struct, array_like=True, tag="want"):
    """Tells the run's machine which parts of snapshots to send from now on, and whether to send output and the list of
    runs.
    """

    view_request: ViewRequest = ViewRequest()
    printed: bool = False
    runs: bool = False


class StopThere(msgspec.Struct, array_like=True, tag="stop"):
    """Requests the end of a run of the other machine."""

    run_id: str
    now: bool = False


FromThere: TypeAlias = About | Remark | Shot | Beat | Printed | RunsThere
FromHere: TypeAlias = Taken | Want | Ask | StopThere
Message: TypeAlias = FromThere | FromHere


def greeting() -> bytes:
    """Return the first line that the run's machine sends. Its initial newline ends any text that the login printed."""
    return f"\n<<ddpmon {CHANNEL_PROTOCOL} {ddpmon.__version__}>>\n".encode()


class Framer:
    """Encodes messages as frames."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(6)

    def frame(self, message: Message) -> bytes:
        """Return a message as a frame. Raise WireError if the message is too large."""
        plain = msgspec.msgpack.encode(message)
        if len(plain) > MAX_MESSAGE_BYTES:  # Checked before the stream compresses it.
            raise WireError(f"a message of {len(plain):,} bytes")
        body = self._stream.compress(plain) + self._stream.flush(zlib.Z_SYNC_FLUSH)
        return struct.pack(">I", len(body)) + body


class Unframer:
    """Extracts the messages, still encoded, from frames."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj()
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes, and return the messages that are now complete. Raise WireError if the bytes are not
        frames.
        """
        self._buffer += data
        messages = []
        while len(self._buffer) >= 4:
            (size,) = struct.unpack_from(">I", self._buffer)
            if size > MAX_MESSAGE_BYTES:
                raise WireError(f"a frame of {size:,} bytes")
            if len(self._buffer) < 4 + size:
                break
            body = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            try:
                message = self._stream.decompress(body, MAX_MESSAGE_BYTES + 1)
            except zlib.error as error:
                raise WireError(f"an invalid frame: {error}") from None
            if len(message) > MAX_MESSAGE_BYTES or self._stream.eof:
                raise WireError("an incomplete message" if not self._stream.eof else "the connection has ended")
            messages.append(message)
        return messages


_from_there: msgspec.msgpack.Decoder[FromThere] = msgspec.msgpack.Decoder(FromThere)
_from_here: msgspec.msgpack.Decoder[FromHere] = msgspec.msgpack.Decoder(FromHere)


def from_there(message: bytes) -> FromThere:
    """Decode a message from the run's machine. Raise WireError if it is invalid, or unknown because ddpmon there is
    newer.
    """
    decoded = decode(_from_there, message)
    if isinstance(decoded, Beat):
        require(0.0 <= decoded.silent_s < math.inf, "silence", decoded.silent_s)
    elif isinstance(decoded, Printed):
        for said in decoded.said:
            require(said.stream in STREAMS, "stream", said.stream[:40])
            require(LAUNCHER <= said.rank < MAX_WORLD, "rank", said.rank)
    elif isinstance(decoded, RunsThere):
        for listed in decoded.runs:
            try:
                check_values(listed.run)
            except ValueError as error:
                raise WireError(f"a run: {error}") from None
    return decoded


def from_here(message: bytes) -> FromHere:
    """Decode a message from the dashboard's machine. Raise WireError if it is unknown or invalid."""
    return decode(_from_here, message)
