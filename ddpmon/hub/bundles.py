"""What a node's hub has for the root: numbered bundles, kept until taken, bounded, the oldest dropped first."""

from __future__ import annotations

from collections import deque

from ddpmon.messages.nodes import Bundle, Item

KEPT_BYTES = 64 << 20
"""A minute of 8 ranks that step ten times a second is 1 MB; of 256 of them 32 MB."""
BUNDLE_BYTES = 1 << 20
BUNDLE_ITEMS = 4096


class Bundles:
    """Items come in, bundles go out, in order."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._open: deque[Item] = deque()
        """Items that are in no bundle yet."""
        self._waiting: deque[tuple[int, list[Item]]] = deque()
        self._sent: deque[tuple[int, list[Item]]] = deque()
        """Bundles that the root has not recorded yet."""
        self._bytes = 0
        self._seq = 0
        self.dropped = 0
        """Items thrown away because the root did not take them."""

    def add(self, item: Item) -> None:
        """Take an item; where there are too many, the oldest go."""
        self._open.append(item)
        self._bytes += len(item.frame)
        while self._bytes > self._kept_bytes:
            self._drop()

    def _drop(self) -> None:
        for bundles in (self._sent, self._waiting):
            if bundles:
                _, items = bundles.popleft()
                self._bytes -= _bytes(items)
                self.dropped += len(items)
                return
        self._bytes -= len(self._open.popleft().frame)
        self.dropped += 1

    def close(self, *, even_empty: bool = False) -> None:
        """Make bundles of what came since. even_empty: a heartbeat is due."""
        while self._open or even_empty:
            even_empty = False
            items: list[Item] = []
            size = 0
            while self._open and size < BUNDLE_BYTES and len(items) < BUNDLE_ITEMS:
                items.append(self._open.popleft())
                size += len(items[-1].frame)
            self._seq += 1
            self._waiting.append((self._seq, items))

    def next(self, now_us: int, *, stopping: bool = False, over: bool = False) -> Bundle | None:
        """The bundle to send now."""
        if not self._waiting:
            return None
        seq, items = self._waiting[0]
        first = self._sent[0][0] if self._sent else seq
        is_last = not self._open and len(self._waiting) == 1
        return Bundle(seq, first, now_us, self.dropped, items, stopping, over and is_last)

    def sent(self) -> None:
        """The bundle from `next` is on its way."""
        self._sent.append(self._waiting.popleft())

    def recorded(self, seq: int) -> None:
        """The root has recorded all up to this one."""
        while self._sent and self._sent[0][0] <= seq:
            self._bytes -= _bytes(self._sent.popleft()[1])

    def send_again(self) -> None:
        """What was sent and is not recorded goes out once more, first."""
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()

    @property
    def settled(self) -> bool:
        """Whether the root has all of it."""
        return not (self._open or self._waiting or self._sent)


def _bytes(items: list[Item]) -> int:
    return sum(len(item.frame) for item in items)
