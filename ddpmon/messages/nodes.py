"""Messages between the hub of a node and the root hub, over TCP with CURVE.

The node hub sends Join, then Roster, then Bundles, and passes on the requests of its viewers and the output of its
ranks. The root hub sends Joined, Recorded, SendAgain, Locate, FetchOutput, ViewerSnapshot and Stop.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ddpmon.messages.profiles import MAX_PROFILED_STEPS, PeakFlops, ProfileSteps
from ddpmon.messages.ranks import AskedOfRank, Hello, Where
from ddpmon.messages.snapshots import check_printed
from ddpmon.messages.stack_samples import MAX_SAMPLED_S, SampleStacks
from ddpmon.messages.view_parts import PrintedView
from ddpmon.messages.vocabulary import MAX_NAME, MAX_STEP, MAX_US, MAX_WORLD
from ddpmon.messages.wire import WireError, check_hello, decode, is_key

LINK = 2
"""Version of the messages in this file."""
MAX_ITEMS = 65_536
"""Largest number of items in a bundle."""
MAX_SIGNAL, MAX_CODE = 64, 255
"""Largest signal number that can end a process on Linux, and its largest exit code."""
MAX_OUTPUT_LINE_CHARS = 1000
"""Largest number of characters in a line of a rank's output."""
MOST_EVERY_MS = 2000
"""Longest time between two bundles of a node, so that the root soon notices when a node is gone."""
MAX_VIEWER = 255
"""Largest number of bytes in the ZeroMQ identity of a viewer's connection."""


class Join(msgspec.Struct, array_like=True, tag="join"):
    """The hub of a node introduces itself. It repeats this message until the root answers `Joined`."""

    link: int
    epoch: str
    """Identifies this process of the hub: a new one numbers its bundles from 1 again."""
    host: str
    key: str = ""
    """The hub's own public key, by which the root distinguishes hubs that all connect with the key of the job. It is
    "" if the hub connects with its own key."""


class Roster(msgspec.Struct, array_like=True, tag="roster"):
    """The Hello of each rank of the node."""

    hellos: list[Hello]


class End(msgspec.Struct, array_like=True, frozen=True):
    """How a process ended, according to the logs of its machine."""

    exitcode: int | None
    """Exit code of the process. A negative one is the signal that killed it; None if torchrun's logs do not tell."""
    last_line: str = ""
    """Last line of its stderr."""
    first: bool = False
    """True if torchrun reported it as the first of its ranks on that machine to fail."""


class Item(msgspec.Struct, array_like=True):
    """One message of a rank that the node's hub has checked, or the news that a rank's process has ended."""

    pid: int
    frame: bytes
    """A message of the rank; empty if the item says that the process has ended."""
    left: bool = False
    """True if the process said Bye before it ended."""
    end: End | None = None
    """How the process ended, once the run on its node is over."""
    steps: int = 0
    """Number of steps that an ended process finished, including those that it could no longer report."""


class Packed(msgspec.Struct, array_like=True):
    """Batches of several ranks of the node, encoded together; see `recording.node_blocks`."""

    place: int
    """Index of the item of the bundle before which the block was received."""
    block: bytes


class Bundle(msgspec.Struct, array_like=True, tag="bundle"):
    """Messages of a node's ranks since the last bundle; an empty one is the node's heartbeat."""

    seq: int
    """Number of the bundle. Each hub counts its bundles from 1."""
    first: int
    """Number of the oldest bundle that the node can still send again."""
    now_us: int
    """CLOCK_MONOTONIC of the node, in microseconds."""
    dropped: int = 0
    """Number of rank messages that the node has had to discard so far, because the root did not accept them in time."""
    items: list[Item] = msgspec.field(default_factory=list)
    stopping: bool = False
    """True if a stop of the run was requested on that node."""
    over: bool = False
    """True if the run has ended on that node, and this bundle or an earlier one holds everything about its end."""
    blocks: list[Packed] = msgspec.field(default_factory=list)
    """Steps and samples of the ranks."""


class ViewerRequest(msgspec.Struct, array_like=True, tag="look"):
    """The request of a viewer of the node's hub, passed on to the root."""

    viewer: bytes
    request: bytes


class Output(msgspec.Struct, array_like=True, tag="output"):
    """Output of a rank of the node, in answer to `FetchOutput`."""

    view: PrintedView


FromNode: TypeAlias = Join | Roster | Bundle | ViewerRequest | Output


class Joined(msgspec.Struct, array_like=True, tag="joined"):
    """The root hub's answer to `Join`: it has admitted this node."""

    epoch: str
    """Identifies this process of the root: a new one needs every bundle again that was not `Recorded`."""
    host: str
    """Name by which the root calls the host of the node's ranks, since two machines may have the same name."""
    run_id: str = ""
    """Id of the root's run, for a hub that did not know it."""


