"""Reader of steps from the blocks in which they are recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from operator import attrgetter

import msgspec
import numpy as np

from ddpmon.analysis.steps.table import ROW, Table, concatenate_rows, steps_of
from ddpmon.messages import MAX_STEP, MAX_US, Step, WireError
from ddpmon.messages.steps import check_step
from ddpmon.recording import schema
from ddpmon.recording.database import Database
from ddpmon.recording.node_blocks import check_rows

TABLE = "step_blocks"
BLOCKS_PER_READ = 64
NO_ROWS = np.zeros(0, ROW)
_FROM = """
WHERE process = ? AND last_step >= ? AND first_step <= ? AND first_step >= coalesce(
    (SELECT max(first_step) FROM step_blocks WHERE process = ? AND first_step <= ?), 0) ORDER BY first_step
"""
"""Selects the blocks with steps in a range: from the last block that begins at or before the range's first step."""
_AFTER = "WHERE process = ? AND first_step > ? AND first_step <= ? ORDER BY first_step"

Block = tuple[Table, list[Step]]
"""Steps that are rows of a table, and those that do not fit into a row."""


class StepBlocks:
    """Reader of the blocks of one recording."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.limits: dict[int, int] = {}
        """The last step that a process can have reached, for each process whose counters were checked."""
        self.unread = Counter[int]()
        """Number of step records of each process that could not be read so far."""
        self._bad: set[tuple[int, object]] = set()
        """Unreadable blocks by process and first step. They are not decompressed again, which takes as long as for an
        intact block."""

    def steps(self, process: int, begin: int, end: int = MAX_STEP, most: int | None = None) -> list[Step]:
        """Return a process's steps from `begin` to before `end`, at most `most`."""
        table, records = self.read_steps(process, begin, end, most)
        steps = steps_of(table)
        if records:
            steps = sorted({step.step: step for step in (*steps, *records)}.values(), key=attrgetter("step"))
        return steps[:most]

    def read_steps(self, process: int, begin: int, end: int = MAX_STEP, most: int | None = None) -> Block:
        """Return a process's steps from `begin` to before `end`. If they are more than `most`, later ones may be
        missing.
        """
        last = min(end - 1, self._limit(process))
        tables: list[Table] = []
        records: list[Step] = []
        count = 0
        for table, further in self._blocks(process, begin, last, counts_bad=most is None):
            tables.append(table if tables else table[table["step"] >= begin])
            records += [step for step in further if begin <= step.step <= last]
            count += len(tables[-1]) + len(further)
            if most is not None and count >= most:
                break
        if not tables:
            return NO_ROWS, []
        table = concatenate_rows(tables)
        _, places = np.unique(table["step"], return_index=True)  # A batch that was sent again may be in two blocks.
        return table[places[table["step"][places] <= last]], records

    def _limit(self, process: int) -> int:
        return self.limits.get(process, MAX_STEP)

    def _blocks(self, process: int, begin: int, last: int, *, counts_bad: bool = False) -> Iterator[Block]:
        """Yield the blocks with steps from `begin` to `last`.

        If `counts_bad` is True, steps of unreadable blocks are counted, which only a reader of all blocks may do.
        """
        clauses = _FROM
        values: tuple[object, ...] = (process, begin, last, process, begin)
        columns = ("first_step", "count", "rows", "records")
        limit = 1  # Many callers need only the next step, which one block holds.
        while rows := self._database.read_table(TABLE, columns, f"{clauses} LIMIT {limit}", *values):
            blocks = [None if (process, first) in self._bad else _decoded(*blobs) for first, _, *blobs in rows]
            if not _possible([block for block in blocks if block is not None]):
                blocks = [block if block is not None and _possible([block]) else None for block in blocks]
            for (first, number, *_), block in zip(rows, blocks, strict=True):
                if block is not None:
                    yield block
                    continue
                self._bad.add((process, first))
                self._database.damaged = True
                if counts_bad:
                    self.unread[process] += (
                        number if isinstance(number, int) and 0 < number <= schema.MAX_BLOCK_STEPS else 1
                    )
            if len(rows) < limit:
                return
            clauses, values, limit = _AFTER, (process, rows[-1][0], last), BLOCKS_PER_READ

    def stretches(self, processes: Iterable[int], begin: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of `size` steps in which processes have records: the first step, and the one after the last."""
        while True:
            firsts = [first for each in processes if (first := self._first_from(each, begin)) is not None]
            if not firsts:
                return
            begin = min(firsts) + size
            yield begin - size, begin

    def _first_from(self, process: int, begin: int) -> int | None:
        """Return the first of a process's steps from `begin` on, readable or not, or None if there is none."""
        values = process, begin, self._limit(process), process, begin
        rows = self._database.read_table(TABLE, ("first_step",), f"{_FROM} LIMIT 1", *values)
        return max(begin, rows[0][0]) if rows and isinstance(rows[0][0], int) else None

    def last_step(self, process: int) -> int:
        """Return the last step of a process, or 0 if there is none."""
        limit = self._limit(process)
        clauses = "WHERE process = ? AND first_step <= ? ORDER BY first_step DESC LIMIT 1"
        rows = self._database.read_table(TABLE, ("last_step",), clauses, process, limit)
        return min(limit, rows[0][0]) if rows and isinstance(rows[0][0], int) else 0

    def first_step_after(self, process: int, at_us: int, last: int) -> int:
        """Return the first of a process's steps up to `last` that ends after a moment, or last + 1 if none does."""
        low, high = 1, last + 1
        while low < high:
            middle = (low + high) // 2
            steps = self.steps(process, middle, most=1)
            if not steps or steps[0].end_us > at_us:
                high = middle
            else:
                low = steps[0].step + 1
        return low

    def count_steps(self, process: int) -> int:
        """Return the number of a process's steps."""
        table, records = self.read_steps(process, 1)
        return len({*table["step"].tolist(), *(step.step for step in records)})

    def span_us(self, process: int) -> list[int]:
        """Return the moments of a process's first and last sample and step, as far as there are any."""
        ends = [
            at
            for table, columns, key in (
                ("samples", ("time_us", "time_us"), "time_us"), (TABLE, ("first_end_us", "last_end_us"), "first_step"),
            )
            for column, order in zip(columns, ("ASC", "DESC"), strict=True)
            for (at,) in self._database.read_table(
                table, (column,), f"WHERE process = ? ORDER BY {key} {order} LIMIT 1", process
            )
        ]  # fmt: skip
        return [at for at in ends if isinstance(at, int) and 0 <= at < MAX_US]


def _decoded(rows: object, records: object) -> Block | None:
    """Return the steps in a block, or None if it cannot be read."""
    try:
        return schema.block_steps(rows, records)
    except (ValueError, msgspec.MsgspecError):
        return None


def _possible(blocks: list[Block]) -> bool:
    """Return whether all steps of some blocks are possible. Checking many rows at once takes as long as checking a
    few.
    """
    try:
        check_rows(concatenate_rows([NO_ROWS, *(table for table, _ in blocks)]))
        for _, records in blocks:
            for step in records:
                check_step(step)
    except WireError:
        return False
    return True
