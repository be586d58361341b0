"""Queues steps, samples and logged values for some time, and then writes them as blocks."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ddpmon.analysis.steps.table import Table, concatenate_rows, row_of, table_of
from ddpmon.messages import Batch, Step
from ddpmon.recording import schema
from ddpmon.store.processes import RankProcess

MAX_GATHER_S = 6.0
GATHER_S_PER_PROCESS = 1 / 128
"""Seconds for which steps are gathered, per process. A block takes as long to write as a row, however many steps it
has, so larger blocks are cheaper. The hub writes every half second, so with up to 64 ranks each write includes their
steps."""
LARGE_ROWS = 1 << 17
"""Number of queued rows from which on the queue is written without further delay: some 14 MB."""
MAX_HELD_ROWS = 1 << 19
"""Largest number of rows that stay in the queue while the disk fails: some 25 MB of steps. Older rows are dropped and
counted."""


class _Piece(NamedTuple):
    """Steps that were queued with one call."""

    processes: Sequence[RankProcess]
    counts: Sequence[int]
    """Number of rows of each process, in the order of `processes`."""
    table: Table
    records: Sequence[Step] = ()
    """Steps that do not fit into a row. If there are any, they belong to the only process."""


class _Packed(NamedTuple):
    """Rows that were queued between two attempts to write, in the form in which they are written."""

    blocks: list[schema.Row]
    batches: list[tuple[int, Batch]]
    rows: int


class WriteQueue:
    """Queue of batches and the rows of their steps. If the disk fails, the same blocks are written again later."""

    def __init__(self) -> None:
        self._packed: deque[_Packed] = deque()
        self._pieces: list[_Piece] = []
        self._batches: list[tuple[int, Batch]] = []
        """Batches without their steps, each with the id of its process."""
        self._rows = 0
        """Number of rows in `_pieces` and `_batches`."""
        self._recorded_seq: dict[int, int] = {}
        """Number of the last recorded batch of each process in the queue."""
        self.processes: dict[int, RankProcess] = {}
        """Processes with records in the queue, by id."""

    def __bool__(self) -> bool:
        return bool(self.processes)

    def add(self, process: RankProcess, batch: Batch, steps: Sequence[Step]) -> None:
        """Append a batch with its new steps. The process's counters must already include the batch."""
        if process.id not in self.processes:
            self.processes[process.id] = process
            self._recorded_seq[process.id] = batch.first_seq - 1
        if steps:
            rows = [row_of(step) for step in steps]
            records = [step for step, row in zip(steps, rows, strict=True) if row is None]
            table = table_of(b"".join(row for row in rows if row is not None))
            self._pieces.append(_Piece([process], [len(table)], table, records))
        others = len(batch.samples) + len(batch.scalars) + len(batch.digests) + len(batch.layouts)
        if others:
            self._batches.append((process.id, msgspec.structs.replace(batch, steps=[])))
        self._rows += len(steps) + others

    def add_rows(self, processes: Sequence[RankProcess], counts: Sequence[int], table: Table) -> None:
        """Append rows of steps, without their batches; `counts` is the number of rows of each process."""
        self.processes |= {process.id: process for process in processes}
        self._pieces.append(_Piece(processes, counts, table))
        self._rows += len(table)

    @property
    def is_large(self) -> bool:
        """Return whether the queue is so long that it must be written without further delay."""
        return self._rows >= LARGE_ROWS

    @property
    def gather_s(self) -> float:
        """Return for how many seconds records are gathered before they are written."""
        return min(MAX_GATHER_S, len(self.processes) * GATHER_S_PER_PROCESS)

    def last_recorded_batch(self, process: RankProcess) -> int:
        """Return the number of the last batch up to which all batches of a process are recorded."""
        return self._recorded_seq.get(process.id, process.seq)

    def pack_steps(self) -> None:
        """Pack the steps that were appended since the last call into blocks."""
        if self._rows:
            self._packed.append(_Packed(self._blocks(), self._batches, self._rows))
            self._pieces, self._batches, self._rows = [], [], 0

    def write(self, db: sqlite3.Connection) -> None:
        """Write the packed rows in the open transaction."""
        for packed in self._packed:
            db.executemany(_PUT_BLOCK, packed.blocks)
            schema.put_batches(db, packed.batches)

    def _blocks(self) -> list[schema.Row]:
        """Return rows of `step_blocks` with the steps of each process."""
        if not self._pieces:
            return []
        records: dict[int, list[Step]] = {}
        for piece in self._pieces:
            if piece.records:
                records.setdefault(piece.processes[0].id, []).extend(piece.records)
        owners = np.concatenate(
            [np.repeat(np.array([each.id for each in piece.processes]), piece.counts) for piece in self._pieces]
        )
        order = np.argsort(owners, kind="stable")
        table, owners = concatenate_rows([piece.table for piece in self._pieces])[order], owners[order]
        begins = np.flatnonzero(np.diff(owners, prepend=-1))
        tables = dict(zip(owners[begins].tolist(), np.split(table, begins[1:]), strict=True)) if len(table) else {}
        return [
            row
            for process in self.processes
            for row in schema.block_rows(process, tables.get(process, table[:0]), records.get(process, []))
        ]

    def clear(self) -> None:
        """Empty the queue after all of its records were written."""
        self._packed.clear()
        self._recorded_seq.clear()
        self.processes = {}

    def drop_oldest(self, max_rows: int) -> int:
        """Drop the oldest packed rows until at most `max_rows` wait, and return the number of dropped steps."""
        waiting = sum(packed.rows for packed in self._packed)
        dropped = 0
        while self._packed and waiting > max_rows:
            packed = self._packed.popleft()
            waiting -= packed.rows
            for process, _, _, count, *_ in packed.blocks:
                self.processes[process].records -= count
                dropped += count
        return dropped


_PUT_BLOCK = schema.insert_sql("step_blocks", "OR REPLACE")
