"""A rank's socket to its hub: who we are, numbered frames until they are acknowledged, and what the hub says."""

from __future__ import annotations

import time
from collections.abc import Callable

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
from ddpmon.probe.common_start import CommonStart
from ddpmon.probe.dealer import Dealer
from ddpmon.probe.identity import Identity
from ddpmon.probe.meeting import Exchange, exchange
from ddpmon.probe.outbox import Outbox

GOODBYE_S = 0.5
FRAMES_AT_ONCE = 4
MEET_AGAIN_S = 2.0
"""A hub that does not take this process for its rank yet, because those before it still end, says nothing to it."""


class HubSocket:
    """Sends what is in `outbox`, as often as hubs come and go. Nothing here blocks, but for `say_goodbye`.

    Used by the background thread alone. make_way: called between frames, so that the training thread gets the GIL.
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
        """With the hubs of other nodes, where there are some."""
        self._in_group = False
        self._dealer = Dealer(address)

    def close(self) -> None:
        """Close; what was not sent is lost."""
        self._dealer.close()

    def reconnect(self) -> None:
        """Connect where no connection is left: another hub listens, or the script closed the descriptor."""
        if self._dealer.connect():
            self._hello_version = self._meeting_version = 0
            self.outbox.send_again()

    def receive(self) -> list[AskedOfRank]:
        """Take the hub's messages; returns what it asks of this rank."""
        asked: list[AskedOfRank] = []
        heard = 0
        while (frame := self._dealer.receive()) is not None:
            heard += 1
            if heard % FRAMES_AT_ONCE == 0:
                self._make_way()
            try:
                message = decode_to_rank(frame)
            except WireError:
                continue  # a newer hub may say things this probe does not know
            if isinstance(message, Ack):
                self.outbox.acknowledged(message.seq)
            elif isinstance(message, Welcome):
                self._welcomed(message)
            elif isinstance(message, AskedOfRank):
                asked.append(message)
            elif self._exchange is not None:
                self._exchange.offer(message)
        return asked

    def _welcomed(self, message: Welcome) -> None:
        if not message.has_hello:
            self._hello_version = self._meeting_version = 0
        if not message.has_hello or (self._epoch and message.epoch != self._epoch):
            self.outbox.send_again()
        self._epoch = message.epoch

    def send(self) -> None:
        """Send what the socket takes; the rest stays in the outbox."""
        self.reconnect()
        if self._hello_version != self._identity.version:
            version = self._identity.version
            if not self._dealer.send(encode(self._identity.hello())):
                return
            self._hello_version = version
        sent = 0
        while (frame := self.outbox.next()) is not None and self._dealer.send(frame.payload):
            self.outbox.sent()
            sent += 1
            if sent % FRAMES_AT_ONCE == 0:
                self._make_way()

    def send_once(self, message: FromRank) -> bool:
        """Send what is of no use later, now or not at all; whether the socket took it."""
        return self._dealer.send(encode(message))

    def introduce_nodes(self, start: CommonStart | None) -> None:
        """Tell the hub which hubs of other nodes the process group's store names. start: as `exchange` takes it."""
        if not self._in_group and self._identity.stage >= STAGE_GROUP:
            self._in_group = True
            self._exchange = exchange(self._identity, start)
        if self._exchange is None:
            return
        version = self._exchange.version
        unanswered = version > 0 and self._exchange.unanswered and time.monotonic() - self._met_at >= MEET_AGAIN_S
        if self._meeting_version != version or unanswered:
            self._met_at = time.monotonic()
            if self.send_once(self._exchange.message()):  # else it is sent at the next turn
                self._meeting_version = version

    def finish_exchange(self) -> None:
        """The process group is about to end: nothing is read of its store any more."""
        if self._exchange is not None:
            self._exchange.finish()

    def say_goodbye(self, bye: Bye) -> None:
        """Send the rest and wait for the hub's word that it has it, if there ever was a hub."""
        deadline = time.monotonic() + GOODBYE_S
        said = False
        while (self._epoch or not said) and time.monotonic() < deadline:
            self.send()
            if not self._epoch and not self._dealer.connected:
                return
            if not said and self.outbox.next() is None:
                said = self.send_once(bye)
            self._dealer.poll(10)
            self.receive()
            if said and self.outbox.settled:
                return
