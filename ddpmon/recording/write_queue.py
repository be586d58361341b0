"""Steps, samples and logged values that wait to be recorded: gathered for a moment, then written as blocks."""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ddpmon.analysis.steps.table import Table, joined, row_of, table_of
from ddpmon.messages import Batch, Step
from ddpmon.recording import schema
from ddpmon.store.processes import RankProcess

MIN_GATHER_S, MAX_GATHER_S = 1.0, 6.0
GATHER_S_PER_PROCESS = 0.01
"""How long to gather: a block costs as much as a row, however many steps are in it. What a hub that is killed has not
recorded, ranks and the hubs of other nodes still have."""
LARGE_ROWS = 1 << 17
"""So many rows are written at once: some 14 MB."""
HELD_ROWS = 1 << 20
"""Rows that are kept while the disk refuses them, at most: some 110 MB. Then the oldest go, counted."""


class _Piece(NamedTuple):
    """What came at one time."""

    processes: Sequence[RankProcess]
    counts: Sequence[int]
    """How many rows of the table are of each process, one after the other."""
    table: Table
    records: Sequence[Step] = ()
    """Steps of the only process that fit into no row."""
    batch: Batch | None = None

    @property
    def rows(self) -> int:
        return 1 + len(self.table) + len(self.records)


class WriteQueue:
    """Batches and the rows of their steps."""

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()
        self._rows = 0
        self._written_at = float("-inf")
        self._is_urgent = False
        self._recorded_seq: dict[int, int] = {}
        """By process: the last recorded batch, of those of which something waits."""
        self.processes: dict[int, RankProcess] = {}
        """By id: those of which something waits."""

    def __bool__(self) -> bool:
        return bool(self.processes)

    def add(self, process: RankProcess, batch: Batch, steps: Sequence[Step]) -> None:
        """Append a batch, which the process counts already. steps: those of its steps that are new."""
        if process.id not in self.processes:
            self.processes[process.id] = process
            self._recorded_seq[process.id] = batch.first_seq - 1
        rows = [row_of(step) for step in steps]
        records = [step for step, row in zip(steps, rows, strict=True) if row is None]
        table = table_of(b"".join(row for row in rows if row is not None))
        self._append(_Piece([process], [len(table)], table, records, batch))

    def add_rows(self, processes: Sequence[RankProcess], counts: Sequence[int], table: Table) -> None:
        """Append rows of processes whose batches were added, so many of each."""
        self._append(_Piece(processes, counts, table))

    def _append(self, piece: _Piece) -> None:
        self._pieces.append(piece)
        self._rows += piece.rows

    def hurry(self) -> None:
        """Have it written with the next transaction."""
        self._is_urgent = bool(self)

    @property
    def is_large(self) -> bool:
        """Whether too much waits to gather more."""
        return self._rows >= LARGE_ROWS

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        gather_s = min(MAX_GATHER_S, max(MIN_GATHER_S, len(self.processes) * GATHER_S_PER_PROCESS))
        return bool(self) and (self._is_urgent or self.is_large or time.monotonic() - self._written_at >= gather_s)

    def recorded(self, process: RankProcess) -> int:
        """Return the number of the batch up to which all of a process's are recorded."""
        return self._recorded_seq.get(process.id, process.seq)

    def write(self, db: sqlite3.Connection) -> None:
        """Write all of it, in the transaction that is open."""
        db.executemany(_PUT_BLOCK, self._blocks())
        batches = [(piece.processes[0].id, piece.batch) for piece in self._pieces if piece.batch is not None]
        schema.put_batches(db, batches)
        layouts = [(process, each.number, msgspec.msgpack.encode(each)) for process, b in batches for each in b.layouts]
        db.executemany(_PUT_LAYOUT, layouts)

    def _blocks(self) -> list[schema.Row]:
        """Return rows of `step_blocks`: what waits of each process."""
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
        table, owners = joined([piece.table for piece in self._pieces])[order], owners[order]
        begins = np.flatnonzero(np.diff(owners, prepend=-1))
        tables = dict(zip(owners[begins].tolist(), np.split(table, begins[1:]), strict=True)) if len(table) else {}
        return [
            row
            for process in self.processes
            for row in schema.block_rows(process, tables.get(process, table[:0]), records.get(process, []))
        ]

    def clear(self) -> None:
        """Forget all of it: it is recorded."""
        self._pieces.clear()
        self._recorded_seq.clear()
        self.processes = {}
        self._rows, self._is_urgent, self._written_at = 0, False, time.monotonic()

    def drop(self, most: int) -> int:
        """Drop the oldest until at most so many rows wait; returns how many steps went."""
        dropped = 0
        while self._pieces and self._rows > most:
            piece = self._pieces.popleft()
            self._rows -= piece.rows
            for process, count in zip(piece.processes, piece.counts, strict=True):
                process.records -= count + len(piece.records)
            dropped += len(piece.table) + len(piece.records)
        return dropped


_PUT_BLOCK = schema.insert("step_blocks", "OR REPLACE")
_PUT_LAYOUT = schema.insert("layouts", "OR IGNORE")
