"""Packs batches that a node's ranks sent at about the same time into one block, with the steps as rows of a table."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import msgspec
import numpy as np

from ddpmon.analysis.steps.table import (
    Table,
    column_bytes,
    concatenate_rows,
    from_column_bytes,
    row_of,
    steps_of,
    table_of,
)
from ddpmon.messages import MAX_STEP, MAX_US, PHASES, SYNC_KINDS, Batch, Step, WireError, encode
from ddpmon.messages.steps import check_step
from ddpmon.messages.wire import decode

BLOCK_ZLIB_LEVEL = 1
"""Level of zlib, the fastest. It reduces most blocks to a third; level 6 saves another tenth for three times the time.
"""
MAX_BLOCK_BYTES = 8 << 20
"""Largest size in bytes of a decompressed block: several times the size of the largest blocks that nodes make."""


class _Block(msgspec.Struct, array_like=True):
    batches: list[Batch]
    """Batches in the order of their arrival, without the steps that are in `rows`."""
    counts: list[int]
    """Number of rows that belong to each batch."""
    rows: bytes
    """The rows, as `column_bytes` encodes them."""


@dataclass(frozen=True)
class NodeBlock:
    """Batches of a node's ranks. Their steps are in one table, except for the steps that do not fit into a row."""

    batches: list[Batch]
    ends: list[int]
    """Index at which the rows of each batch end."""
    table: Table

    def whole_batch(self, place: int) -> Batch:
        """Return the batch at an index with all of its steps as records."""
        batch = self.batches[place]
        rows = steps_of(self.rows(place))
        steps = sorted([*rows, *batch.steps], key=_number) if batch.steps else rows
        return msgspec.structs.replace(batch, steps=steps)

    def rows(self, place: int) -> Table:
        """Return the rows of the batch at an index."""
        return self.table[self.ends[place - 1] if place else 0 : self.ends[place]]


def _number(step: Step) -> int:
    return step.step


_decoder = msgspec.msgpack.Decoder(_Block)


def pack_batches(batches: Sequence[Batch]) -> bytes:
    """Pack batches into one block."""
    rows: list[bytes] = []
    counts, without = [], []
    for batch in batches:
        made = [row_of(step) for step in batch.steps]
        fitting = [row for row in made if row is not None]
        odd = [step for step, row in zip(batch.steps, made, strict=True) if row is None]
        rows += fitting
        counts.append(len(fitting))
        without.append(msgspec.structs.replace(batch, steps=odd))
    return pack_rows(without, counts, table_of(b"".join(rows)))


def pack_rows(batches: list[Batch], counts: list[int], table: Table) -> bytes:
    """Pack batches into one block.

    Args:
        batches: The batches, without the steps that are rows.
        counts: Number of rows of each batch.
        table: The rows, batch after batch.

    """
    return zlib.compress(encode(_Block(batches, counts, column_bytes(table))), BLOCK_ZLIB_LEVEL)


def decode_block(frame: bytes) -> NodeBlock:
    """Decode a block, and check everything except its rows. Raise WireError if the block is invalid."""
    inflating = zlib.decompressobj()
    try:
        raw = inflating.decompress(frame, MAX_BLOCK_BYTES)
    except zlib.error as error:
        raise WireError(f"no block: {error}") from None
    if not inflating.eof:
        raise WireError("an incomplete block, or a block that is too large")
    block = decode(_decoder, raw)
    try:
        table = from_column_bytes(block.rows)
    except ValueError:
        raise WireError("rows that are cut off") from None
    counts = block.counts
    if len(counts) != len(block.batches) or min(counts, default=0) < 0 or sum(counts) != len(table):
        raise WireError("rows that belong to no batch")
    for step in (step for batch in block.batches for step in batch.steps):
        check_step(step)
    return NodeBlock(block.batches, list(accumulate(counts)), table)


def are_rows_possible(blocks: Sequence[NodeBlock]) -> bool:
    """Return whether all rows of several blocks are possible. Checking many blocks at once takes as long as checking
    one block.
    """
    try:
        check_rows(concatenate_rows([block.table for block in blocks]))
    except WireError:
        return False
    return True


def check_rows(table: Table) -> None:
    """Check each row as `check_step` checks a record, and raise WireError if a row has a value out of range."""
    end, length = table["end_us"], table["length_us"].astype(np.int64)
    own = sum((table[f"{phase}_us"].astype(np.int64) for phase in PHASES[:5]), np.zeros(len(table), np.int64))
    syncs = table["syncs"]
    arrival, sync_end = syncs["arrival_us"].astype(np.int64), syncs["end_us"].astype(np.int64)
    fits = (
        (table["step"] > 0)
        & (table["step"] < MAX_STEP)
        & (end < MAX_US)
        & (length <= end)
        & (own <= length + len(PHASES))
        & (table["sync_count"] <= syncs.shape[1])
    )
    of_syncs = (syncs["kind"] < len(SYNC_KINDS)) & (arrival <= sync_end) & (sync_end <= length[:, None] + 1)
    if not (fits.all() and of_syncs.all() and (syncs["payload_bytes"] < MAX_US).all()):
        raise WireError("a step out of range")
