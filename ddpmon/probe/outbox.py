"""Holds frames on their way to the hub: numbered, kept until acknowledged, bounded, oldest dropped first."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ddpmon.messages.folder import MAX_FRAME_BYTES

CAPACITY = 16_384
"""Records that are held for a hub that does not answer."""


class PendingFrame(NamedTuple):
    """An encoded batch."""

    seq: int
    payload: bytes
    records: int


class Outbox:
    """Frames to send and frames sent but not acknowledged, in order."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.dropped = 0
        """Records thrown away so far because the hub did not take them in time, or takes no frame of that size."""
        self._waiting: deque[PendingFrame] = deque()
        self._unacknowledged: deque[PendingFrame] = deque()
        self._records = 0

    def add(self, frame: PendingFrame) -> None:
        """Take a frame; the oldest go when there are too many. One that no hub takes would end every connection."""
        if len(frame.payload) > MAX_FRAME_BYTES:
            self.dropped += frame.records
            return
        self._waiting.append(frame)
        self._records += frame.records
        while self._records > self.capacity and len(self._waiting) + len(self._unacknowledged) > 1:
            if self._unacknowledged:
                # Most likely received: the hub knows by their numbers if they were not.
                self._records -= self._unacknowledged.popleft().records
            else:
                oldest = self._waiting.popleft()
                self._records -= oldest.records
                self.dropped += oldest.records

    def next(self) -> PendingFrame | None:
        """The frame to send now."""
        return self._waiting[0] if self._waiting else None

    def sent(self) -> None:
        """The frame from `next` was taken by the socket."""
        self._unacknowledged.append(self._waiting.popleft())

    def acknowledged(self, seq: int) -> None:
        """The hub has recorded everything up to `seq`."""
        while self._unacknowledged and self._unacknowledged[0].seq <= seq:
            self._records -= self._unacknowledged.popleft().records

    def send_again(self) -> None:
        """A new hub: what the old one did not acknowledge goes out once more, first."""
        self._waiting.extendleft(reversed(self._unacknowledged))
        self._unacknowledged.clear()

    def unacknowledged(self) -> list[PendingFrame]:
        """Return what the hub has not acknowledged, in order."""
        return [*self._unacknowledged, *self._waiting]

    @property
    def settled(self) -> bool:
        """Return whether the hub has recorded everything."""
        return not self._waiting and not self._unacknowledged
