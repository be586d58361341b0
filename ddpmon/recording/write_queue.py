"""Steps, samples and logged values that wait to be recorded: gathered for a moment, then written as blocks."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ddpmon.analysis.steps.table import Table, joined, row_of, table_of
from ddpmon.messages import Batch, Step
from ddpmon.recording import schema
from ddpmon.store.processes import RankProcess

MAX_GATHER_S = 6.0
GATHER_S_PER_PROCESS = 1 / 128
"""Time to gather steps: a block costs as much as a row, however many steps are in it. Up to 64 ranks are written with
every tick of the hub."""
LARGE_ROWS = 1 << 17
"""So many rows are written at once: some 14 MB."""
MAX_HELD_ROWS = 1 << 19
"""Rows that are kept while the disk refuses them: some 25 MB of steps. Then the oldest go, counted."""


class _Piece(NamedTuple):
    """Steps that came at one time."""

    processes: Sequence[RankProcess]
    counts: Sequence[int]
    """Count of the rows of each process, one after the other."""
    table: Table
    records: Sequence[Step] = ()
    """Steps of the only process that fit into no row."""


class _Packed(NamedTuple):
    """Rows that came in between two attempts to write, as they are written."""

    blocks: list[schema.Row]
    batches: list[tuple[int, Batch]]
    rows: int


class WriteQueue:
    """Batches and the rows of their steps. A disk that refuses them is offered the same blocks again."""

    def __init__(self) -> None:
        self._packed: deque[_Packed] = deque()
        self._pieces: list[_Piece] = []
        self._batches: list[tuple[int, Batch]] = []
        """Batches without their steps, each with the number of its process."""
        self._rows = 0
        """Rows in pieces and batches."""
        self._recorded_seq: dict[int, int] = {}
        """Last recorded batch of each process of which something waits."""
        self.processes: dict[int, RankProcess] = {}
        """Processes of which something waits, by id."""

    def __bool__(self) -> bool:
        return bool(self.processes)

    def add(self, process: RankProcess, batch: Batch, steps: Sequence[Step]) -> None:
        """Append a batch, which the process counts already. steps: those of its steps that are new."""
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
        """Append rows of processes whose batches are added, so many of each."""
        self.processes |= {process.id: process for process in processes}
        self._pieces.append(_Piece(processes, counts, table))
        self._rows += len(table)

    @property
    def is_large(self) -> bool:
        """Return whether too much waits to gather more."""
        return self._rows >= LARGE_ROWS

    @property
    def gather_s(self) -> float:
        """Return how long to gather before all that waits is written."""
        return min(MAX_GATHER_S, len(self.processes) * GATHER_S_PER_PROCESS)

    def recorded(self, process: RankProcess) -> int:
        """Return the number of the batch up to which all of a process's are recorded."""
        return self._recorded_seq.get(process.id, process.seq)

    def pack(self) -> None:
        """Make blocks of the steps that came since the last time."""
        if self._rows:
            self._packed.append(_Packed(self._blocks(), self._batches, self._rows))
            self._pieces, self._batches, self._rows = [], [], 0

    def write(self, db: sqlite3.Connection) -> None:
        """Write what is packed, in the transaction that is open."""
        for packed in self._packed:
            db.executemany(_PUT_BLOCK, packed.blocks)
            schema.put_batches(db, packed.batches)

    def _blocks(self) -> list[schema.Row]:
        """Return rows of `step_blocks`: the steps of each process."""
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
        self._packed.clear()
        self._recorded_seq.clear()
        self.processes = {}

    def drop(self, max_rows: int) -> int:
        """Drop the oldest of what is packed until at most so many rows wait; return the number of dropped steps."""
        waiting = sum(packed.rows for packed in self._packed)
        dropped = 0
        while self._packed and waiting > max_rows:
            packed = self._packed.popleft()
            waiting -= packed.rows
            for process, _, _, count, *_ in packed.blocks:
                self.processes[process].records -= count
                dropped += count
        return dropped


_PUT_BLOCK = schema.insert("step_blocks", "OR REPLACE")
