"""Reader of steps from the blocks in which they are recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from ddpmon.analysis.steps.table import ROW, Table, concatenate_rows, steps_of
from ddpmon.messages import MAX_US, Step, WireError
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

    def __init__(self, report_bad: Callable[[int, int], None]) -> None:
        """Create a reader. It calls `report_bad` with a process and the number of its steps that cannot be read."""
        self._report_bad = report_bad
        self._bad: set[tuple[int, object]] = set()
        """Unreadable blocks by process and first step. They are not decompressed again, which takes as long as for an
        intact block."""

    def steps(self, database: Database, process: int, begin: int, last: int, most: int | None = None) -> list[Step]:
        """Return a process's steps from `begin` to `last`, at most `most`."""
        table, records = self.read_steps(database, process, begin, last, most)
        steps = steps_of(table)
        if records:
            steps = sorted({step.step: step for step in (*steps, *records)}.values(), key=_number)
        return steps[:most]

    def read_steps(self, database: Database, process: int, begin: int, last: int, most: int | None = None) -> Block:
        """Return a process's steps from `begin` to `last`. If they are more than `most`, later ones may be missing."""
        tables: list[Table] = []
        records: list[Step] = []
        count = 0
        for table, further in self._blocks(database, process, begin, last, counts_bad=most is None):
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

    def _blocks(
        self, database: Database, process: int, begin: int, last: int, *, counts_bad: bool = False
    ) -> Iterator[Block]:
        """Yield the blocks with steps from `begin` to `last`.

        If `counts_bad` is True, steps of unreadable blocks are counted, which only a reader of all blocks may do.
        """
        clauses = _FROM
        values: tuple[object, ...] = (process, begin, last, process, begin)
        columns = ("first_step", "count", "rows", "records")
        limit = 1  # Many callers need only the next step, which one block holds.
        while rows := database.read_table(TABLE, columns, f"{clauses} LIMIT {limit}", *values):
            blocks = [None if (process, first) in self._bad else _decoded(*blobs) for first, _, *blobs in rows]
            if not _possible([block for block in blocks if block is not None]):
                blocks = [block if block is not None and _possible([block]) else None for block in blocks]
            for (first, number, *_), block in zip(rows, blocks, strict=True):
                if block is not None:
                    yield block
                    continue
                self._bad.add((process, first))
                lost = number if isinstance(number, int) and 0 < number <= schema.MAX_BLOCK_STEPS else 1
                self._report_bad(process, lost if counts_bad else 0)
            if len(rows) < limit:
                return
            clauses, values, limit = _AFTER, (process, rows[-1][0], last), BLOCKS_PER_READ

    def first_from(self, database: Database, process: int, begin: int, last: int) -> int | None:
        """Return the first of a process's steps from `begin` to `last`, readable or not, or None if there is none."""
        rows = database.read_table(TABLE, ("first_step",), f"{_FROM} LIMIT 1", process, begin, last, process, begin)
        return max(begin, rows[0][0]) if rows and isinstance(rows[0][0], int) else None

    def last_step(self, database: Database, process: int, limit: int) -> int:
        """Return the last step of a process up to `limit`, or 0 if there is none."""
        clauses = "WHERE process = ? AND first_step <= ? ORDER BY first_step DESC LIMIT 1"
        rows = database.read_table(TABLE, ("last_step",), clauses, process, limit)
        return min(limit, rows[0][0]) if rows and isinstance(rows[0][0], int) else 0

    def count_steps(self, database: Database, process: int, limit: int) -> int:
        """Return the number of a process's steps up to `limit`."""
        table, records = self.read_steps(database, process, 1, limit)
        return len({*table["step"].tolist(), *(step.step for step in records)})

    def ends_us(self, database: Database, process: int) -> list[int]:
        """Return the ends of a process's first and last step, or [] if it has no step."""
        ends = [
            at
            for column, order in (("first_end_us", "ASC"), ("last_end_us", "DESC"))
            for (at,) in database.read_table(
                TABLE, (column,), f"WHERE process = ? ORDER BY first_step {order} LIMIT 1", process
            )
        ]
        return [at for at in ends if isinstance(at, int) and 0 <= at < MAX_US]


def _number(step: Step) -> int:
    return step.step


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
