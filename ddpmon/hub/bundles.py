"""Queues a node's messages to the root in numbered bundles.

Bundles are kept until the root has recorded them. If there are too many, the oldest are dropped first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from ddpmon.messages import Batch, Sample, encode
from ddpmon.messages.nodes import Bundle, Item, Packed, ProcessEnd
from ddpmon.messages.vocabulary import MAX_STEPS_PER_BATCH
from ddpmon.recording.merging import one_of
from ddpmon.recording.node_blocks import pack_batches

MAX_BUNDLES_BYTES = 64 << 20
"""Largest total size of bundles. A minute of 8 ranks at ten steps per second takes 0.2 MB, of 256 ranks 7 MB."""
BUNDLE_BYTES = 1 << 20
BUNDLE_ITEMS = 4096
IN_FLIGHT = 96
"""Largest number of sent bundles that the root has not recorded. The root records every few seconds. More bundles would
fill the root's queue, and ZeroMQ stops reading a connection whose queue is full."""
STEP_BYTES, BATCH_BYTES = 110, 300
"""Approximate bytes of a usual step, and of the rest of a usual batch, before packing."""


@dataclass
class Closed:
    """A complete bundle that waits to be sent, or has been sent and may have to be sent again."""

    items: list[Item] = field(default_factory=list)
    messages: int = 0
    """Number of messages in the items, which may hold several batches each."""
    seq: int = 0
    """Number of the bundle; 0 until it is queued."""

    @property
    def bytes(self) -> int:
        return sum(map(_size, self.items))


class Bundles:
    """Queue that turns items and batches into bundles, in order."""

    def __init__(self, kept_bytes: int = MAX_BUNDLES_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._open: deque[tuple[Item | Batch, int]] = deque()
        """Items and batches that are in no bundle yet, each with its size in bytes."""
        self._waiting: deque[Closed] = deque()
        self._sent: deque[Closed] = deque()
        """Bundles that the root has not recorded yet."""
        self._bytes = 0
        self._seq = 0
        self.dropped = 0
        """Number of messages that were discarded because the root did not accept them in time."""

    def add(self, item: Item | Batch) -> None:
        """Append an item or a batch. If all bundles together exceed the limit, drop the oldest messages."""
        size = _size(item)
        self._open.append((item, size))
        self._bytes += size
        while self._bytes > self._kept_bytes:
            self._drop()

    def _drop(self) -> None:
        for bundles in (self._sent, self._waiting):
            if bundles:
                oldest = bundles.popleft()
                self._bytes -= oldest.bytes
                self.dropped += oldest.messages
                return
        self._bytes -= self._open.popleft()[1]
        self.dropped += 1

    def make_bundles(self, *, even_empty: bool = False, sparse: bool = False) -> None:
        """Make bundles of the items and batches that were added since the last call.

        Args:
            even_empty: True to make a bundle even if it is empty, because a heartbeat is due.
            sparse: True to merge every two samples of a rank into one.

        """
        while self._open or even_empty:
            even_empty = False
            closed = Closed()
            batches: list[Batch] = []
            size = count = 0
            while self._open and size < BUNDLE_BYTES and count < BUNDLE_ITEMS:
                item, item_size = self._open.popleft()
                size += item_size
                count += 1
                if isinstance(item, Batch):
                    batches.append(item)
                    continue
                _pack(closed, batches, sparse=sparse)
                closed.items.append(item)
            _pack(closed, batches, sparse=sparse)
            closed.messages = count
            self._bytes -= size
            self.append_bundle(closed)

    def append_bundle(self, closed: Closed) -> None:
        """Append a bundle to those that wait to be sent."""
        self._seq += 1
        closed.seq = self._seq
        self._bytes += closed.bytes
        self._waiting.append(closed)

    def next_bundle(self, now_us: int, *, stopping: bool = False, over: bool = False) -> Bundle | None:
        """Return the bundle to send now, or None if no bundle waits or too many sent bundles are unrecorded.

        Args:
            now_us: CLOCK_MONOTONIC of this node, in microseconds.
            stopping: True if a stop was requested on this node.
            over: True if the run is over on this node. The last queued bundle reports it.

        """
        if not self._waiting or len(self._sent) >= IN_FLIGHT:
            return None
        bundle = self._waiting[0]
        first = self._sent[0].seq if self._sent else bundle.seq
        over = over and not self._open and len(self._waiting) == 1
        return Bundle(bundle.seq, first, now_us, self.dropped, bundle.items, stopping, over)

    def mark_sent(self) -> None:
        """Note that the bundle from `next_bundle` was sent."""
        self._sent.append(self._waiting.popleft())

    def mark_recorded(self, seq: int) -> None:
        """Forget all bundles up to `seq`, because the root has recorded them."""
        while self._sent and self._sent[0].seq <= seq:
            self._bytes -= self._sent.popleft().bytes

    def send_again(self) -> None:
        """Queue the bundles again that were sent but not recorded, before the bundles that still wait."""
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()

    @property
    def is_all_recorded(self) -> bool:
        """Return whether the root has recorded everything."""
        return not (self._open or self._waiting or self._sent)


def _pack(closed: Closed, batches: list[Batch], *, sparse: bool) -> None:
    """Append the gathered batches to a bundle as one block, and clear the list of batches."""
    if batches:
        closed.items.append(Packed(pack_batches(merge_batches(batches, sparse=sparse))))
        batches.clear()


def merge_batches(batches: Sequence[Batch], *, sparse: bool = False) -> list[Batch]:
    """Merge successive batches of the same process into one batch. sparse: also merge every two samples of a rank."""
    done: list[Batch] = []
    latest: dict[int, Batch] = {}
    for batch in batches:
        before = latest.get(batch.pid)
        if before is not None and not _goes_on(before, batch):
            done.append(before)
            before = None
        latest[batch.pid] = batch if before is None else _both(before, batch)
    made = [*done, *latest.values()]
    if not sparse:
        return made
    return [msgspec.structs.replace(batch, samples=in_twos(batch.samples)) for batch in made]


def in_twos(samples: Sequence[Sample]) -> list[Sample]:
    """Merge every two samples, so that the root has to process and record half as many."""
    return [one_of(samples[place : place + 2]) for place in range(0, len(samples), 2)]


def _goes_on(before: Batch, batch: Batch) -> bool:
    return (
        batch.first_seq == before.seq + 1
        and (batch.rank, batch.dropped) == (before.rank, before.dropped)
        and not (batch.layouts or before.layouts or batch.closing_pauses or before.closing_pauses)
        and len(before.steps) + len(batch.steps) <= MAX_STEPS_PER_BATCH
    )


def _both(before: Batch, batch: Batch) -> Batch:
    return msgspec.structs.replace(
        batch,
        steps=before.steps + batch.steps,
        samples=before.samples + batch.samples,
        scalars=before.scalars + batch.scalars,
        digests=before.digests + batch.digests,
        merged=batch.seq - before.first_seq,
    )


def _size(item: Item | Batch) -> int:
    if not isinstance(item, Batch):
        return 0 if isinstance(item, ProcessEnd) else len(item.frame)
    unusual = item.scalars or item.digests or item.layouts or item.closing_pauses or len(item.samples) > 1
    if unusual or any(step.buckets or step.named_us or step.pauses or len(step.syncs) > 1 for step in item.steps):
        return BATCH_BYTES + len(encode(item))
    return BATCH_BYTES + STEP_BYTES * len(item.steps)
