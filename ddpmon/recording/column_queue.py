"""What came in blocks and is to be recorded: gathered for some seconds, then written as a few rows of each process."""

from __future__ import annotations

import sqlite3
import time
from collections import deque
from collections.abc import Sequence

import numpy as np

from ddpmon.analysis.steps.table import Table, joined
from ddpmon.messages import Batch
from ddpmon.recording import schema
from ddpmon.store.processes import RankProcess

EVERY_S = 6.0
"""How long to gather: every piece of a process's steps costs as much as a row. What the hub has not recorded when it is
killed, the hubs of the nodes still have."""
MOST_ROWS = 1 << 20
"""Rows that are gathered at most: some 100 MB."""
HELD_ROWS = 1 << 21
"""Rows that are kept while the disk refuses them, at most. Then the oldest go, counted."""


class ColumnQueue:
    """Batches and the rows of their steps that wait to be written."""

    def __init__(self) -> None:
        self._batches: list[tuple[RankProcess, Batch]] = []
        self._tables: deque[tuple[Sequence[RankProcess], Sequence[int], Table]] = deque()
        """Rows of several processes, so many of each."""
        self._rows = 0
        self._since = 0.0
        self._hurried = False
        self._seq_before: dict[int, int] = {}
        """By process: up to which batch all is recorded, of those of which something waits."""
        self.processes: dict[int, RankProcess] = {}
        """By id: those of which something waits."""

    def __bool__(self) -> bool:
        return bool(self.processes)

    def add(self, process: RankProcess, batch: Batch) -> None:
        """Take a batch without its steps. The process has it already."""
        if not self.processes:
            self._since = time.monotonic()
        if process.id not in self.processes:
            self.processes[process.id] = process
            self._seq_before[process.id] = batch.first_seq - 1
        if batch.samples or batch.scalars or batch.digests:
            self._batches.append((process, batch))

    def add_rows(self, processes: Sequence[RankProcess], counts: Sequence[int], table: Table) -> None:
        """Take rows, so many of each process."""
        self._tables.append((processes, counts, table))
        self._rows += len(table)

    def hurry(self) -> None:
        """Have it written with the next transaction."""
        self._hurried = bool(self)

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return bool(self) and (self._hurried or self._rows >= MOST_ROWS or time.monotonic() - self._since >= EVERY_S)

    def recorded(self, process: RankProcess) -> int | None:
        """Up to which batch a process's are recorded; None: nothing of it waits."""
        return self._seq_before.get(process.id)

    def write(self, db: sqlite3.Connection) -> None:
        """Write all of it, in the transaction that is open."""
        db.executemany(_PUT_BLOCK, self._blocks())
        schema.put_batches(db, [(process.id, batch) for process, batch in self._batches])

    def _blocks(self) -> list[schema.Row]:
        if not self._tables:
            return []
        processes = np.concatenate(
            [np.repeat(np.array([each.id for each in these]), counts) for these, counts, _ in self._tables]
        )
        order = np.argsort(processes, kind="stable")
        table = joined([rows for _, _, rows in self._tables])[order]
        processes = processes[order]
        begins = np.flatnonzero(np.diff(processes, prepend=-1))
        ends = np.append(begins[1:], len(order)).tolist()
        spans = zip(processes[begins].tolist(), begins.tolist(), ends, strict=True)
        return [row for process, begin, end in spans for row in schema.block_rows(process, table[begin:end])]

    def clear(self) -> None:
        """Forget all of it: it is recorded."""
        self._batches.clear()
        self._tables.clear()
        self._seq_before.clear()
        self.processes = {}
        self._rows, self._hurried = 0, False

    def drop(self, most: int = HELD_ROWS) -> int:
        """Throw the oldest rows away until at most so many wait; returns how many went."""
        dropped = 0
        while self._tables and self._rows > most:
            processes, counts, table = self._tables.popleft()
            for process, count in zip(processes, counts, strict=True):
                process.records -= count
            self._rows -= len(table)
            dropped += len(table)
        return dropped


_PUT_BLOCK = schema.insert("step_blocks", "OR REPLACE")
