"""Reads steps that are recorded many together: of ranks that came to the root of several nodes in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ddpmon.analysis.steps.table import ROW, Table, joined, steps_of
from ddpmon.messages import MAX_US, Step, WireError
from ddpmon.recording import schema
from ddpmon.recording.database import Database
from ddpmon.recording.node_blocks import check_rows

TABLE = "step_blocks"
AT_ONCE = 8
"""Blocks that are read from the file at once."""
NO_ROWS = np.zeros(0, ROW)
_FROM = """
WHERE process = ? AND last_step >= ? AND first_step <= ? AND first_step >= coalesce(
    (SELECT max(first_step) FROM step_blocks WHERE process = ? AND first_step <= ?), 0) ORDER BY first_step
"""
"""A block that holds a step begins with it or before, and none begins in between."""
_AFTER = "WHERE process = ? AND first_step > ? AND first_step <= ? ORDER BY first_step"


class StepBlocks:
    """The blocks of one recording. report_bad(process, count): is told of steps that could not be read."""

    def __init__(self, report_bad: Callable[[int, int], None]) -> None:
        self._report_bad = report_bad
        self._bad: set[tuple[int, object]] = set()
        """Blocks that cannot be read, by process and first step: decompressing one takes as long as a good one."""

    def steps(self, database: Database, process: int, begin: int, last: int, most: int | None = None) -> list[Step]:
        """A process's steps from one to another, at most so many."""
        return steps_of(self.rows(database, process, begin, last, most))

    def rows(self, database: Database, process: int, begin: int, last: int, most: int | None = None) -> Table:
        """A process's steps from one to another, at most so many, as rows of a table."""
        tables: list[Table] = []
        count = 0
        for table in self._tables(database, process, begin, last, counts_bad=most is None):
            tables.append(table)
            count += len(table)
            if most is not None and count >= most:
                break
        if not tables:
            return NO_ROWS
        table = joined(tables)
        _, places = np.unique(table["step"], return_index=True)  # a batch that was sent again may be in two of them
        return table[places[:most]]

    def _tables(
        self, database: Database, process: int, begin: int, last: int, *, counts_bad: bool = False
    ) -> Iterator[Table]:
        """A process's steps from one to another, block by block. counts_bad: who goes through all of them counts."""
        clauses = _FROM
        values: tuple[object, ...] = (process, begin, last, process, begin)
        while rows := database.read(TABLE, ("first_step", "count", "rows"), f"{clauses} LIMIT {AT_ONCE}", *values):
            for first, number, blob in rows:
                table = None if (process, first) in self._bad else _rows(blob)
                if table is not None:
                    yield table[(table["step"] >= begin) & (table["step"] <= last)]
                    continue
                self._bad.add((process, first))
                lost = number if isinstance(number, int) and 0 < number <= schema.BLOCK_STEPS else 1
                self._report_bad(process, lost if counts_bad else 0)
            if len(rows) < AT_ONCE:
                return
            clauses, values = _AFTER, (process, rows[-1][0], last)

    def first_from(self, database: Database, process: int, begin: int, last: int) -> int | None:
        """The first of a process's steps between two."""
        steps = self.steps(database, process, begin, last, 1)
        return steps[0].step if steps else None

    def last(self, database: Database, process: int, limit: int) -> int:
        """The last step of a process; 0: there is none."""
        clauses = "WHERE process = ? AND first_step <= ? ORDER BY first_step DESC LIMIT 1"
        rows = database.read(TABLE, ("last_step",), clauses, process, limit)
        return min(limit, rows[0][0]) if rows and isinstance(rows[0][0], int) else 0

    def count(self, database: Database, process: int, limit: int) -> int:
        """How many steps of a process there are up to one."""
        tables = self._tables(database, process, 1, limit, counts_bad=True)
        return len(np.unique(np.concatenate([NO_ROWS["step"], *(np.array(table["step"]) for table in tables)])))

    def ends_us(self, database: Database, process: int) -> list[int]:
        """When a process's first and last step ended."""
        ends = [
            at
            for column, order in (("first_end_us", "ASC"), ("last_end_us", "DESC"))
            for (at,) in database.read(
                TABLE, (column,), f"WHERE process = ? ORDER BY first_step {order} LIMIT 1", process
            )
        ]
        return [at for at in ends if isinstance(at, int) and 0 <= at < MAX_US]


def _rows(blob: object) -> Table | None:
    """A block's rows; None where they cannot be read."""
    try:
        table = schema.block_steps(blob)
        check_rows(table)
    except (ValueError, WireError):
        return None
    return table
