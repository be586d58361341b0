"""Holds frames for the hub in order until they are acknowledged; when there are too many, it drops the oldest."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ddpmon.messages.folder import MAX_FOLDER_FRAME_BYTES

CAPACITY = 16_384
"""Number of records to hold for a hub that does not answer."""


class PendingFrame(NamedTuple):
    """An encoded batch, with its number and its count of records."""

    seq: int
    payload: bytes
    records: int


class Outbox:
    """Frames to send, and frames that were sent but not acknowledged, in order."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.dropped = 0
        """Number of records dropped so far, because there were too many for the hub or their frame was too large."""
        self._waiting: deque[PendingFrame] = deque()
        self._unacknowledged: deque[PendingFrame] = deque()
        self._records = 0

    def add(self, frame: PendingFrame) -> None:
        """Add a frame, unless it is larger than hubs accept. Drop the oldest frames if there are too many records."""
        if len(frame.payload) > MAX_FOLDER_FRAME_BYTES:
            self.dropped += frame.records
            return
        self._waiting.append(frame)
        self._records += frame.records
        while self._records > self.capacity and len(self._waiting) + len(self._unacknowledged) > 1:
            if self._unacknowledged:
                # The hub most likely received it, and otherwise notices the gap in the numbers.
                self._records -= self._unacknowledged.popleft().records
            else:
                oldest = self._waiting.popleft()
                self._records -= oldest.records
                self.dropped += oldest.records

    def next_frame(self) -> PendingFrame | None:
        """Return the frame to send next; None if there is none."""
        return self._waiting[0] if self._waiting else None

    def mark_sent(self) -> None:
        """Move the frame from `next_frame` to the unacknowledged ones, after the socket accepted it."""
        self._unacknowledged.append(self._waiting.popleft())

    def acknowledged(self, seq: int) -> None:
        """Drop all frames up to `seq`, which the hub has recorded."""
        while self._unacknowledged and self._unacknowledged[0].seq <= seq:
            self._records -= self._unacknowledged.popleft().records

    def send_again(self) -> None:
        """Queue unacknowledged frames again, before all others, because the hub is a new one."""
        self._waiting.extendleft(reversed(self._unacknowledged))
        self._unacknowledged.clear()

    def unacknowledged(self) -> list[PendingFrame]:
        """Return all frames that the hub has not acknowledged, in order."""
        return [*self._unacknowledged, *self._waiting]

    @property
    def is_all_recorded(self) -> bool:
        """Return whether the hub has recorded everything."""
        return not self._waiting and not self._unacknowledged
