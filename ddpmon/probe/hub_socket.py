"""A rank's socket to its hub: it introduces the rank, sends frames until acknowledged, and receives requests."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ddpmon.messages import (
    STAGE_GROUP,
    Ack,
    AskedOfRank,
    Bye,
    FromRank,
    Welcome,
    WireError,
    decode_to_rank,
    encode,
)
from ddpmon.messages.folder import MAX_FOLDER_FRAME_BYTES
from ddpmon.probe.common_start import CommonStart
from ddpmon.probe.dealer import Dealer
from ddpmon.probe.hub_meeting import Exchange, start_exchange
from ddpmon.probe.identity import Identity

GOODBYE_S = 0.5
FRAMES_AT_ONCE = 4
MEET_AGAIN_S = 2.0
"""Seconds until a Meeting message is sent again. The hub does not answer while an earlier process of this rank ends."""
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
        """Number of records dropped so far, because too many were waiting or their frame was too large for a hub."""
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
                # The hub has most likely received this frame. Otherwise the gap in the frames' numbers shows the loss.
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
        """Queue unacknowledged frames again, before all other frames, because a new hub has replaced the old one."""
        self._waiting.extendleft(reversed(self._unacknowledged))
        self._unacknowledged.clear()

    def unacknowledged(self) -> list[PendingFrame]:
        """Return all frames that the hub has not acknowledged, in order."""
        return [*self._unacknowledged, *self._waiting]

    @property
    def is_all_recorded(self) -> bool:
        """Return whether the hub has recorded everything."""
        return not self._waiting and not self._unacknowledged


class HubSocket:
    """Sends the frames in `outbox`, and reconnects to a hub that was restarted. Only `say_goodbye` blocks.

    Only the background thread uses it. make_way: called between frames, so that the training thread gets the GIL.
    """

    def __init__(self, address: str, identity: Identity, make_way: Callable[[], None]) -> None:
        self.outbox = Outbox()
        self._identity = identity
        self._make_way = make_way
        self._epoch = ""
        """Epoch of the hub that answered last."""
        self._hello_version = 0
        self._meeting_version = 0
        self._met_at = float("-inf")
        self._exchange: Exchange | None = None
        """Exchange of cards with the hubs of other nodes; None if this rank takes no part in it."""
        self._in_group = False
        self._dealer = Dealer(address)

    def close(self) -> None:
        """Close the socket. Frames that were not sent are lost."""
        self._dealer.close()

    def reconnect(self) -> None:
        """Connect again if the connection is lost, because the hub was replaced or the script closed the descriptor."""
        if self._dealer.connect():
            self._hello_version = self._meeting_version = 0
            self.outbox.send_again()

    def receive(self) -> list[AskedOfRank]:
        """Read the hub's messages; return its requests to this rank."""
        asked: list[AskedOfRank] = []
        heard = 0
        while (frame := self._dealer.receive()) is not None:
            heard += 1
            if heard % FRAMES_AT_ONCE == 0:
                self._make_way()
            try:
                message = decode_to_rank(frame)
            except WireError:
                continue  # A newer hub may send messages that this probe does not know.
            if isinstance(message, Ack):
                self.outbox.acknowledged(message.seq)
            elif isinstance(message, Welcome):
                self._welcomed(message)
            elif isinstance(message, AskedOfRank):
                asked.append(message)
            elif self._exchange is not None:
                self._exchange.offer_card(message)
        return asked

    def _welcomed(self, message: Welcome) -> None:
        if not message.has_hello:
            self._hello_version = self._meeting_version = 0
        if not message.has_hello or (self._epoch and message.epoch != self._epoch):
            self.outbox.send_again()
        self._epoch = message.epoch

    def send(self) -> None:
        """Send as many frames as the socket accepts. The rest stays in the outbox."""
        self.reconnect()
        if self._hello_version != self._identity.version:
            version = self._identity.version
            if not self._dealer.send(encode(self._identity.facts)):
                return
            self._hello_version = version
        sent = 0
        while (frame := self.outbox.next_frame()) is not None and self._dealer.send(frame.payload):
            self.outbox.mark_sent()
            sent += 1
            if sent % FRAMES_AT_ONCE == 0:
                self._make_way()

    def send_once(self, message: FromRank) -> bool:
        """Try once to send a message that is useless later. Return whether the socket accepted the message."""
        return self._dealer.send(encode(message))

    def introduce_nodes(self, start: CommonStart | None) -> None:
        """Send the hub the addresses of the hubs of other nodes, as far as the store of the process group has them.

        start: The agreement on a common first step, which uses the same store; None if there is none.
        """
        if not self._in_group and self._identity.facts.stage >= STAGE_GROUP:
            self._in_group = True
            self._exchange = start_exchange(self._identity, start)
        if self._exchange is None:
            return
        version = self._exchange.version
        unanswered = version > 0 and self._exchange.unanswered and time.monotonic() - self._met_at >= MEET_AGAIN_S
        if self._meeting_version != version or unanswered:
            self._met_at = time.monotonic()
            if self.send_once(self._exchange.message_to_hub()):  # Otherwise the next call sends the message.
                self._meeting_version = version

    def finish_exchange(self) -> None:
        """Stop reading the process group's store, because the group is about to end."""
        if self._exchange is not None:
            self._exchange.finish()

    def say_goodbye(self, bye: Bye) -> None:
        """Send all remaining frames and the goodbye, and wait up to GOODBYE_S until the hub acknowledges them."""
        deadline = time.monotonic() + GOODBYE_S
        said = False
        while (self._epoch or not said) and time.monotonic() < deadline:
            self.send()
            if not self._epoch and not self._dealer.connected:
                return
            if not said and self.outbox.next_frame() is None:
                said = self.send_once(bye)
            self._dealer.wait_for_data(10)
            self.receive()
            if said and self.outbox.is_all_recorded:
                return
