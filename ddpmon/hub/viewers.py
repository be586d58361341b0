"""Serves snapshots to viewers: one snapshot for each request."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import msgspec
import zmq

from ddpmon.hub.changes import Sent
from ddpmon.hub.cpu_budget import CpuBudget
from ddpmon.hub.sockets import Socket, receive_message
from ddpmon.messages import Ask, Snapshot, ViewRequest, WireError, decode_from_viewer

SNAPSHOT_INTERVAL_S = 0.5
"""Shortest interval in seconds between two snapshots."""
SNAPSHOT_SHARE = 0.15
"""Largest share of one core for making snapshots."""
HURRY_S = 0.1
"""Shortest interval in seconds between two snapshots if an answer has arrived for which a viewer waits."""
OLD_SNAPSHOT_S = 1.0
"""Seconds after which a waiting viewer gets the old snapshot again, which shows that the hub is alive."""
RELAYED_S = 2.0
"""Seconds after which this hub answers a viewer itself if the root does not. The root answers within OLD_SNAPSHOT_S
seconds, and a viewer repeats its request after three seconds."""
MAX_VIEWERS = 256
SENT_KEPT = 16
"""Largest number of viewers to which only changes are sent. If there are more, some viewers get whole snapshots."""
NOTHING_SENT = Sent()
"""State of a viewer to which nothing was sent yet."""
MAX_REQUESTS_TURN_S = 0.05
"""Longest time in seconds for which requests are processed in one turn, because ranks wait meanwhile."""


def _no_other(_viewer: bytes, _frame: bytes) -> bool:
    """Return False, because this run has no other hub."""
    return False


class Viewers:
    """Serves the viewers that wait for a snapshot. A viewer that sends no requests costs nothing.

    Args:
        socket: The socket to which viewers connect.
        build: Makes the snapshot of this moment, with a version.
        with_parts: Adds the parts of a view request to a snapshot.
        ask: Passes a request for stacks or profiles to ranks.
        epoch: Identifies this process of the hub.
        relay: Passes a viewer's request on to the root. Returns whether the root is reachable.
        deliver: Sends a frame to a viewer if the viewer is on another node. Returns whether it is.

    """

    def __init__(
        self,
        socket: Socket,
        build: Callable[[int], Snapshot],
        with_parts: Callable[[Snapshot, ViewRequest], Snapshot],
        ask: Callable[[Ask], None],
        epoch: str,
        relay: Callable[[bytes, bytes], bool] = _no_other,
        deliver: Callable[[bytes, bytes], bool] = _no_other,
    ) -> None:
        self._socket = socket
        self._build = build
        self._with_parts = with_parts
        self._ask = ask
        self._epoch = epoch
        self._relay, self._deliver = relay, deliver
        self._waiting: dict[bytes, tuple[int, float]] = {}
        """Waiting viewers by connection: (version that the viewer has, time by which it must get an answer)."""
        self._relayed: dict[bytes, float] = {}
        """Viewers whose requests were passed on to the root, and the time at which this hub answers instead."""
        self._view_requests: dict[bytes, ViewRequest] = {}
        self._bases: dict[bytes, int] = {}
        """Version of this hub that each viewer has, or 0."""
        self._sent: dict[bytes, Sent] = {}
        """State of some viewers, in the order of their last requests."""
        self._answers: dict[tuple[Sent, ViewRequest, int], tuple[Sent, bytes]] = {}
        """Cached answers with the current snapshot, by a viewer's (state, request, version): (new state, frame)."""
        self._whole_of: dict[ViewRequest, Sent] = {}
        """Shared state of all viewers that have the complete current snapshot, by view request."""
        self._asked_at: dict[bytes, float] = {}
        """Time of each viewer's last request, the earliest first."""
        self._current: Snapshot | None = None
        self._built_at = float("-inf")
        self._every_s = SNAPSHOT_INTERVAL_S
        self._pace = CpuBudget(SNAPSHOT_SHARE)

    def process_requests(self, now: float) -> None:
        """Process requests that have arrived. Of several requests of a viewer, the latest counts."""
        end = time.monotonic() + MAX_REQUESTS_TURN_S
        for _ in range(MAX_VIEWERS):
            if time.monotonic() > end:
                return
            try:
                frames, _ = receive_message(self._socket)
            except zmq.Again:
                return
            if len(frames) == 2:
                self.process_request(frames[0], frames[1], now, self._relay(frames[0], frames[1]))

    def process_request(self, viewer: bytes, frame: bytes, now: float, relayed: bool = False) -> None:
        """Process one request. relayed: the request was passed on to the root, so answer only if the root does not."""
        try:
            request = decode_from_viewer(frame)
        except WireError:
            return
        if isinstance(request, Ask):
            if not relayed:
                self._ask(request)
            return
        if len(self._waiting) >= MAX_VIEWERS and viewer not in self._waiting:
            return
        version = request.version if request.epoch == self._epoch else 0
        if self._waiting.get(viewer, (version,))[0] == 0:
            version = 0  # The viewer still waits for a part that it requested before, so it needs an answer at once.
        if relayed:
            self._relayed[viewer] = now + RELAYED_S
        else:
            self._waiting[viewer] = (version, now + OLD_SNAPSHOT_S)
        self._asked_at.pop(viewer, None)
        self._asked_at[viewer] = now
        self._view_requests[viewer] = request.view_request
        self._bases[viewer] = request.base if request.epoch == self._epoch else 0
        if len(self._asked_at) > MAX_VIEWERS:
            gone = next(iter(self._asked_at))
            del self._asked_at[gone], self._view_requests[gone], self._bases[gone]

    def answer_due(self, now: float) -> None:
        """Answer the viewers for which there is a newer snapshot, or whose answer is due."""
        for viewer in [viewer for viewer, due in self._relayed.items() if now >= due]:
            del self._relayed[viewer]
            self._waiting[viewer] = (0, now)
        if not self._waiting:
            return
        if (now - self._built_at >= self._every_s and self._pace.is_due(now)) or self._current is None:
            self._renew(now)
        assert self._current is not None  # noqa: S101  _renew made it
        for identity, (version, due) in list(self._waiting.items()):
            if version != self._current.version or now >= due:
                del self._waiting[identity]
                self._send(identity)

    def expect_news(self) -> None:
        """Make a new snapshot soon, because an answer has arrived that a viewer waits for."""
        self._every_s = HURRY_S

    def take_leave(self, now: float) -> None:
        """Send the last snapshot to all viewers that sent a request in the last 3 x OLD_SNAPSHOT_S seconds."""
        self._renew(now)
        for identity, asked_at in self._asked_at.items():
            if now - asked_at < 3 * OLD_SNAPSHOT_S:
                # Send a whole snapshot: an earlier answer may be lost, and no hub will answer further requests.
                self._bases[identity] = 0
                self._sent.pop(identity, None)
                self._send(identity)

    def _send(self, identity: bytes) -> None:
        assert self._current is not None  # noqa: S101  callers have renewed it
        frame = self._answer(identity, self._view_requests.get(identity, ViewRequest()))
        if not self._deliver(identity, frame):
            self.send_frame(identity, frame)

    def _answer(self, identity: bytes, view_request: ViewRequest) -> bytes:
        assert self._current is not None  # noqa: S101  see _send
        key = self._sent.pop(identity, NOTHING_SENT), view_request, self._bases.get(identity, 0)
        if key not in self._answers:
            sent, frame = key[0].answer(self._with_parts(self._current, view_request), view_request, key[2])
            self._answers[key] = self._whole_of.setdefault(view_request, sent) if sent.is_whole else sent, frame
        self._sent[identity], frame = self._answers[key]
        if len(self._sent) > SENT_KEPT:
            del self._sent[next(iter(self._sent))]
        return frame

    def send_frame(self, viewer: bytes, frame: bytes) -> None:
        """Send an encoded snapshot to a viewer of this hub."""
        self._relayed.pop(viewer, None)
        with contextlib.suppress(zmq.ZMQError):  # The viewer is gone, or does not read.
            self._socket.send_multipart([viewer, frame], zmq.NOBLOCK)

    def _renew(self, now: float) -> None:
        old, same_again = self._current, self._every_s == SNAPSHOT_INTERVAL_S
        with self._pace.measured(now):
            new = self._build(old.version + 1 if old else 1)
        self._built_at, self._every_s = now, SNAPSHOT_INTERVAL_S
        if old and same_again and msgspec.structs.replace(new, version=old.version, at=old.at) == old:
            return  # Nothing has changed, so the version stays.
        self._current = new
        self._answers.clear()
        self._whole_of.clear()

    def next_due(self, now: float) -> float | None:
        """Return in how many seconds `answer_due` must be called again, or None if no viewer waits."""
        if not self._waiting:
            return None
        soonest = min(due for _, due in self._waiting.values())
        return max(0.0, min(soonest, max(self._built_at + self._every_s, self._pace.due_at, now)) - now)