class Recorded(msgspec.Struct, array_like=True, tag="taken"):
    """The root has recorded all bundles up to `seq`. It repeats this message as its heartbeat."""

    seq: int
    every_ms: int = 0
    """Interval at which the root wants bundles, longer the more nodes there are, or 0 to let the node choose."""


class SendAgain(msgspec.Struct, array_like=True, tag="again"):
    """The root misses bundles and asks the node to send all again that were not `Recorded`."""

    join: bool = False
    """True if the node must first send `Join` again."""


class Locate(msgspec.Struct, array_like=True, tag="locate"):
    """The root asks a rank of the node for its stack, for samples of the stack, or for a profile."""

    pid: int
    brief: bool = False
    seconds: Annotated[float, Meta(ge=0, le=MAX_SAMPLED_S)] = 0.0
    """Time for which the rank samples its stack, or 0 if it sends one stack only."""
    steps: Annotated[int, Meta(ge=0, le=MAX_PROFILED_STEPS)] = 0
    """Number of steps to profile, after a step that ends within `seconds`, or 0 if no profile is wanted."""
    peak_flops: PeakFlops = 0.0

    @classmethod
    def from_request(cls, pid: int, request: AskedOfRank) -> Locate:
        """Return the message that passes a request on to the process `pid`."""
        if isinstance(request, Where):
            return cls(pid, request.brief)
        if isinstance(request, ProfileSteps):
            return cls(pid, seconds=request.seconds, steps=request.steps, peak_flops=request.peak_flops)
        return cls(pid, seconds=request.seconds)

    @property
    def request(self) -> AskedOfRank:
        """Return the request to pass on to the rank."""
        if self.steps and self.seconds:
            return ProfileSteps(self.steps, self.seconds, self.peak_flops)
        return SampleStacks(self.seconds) if self.seconds else Where(self.brief)


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
    message = decode(_from_node, frame)
    if isinstance(message, Join):
        _check(message.link == LINK, "version", message.link)
        _check(
            0 < len(message.epoch) <= MAX_NAME and len(message.host) <= 4 * MAX_NAME, "join", message.epoch[:MAX_NAME]
        )
        _check(not message.key or is_key(message.key), "key", message.key[:MAX_NAME])
    elif isinstance(message, Roster):
        _check(len(message.hellos) <= MAX_WORLD, "ranks of a node", len(message.hellos))
        for hello in message.hellos:
            check_hello(hello)
    elif isinstance(message, Bundle):
        _check(0 < message.first <= message.seq < MAX_STEP, "seq", message.seq)
        _check(0 <= message.now_us < MAX_US and 0 <= message.dropped < MAX_STEP, "now_us", message.now_us)
        _check(len(message.items) <= MAX_ITEMS, "messages in a bundle", len(message.items))
        _check(all(0 < item.pid <= 1 << 22 for item in message.items), "pid", "out of range")
        _check(all(0 <= item.steps < MAX_STEP for item in message.items), "steps", "out of range")
        for end in (item.end for item in message.items if item.end is not None):
            check_end(end)
        places = [packed.place for packed in message.blocks]
        _check(places == sorted(places), "places of blocks", places[:4])
        _check(not places or 0 <= places[0] <= places[-1] <= len(message.items), "places of blocks", places[:4])
    elif isinstance(message, Output):
        check_printed(message.view)
        _check(
            all(len(line.text) <= MAX_OUTPUT_LINE_CHARS for line in message.view.lines), "length of a line", "too long"
        )
    else:
        _check(0 < len(message.viewer) <= MAX_VIEWER, "viewer", len(message.viewer))
    return message


def check_end(end: End) -> None:
    """Check the ranges of an `End`, and raise WireError if a value is impossible."""
    _check(end.exitcode is None or -MAX_SIGNAL <= end.exitcode <= MAX_CODE, "exit code", end.exitcode)
    _check(len(end.last_line) <= MAX_OUTPUT_LINE_CHARS, "last line", len(end.last_line))


def decode_to_node(frame: bytes) -> ToNode:
    """Decode and check a message of the root hub."""
    message = decode(_to_node, frame)
    if isinstance(message, Joined):
        _check(len(message.run_id) <= MAX_NAME, "run", message.run_id[:MAX_NAME])
    if isinstance(message, Recorded):
        _check(0 <= message.every_ms <= MOST_EVERY_MS, "every_ms", message.every_ms)
    return message


def _check(ok: bool, name: str, value: object) -> None:
    if not ok:
        raise WireError(f"{name} out of range: {value}")
