"""Serves snapshots to viewers, one for each that they ask for."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import msgspec
import zmq

from ddpmon.hub.changes import Sent
from ddpmon.hub.cpu_budget import CpuBudget
from ddpmon.hub.receiving import Socket, receive
from ddpmon.messages import Ask, Snapshot, WireError, Wish, decode_from_viewer, encode

EVERY_S = 0.5
"""A new snapshot at most this often."""
SNAPSHOT_SHARE = 0.15
"""Share of one core for making snapshots."""
HURRY_S = 0.1
"""The same, when something came that a viewer waits for."""
AGAIN_S = 1.0
"""A viewer that waits gets at least the old one again, to know that the hub lives."""
RELAYED_S = 2.0
"""Another hub answers within AGAIN_S; a viewer asks again after three seconds."""
MOST = 256
FRAMES_KEPT = 64
"""Encodings of the current snapshot that are kept, each for another wish."""
SENT_KEPT = 16
"""Viewers of which is kept what they have; further ones are sent whole snapshots in turn."""
NOTHING = Sent()
"""State of a viewer that was sent nothing."""
TURN_S = 0.05
"""Longest time for taking requests: ranks wait meanwhile."""


def _no_other(_viewer: bytes, _frame: bytes) -> bool:
    """There is no other hub."""
    return False


class Viewers:
    """Keeps who waits for what. A viewer that does not ask costs nothing.

    build(version): makes the snapshot of this moment. with_parts(snapshot, wish): adds what a viewer wishes for.
    ask(request): asks ranks for what a viewer wants to know. relay(viewer, request): has another hub
    answer; False: this one is to. deliver(viewer, frame): sends to a viewer of another hub; False: it is one of this.
    """

    def __init__(
        self,
        socket: Socket,
        build: Callable[[int], Snapshot],
        with_parts: Callable[[Snapshot, Wish], Snapshot],
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
        """Waiting viewers by connection: the version that each has, and when it must hear something."""
        self._relayed: dict[bytes, float] = {}
        """Viewers whom another hub is to answer, and until when."""
        self._wishes: dict[bytes, Wish] = {}
        self._bases: dict[bytes, int] = {}
        """Viewers that take changes: the version of this hub that each has, or 0."""
        self._sent: dict[bytes, Sent] = {}
        """State of each of those viewers; the one that asked last is last."""
        self._answers: dict[tuple[Sent, Wish, int], tuple[Sent, bytes]] = {}
        """Answers to the current snapshot, by a viewer's state and wish: the state afterwards, and the frame."""
        self._whole_of: dict[Wish, Sent] = {}
        """State of the viewers that have all of the current snapshot, however they came to it, by wish."""
        self._asked_at: dict[bytes, float] = {}
        """Moment of each viewer's last request; the one that asked last is last."""
        self._current: Snapshot | None = None
        self._frames: dict[Wish, bytes] = {}
        """The current snapshot as it is sent, by what is wished for beside it."""
        self._built_at = float("-inf")
        self._every_s = EVERY_S
        self._pace = CpuBudget(SNAPSHOT_SHARE)

    def receive(self, now: float) -> None:
        """Take requests; the latest of each viewer counts."""
        end = time.monotonic() + TURN_S
        for _ in range(MOST):
            if time.monotonic() > end:
                return
            try:
                frames, _ = receive(self._socket)
            except zmq.Again:
                return
            if len(frames) == 2:
                self.take(frames[0], frames[1], now, self._relay(frames[0], frames[1]))

    def take(self, viewer: bytes, frame: bytes, now: float, relayed: bool = False) -> None:
        """Take one request. relayed: another hub was asked to answer it; this one does where that is not heard."""
        try:
            request = decode_from_viewer(frame)
        except WireError:
            return
        if isinstance(request, Ask):
            if not relayed:
                self._ask(request)
            return
        if len(self._waiting) >= MOST and viewer not in self._waiting:
            return
        version = request.version if request.epoch == self._epoch else 0
        if self._waiting.get(viewer, (version,))[0] == 0:
            version = 0  # it has not had what it asked for before, a part perhaps, though it knows of the version
        if relayed:
            self._relayed[viewer] = now + RELAYED_S
        else:
            self._waiting[viewer] = (version, now + AGAIN_S)
        self._asked_at.pop(viewer, None)
        self._asked_at[viewer] = now
        self._wishes[viewer] = request.wish
        if request.base is not None:
            self._bases[viewer] = request.base if request.epoch == self._epoch else 0
        else:
            self._bases.pop(viewer, None)
        if len(self._asked_at) > MOST:
            gone = next(iter(self._asked_at))
            del self._asked_at[gone], self._wishes[gone]
            self._bases.pop(gone, None)

    def serve(self, now: float) -> None:
        """Answer whoever can be answered now."""
        for viewer in [viewer for viewer, due in self._relayed.items() if now >= due]:
            del self._relayed[viewer]
            self._waiting[viewer] = (0, now)
        if not self._waiting:
            return
        if (now - self._built_at >= self._every_s and self._pace.due(now)) or self._current is None:
            self._renew(now)
        assert self._current is not None  # noqa: S101  _renew made it
        for identity, (version, due) in list(self._waiting.items()):
            if version != self._current.version or now >= due:
                del self._waiting[identity]
                self._send(identity)

    def hurry(self) -> None:
        """Something came that someone waits for, in a part perhaps: have a new snapshot soon."""
        self._every_s = HURRY_S

    def take_leave(self, now: float) -> None:
        """Give the last snapshot to everyone who lately asked for one, asked again or not."""
        self._renew(now)
        for identity, asked_at in self._asked_at.items():
            if now - asked_at < 3 * AGAIN_S:
                self._bases.pop(identity, None)  # whole: nobody is there to be asked again
                self._send(identity)

    def _send(self, identity: bytes) -> None:
        assert self._current is not None  # noqa: S101  who sends has renewed it
        wish = self._wishes.get(identity, Wish())
        frame = self._changes(identity, wish) if identity in self._bases else self._whole(wish)
        if not self._deliver(identity, frame):
            self.show(identity, frame)

    def _whole(self, wish: Wish) -> bytes:
        assert self._current is not None  # noqa: S101  see _send
        if wish not in self._frames:
            if len(self._frames) >= FRAMES_KEPT:
                self._frames.clear()
            self._frames[wish] = encode(self._with_parts(self._current, wish))
        return self._frames[wish]

    def _changes(self, identity: bytes, wish: Wish) -> bytes:
        assert self._current is not None  # noqa: S101  see _send
        key = self._sent.pop(identity, NOTHING), wish, self._bases[identity]
        if key not in self._answers:
            sent, frame = key[0].answer(self._with_parts(self._current, wish), wish, key[2])
            self._answers[key] = self._whole_of.setdefault(wish, sent) if sent.is_whole else sent, frame
        self._sent[identity], frame = self._answers[key]
        if len(self._sent) > SENT_KEPT:
            del self._sent[next(iter(self._sent))]
        return frame

    def show(self, viewer: bytes, frame: bytes) -> None:
        """Send a viewer of this hub a snapshot."""
        self._relayed.pop(viewer, None)
        with contextlib.suppress(zmq.ZMQError):  # gone, or does not read
            self._socket.send_multipart([viewer, frame], zmq.NOBLOCK)

    def _renew(self, now: float) -> None:
        old, same_again = self._current, self._every_s == EVERY_S
        with self._pace.spent(now):
            new = self._build(old.version + 1 if old else 1)
        self._built_at, self._every_s = now, EVERY_S
        if old and same_again and msgspec.structs.replace(new, version=old.version, at=old.at) == old:
            return  # nothing happened: the same version again
        self._current = new
        self._frames.clear()
        self._answers.clear()
        self._whole_of.clear()

    def next_due(self, now: float) -> float | None:
        """Return when `serve` has something to do again, in seconds from now; None: nobody waits."""
        if not self._waiting:
            return None
        soonest = min(due for _, due in self._waiting.values())
        return max(0.0, min(soonest, max(self._built_at + self._every_s, self._pace.at, now)) - now)
