"""Messages between the hub of a node and the root hub, over TCP with CURVE.

The node's: Join, then Roster, then bundles; requests of its viewers. The root's: Joined, Recorded, SendAgain, Locate,
ViewerSnapshot, Stop.
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
"""Version of these messages."""
MAX_ITEMS = 65_536
"""In a bundle."""
MAX_SIGNAL, MAX_CODE = 64, 255
"""Largest signal by which a process on Linux ends, and its largest exit code."""
MAX_LINE = 1000
"""Characters of a last line."""
MOST_EVERY_MS = 2000
"""Between two bundles of a node, so that one that is gone is soon missed."""
MAX_VIEWER = 255
"""Bytes of a connection's name."""


class Join(msgspec.Struct, array_like=True, tag="join"):
    """A node's hub is there; it says so again until it is `Joined`."""

    link: int
    epoch: str
    """Epoch of this hub: another one counts its bundles anew."""
    host: str
    key: str = ""
    """Its own public key, by which the root tells apart those that come with the key of the job; "": with its own."""


class Roster(msgspec.Struct, array_like=True, tag="roster"):
    """Hellos of the node's ranks."""

    hellos: list[Hello]


class End(msgspec.Struct, array_like=True, frozen=True):
    """End of a process, as the logs of its machine tell it."""

    exitcode: int | None
    """Negative: killed by that signal; None: torchrun says nothing of it."""
    last_line: str = ""
    """Last line of its stderr."""
    first: bool = False
    """torchrun saw it fail first, of its ranks there."""


class Item(msgspec.Struct, array_like=True):
    """One message of a rank, checked by the node's hub."""

    pid: int
    frame: bytes
    """A message of a rank; empty: the process has ended."""
    left: bool = False
    """It ended with a goodbye."""
    end: End | None = None
    """End of a process that has ended, once the run on its node is over."""
    steps: int = 0
    """Steps of a process that has ended, those that it could not report any more included."""


class Packed(msgspec.Struct, array_like=True):
    """Batches of the node's ranks side by side; see `recording.node_blocks`."""

    place: int
    """Before which of the bundle's items it came."""
    block: bytes


class Bundle(msgspec.Struct, array_like=True, tag="bundle"):
    """Messages of a node's ranks since the last bundle; an empty one is the node's heartbeat."""

    seq: int
    """Counts from 1 per hub."""
    first: int
    """The oldest that the node still has."""
    now_us: int
    """CLOCK_MONOTONIC of the node."""
    dropped: int = 0
    """Messages of ranks that it had to throw away so far, because the root did not take them."""
    items: list[Item] = msgspec.field(default_factory=list)
    stopping: bool = False
    """A stop was asked for on that node."""
    over: bool = False
    """The run is over on that node, and all that is to be said of its end is in this bundle or before it."""
    blocks: list[Packed] = msgspec.field(default_factory=list)
    """Steps and samples of the ranks."""


class ViewerRequest(msgspec.Struct, array_like=True, tag="look"):
    """A viewer of the node's hub asks for something."""

    viewer: bytes
    request: bytes


class Output(msgspec.Struct, array_like=True, tag="output"):
    """Output of a rank of the node, as the root asked."""

    view: PrintedView


FromNode: TypeAlias = Join | Roster | Bundle | ViewerRequest | Output


class Joined(msgspec.Struct, array_like=True, tag="joined"):
    """The root knows this node."""

    epoch: str
    """Epoch of the root: another one wants again what was not `Recorded`."""
    host: str
    """Name of its ranks' host: two machines may have the same one."""
    run_id: str = ""
    """The root's run, to a hub that was not told of it before."""


class Recorded(msgspec.Struct, array_like=True, tag="taken"):
    """All bundles up to `seq` are recorded. Said again as the root's heartbeat."""

    seq: int
    every_ms: int = 0
    """Interval at which it wants bundles: the more nodes there are, the longer; 0: as short as the node likes."""


class SendAgain(msgspec.Struct, array_like=True, tag="again"):
    """Bundles are missing: send again what was not `Recorded`. join: say first who you are."""

    join: bool = False


class Locate(msgspec.Struct, array_like=True, tag="locate"):
    """Ask a rank of the node for its stack, for samples of it or for a profile."""

    pid: int
    brief: bool = False
    seconds: Annotated[float, Meta(ge=0, le=MAX_SAMPLED_S)] = 0.0
    """Have it sample its stack for so long instead; 0: one stack."""
    steps: Annotated[int, Meta(ge=0, le=MAX_PROFILED_STEPS)] = 0
    """Have it profile so many steps instead, from one that ends within `seconds`; 0: no profile."""
    peak_flops: PeakFlops = 0.0

    @classmethod
    def of(cls, pid: int, request: AskedOfRank) -> Locate:
        """Return what passes a request on."""
        if isinstance(request, Where):
            return cls(pid, request.brief)
        if isinstance(request, ProfileSteps):
            return cls(pid, seconds=request.seconds, steps=request.steps, peak_flops=request.peak_flops)
        return cls(pid, seconds=request.seconds)

    @property
    def request(self) -> AskedOfRank:
        """Return the request that is passed on."""
        if self.steps and self.seconds:
            return ProfileSteps(self.steps, self.seconds, self.peak_flops)
        return SampleStacks(self.seconds) if self.seconds else Where(self.brief)


class FetchOutput(msgspec.Struct, array_like=True, tag="fetch"):
    """Somebody looks at what a rank of the node prints."""

    rank: int


class ViewerSnapshot(msgspec.Struct, array_like=True, tag="shown"):
    """A snapshot for a viewer of the node's hub, encoded."""

    viewer: bytes
    snapshot: bytes


class Stop(msgspec.Struct, array_like=True, tag="stop"):
    """The run is to end on this node too."""


ToNode: TypeAlias = Joined | Recorded | SendAgain | Locate | FetchOutput | ViewerSnapshot | Stop

_from_node: msgspec.msgpack.Decoder[FromNode] = msgspec.msgpack.Decoder(FromNode)
_to_node: msgspec.msgpack.Decoder[ToNode] = msgspec.msgpack.Decoder(ToNode)


def decode_from_node(frame: bytes) -> FromNode:
    """Decode and check what a node's hub sent; messages of ranks in it are left to who takes them."""
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
        _check(all(len(line.text) <= MAX_LINE for line in message.view.lines), "length of a line", "too long")
    else:
        _check(0 < len(message.viewer) <= MAX_VIEWER, "viewer", len(message.viewer))
    return message


def check_end(end: End) -> None:
    """WireError where it cannot be."""
    _check(end.exitcode is None or -MAX_SIGNAL <= end.exitcode <= MAX_CODE, "exit code", end.exitcode)
    _check(len(end.last_line) <= MAX_LINE, "last line", len(end.last_line))


def decode_to_node(frame: bytes) -> ToNode:
    """Decode and check what the root sent."""
    message = decode(_to_node, frame)
    if isinstance(message, Joined):
        _check(len(message.run_id) <= MAX_NAME, "run", message.run_id[:MAX_NAME])
    if isinstance(message, Recorded):
        _check(0 <= message.every_ms <= MOST_EVERY_MS, "every_ms", message.every_ms)
    return message


def _check(ok: bool, name: str, value: object) -> None:
    if not ok:
        raise WireError(f"{name} out of range: {value}")
