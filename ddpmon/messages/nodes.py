"""Messages between the hub of a node and the root hub, over TCP with CURVE.

The node hub sends Join, then Roster, then Bundles, and passes on the requests of its viewers and the output of its
ranks. The root hub sends Joined, Recorded, SendAgain, Locate, FetchOutput, ViewerSnapshot and Stop.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ddpmon.messages.ranks import AskedOfRank, Hello, Key
from ddpmon.messages.view_parts import PrintedView
from ddpmon.messages.vocabulary import MAX_NAME, MAX_WORLD, Micros, Name, Pid, StepCount, StepNumber, require
from ddpmon.messages.wire import decode

LINK = 3
"""Version of the messages between node hubs and the root hub."""
MAX_ITEMS = 65_536
"""Largest number of items in a bundle."""
MAX_SIGNAL, MAX_CODE = 64, 255
"""Largest signal number that can end a process on Linux, and the largest exit code of a process."""
MAX_OUTPUT_LINE_CHARS = 1000
"""Largest number of characters in a line of a rank's output."""
MOST_EVERY_MS = 2000
"""Longest time in milliseconds between two bundles of a node, so that the root soon notices when a node stops
sending."""
MAX_VIEWER = 255
"""Largest number of bytes in the ZeroMQ identity of a viewer's connection."""
OutputLine: TypeAlias = Annotated[str, Meta(max_length=MAX_OUTPUT_LINE_CHARS)]
Viewer: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=MAX_VIEWER)]


class Join(msgspec.Struct, array_like=True, tag="join"):
    """The hub of a node introduces itself. The hub repeats this message until the root answers `Joined`."""

    link: Annotated[int, Meta(ge=LINK, le=LINK)]
    epoch: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
    """Identifies this process of the hub. A new hub process numbers its bundles from 1 again."""
    host: Annotated[str, Meta(max_length=4 * MAX_NAME)]
    key: Key | None = None
    """The hub's own public key, by which the root distinguishes hubs that all connect with the key of the job, or None
    if the hub connects with its own key."""


class Roster(msgspec.Struct, array_like=True, tag="roster"):
    """The Hello of each rank of the node."""

    hellos: Annotated[list[Hello], Meta(max_length=MAX_WORLD)]


class End(msgspec.Struct, array_like=True, frozen=True):
    """How a process ended, according to the logs of its machine."""

    exitcode: Annotated[int, Meta(ge=-MAX_SIGNAL, le=MAX_CODE)] | None
    """Exit code of the process. A negative code is the number of the signal that killed the process. None if torchrun's
    logs do not say."""
    last_line: OutputLine = ""
    """Last line of the process's stderr."""
    first: bool = False
    """True if torchrun reported this process as the first of its ranks on that machine to fail."""


class RankFrame(msgspec.Struct, array_like=True, tag="message"):
    """One message of a rank that the node's hub has checked."""

    pid: Pid
    frame: bytes


class ProcessEnd(msgspec.Struct, array_like=True, tag="ended"):
    """A rank's process has ended."""

    pid: Pid
    left: bool
    """True if the process said Bye before it ended."""
    end: End | None
    """How the process ended, once the run on its node is over."""
    steps: StepCount
    """Number of steps that the process finished, including steps that it could no longer report."""


class Packed(msgspec.Struct, array_like=True, tag="batches"):
    """Batches of several ranks of the node, encoded together; see `recording.node_blocks`."""

    frame: bytes


Item: TypeAlias = RankFrame | ProcessEnd | Packed


class Bundle(msgspec.Struct, array_like=True, tag="bundle"):
    """Messages of a node's ranks since the last bundle. An empty bundle is the node's heartbeat."""

    seq: StepNumber
    """Number of the bundle. Each hub counts its bundles from 1."""
    first: StepNumber
    """Number of the oldest bundle that the node can still send again."""
    now_us: Micros
    """CLOCK_MONOTONIC of the node, in microseconds."""
    dropped: StepCount = 0
    """Number of rank messages that the node has had to discard so far, because the root did not accept them in time."""
    items: Annotated[list[Item], Meta(max_length=MAX_ITEMS)] = msgspec.field(default_factory=list)
    """Messages and exits of the ranks, in the order in which they arrived."""
    stopping: bool = False
    """True if a stop of the run was requested on that node."""
    over: bool = False
    """True if the run has ended on that node, and this bundle or an earlier one contains every message about the run's
    end."""

    def __post_init__(self) -> None:
        require(self.first <= self.seq, "seq", self.seq)


class ViewerRequest(msgspec.Struct, array_like=True, tag="look"):
    """The request of a viewer of the node's hub, passed on to the root."""

    viewer: Viewer
    request: bytes


class Output(msgspec.Struct, array_like=True, tag="output"):
    """Output of a rank of the node, in answer to `FetchOutput`."""

    view: PrintedView

    def __post_init__(self) -> None:
        longest = max((len(line.text) for line in self.view.lines), default=0)
        require(longest <= MAX_OUTPUT_LINE_CHARS, "length of a line", longest)


FromNode: TypeAlias = Join | Roster | Bundle | ViewerRequest | Output


class Joined(msgspec.Struct, array_like=True, tag="joined"):
    """The root hub's answer to `Join`: the root hub has admitted this node."""

    epoch: str
    """Identifies this process of the root hub. A new root process needs every bundle again that was not `Recorded`."""
    host: str
    """The root's name for the host of the node's ranks. It may differ from the host's own name, because two machines
    may have the same name."""
    run_id: Name = ""
    """Id of the root's run, for a node hub that did not know this id."""


class Recorded(msgspec.Struct, array_like=True, tag="taken"):
    """The root has recorded all bundles up to number `seq`. The root repeats this message as its heartbeat."""

    seq: int
    every_ms: Annotated[int, Meta(ge=0, le=MOST_EVERY_MS)] = 0
    """Interval in milliseconds at which the root wants bundles, or 0 to let the node choose. More nodes get a longer
    interval."""


class SendAgain(msgspec.Struct, array_like=True, tag="again"):
    """The root misses bundles, and asks the node to send all bundles again that were not `Recorded`."""

    join: bool = False
    """True if the node must first send `Join` again."""


class Locate(msgspec.Struct, array_like=True, tag="locate"):
    """The root asks a rank of the node for its stack, for samples of the stack, or for a profile."""

    pid: Pid
    request: AskedOfRank


class FetchOutput(msgspec.Struct, array_like=True, tag="fetch"):
    """The root asks for the output of a rank of the node, because a viewer shows it."""

    rank: int


class ViewerSnapshot(msgspec.Struct, array_like=True, tag="shown"):
    """An encoded snapshot for a viewer of the node's hub."""

    viewer: bytes
    snapshot: bytes


class Stop(msgspec.Struct, array_like=True, tag="stop"):
    """The root asks the node's hub to end the run on its node too."""


ToNode: TypeAlias = Joined | Recorded | SendAgain | Locate | FetchOutput | ViewerSnapshot | Stop

_from_node: msgspec.msgpack.Decoder[FromNode] = msgspec.msgpack.Decoder(FromNode)
_to_node: msgspec.msgpack.Decoder[ToNode] = msgspec.msgpack.Decoder(ToNode)


def decode_from_node(frame: bytes) -> FromNode:
    """Decode and check a message of a node's hub, except for the rank messages in a bundle, which stay encoded."""
    return decode(_from_node, frame)


def decode_to_node(frame: bytes) -> ToNode:
    """Decode and check a message of the root hub."""
    return decode(_to_node, frame)
