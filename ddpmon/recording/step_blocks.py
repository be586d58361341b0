"""Reads steps that are recorded many together: of ranks that came to the root of several nodes in blocks."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from ddpmon.analysis.steps.table import ROW, Table, from_column_bytes, joined, steps_of
from ddpmon.messages import MAX_US, Step, WireError
from ddpmon.recording.database import Database
from ddpmon.recording.node_blocks import check_rows

TABLE = "step_blocks"
MOST_BYTES = 256 << 20
"""Of the steps of one row, once they are decompressed: far more than are gathered."""
MOST = 1 << 20
"""Steps of one row that are believed lost with it, at most."""
NO_ROWS = np.zeros(0, ROW)
_FROM = """
WHERE process = ? AND last_step >= ? AND first_step <= ? AND first_step >= coalesce(
    (SELECT max(first_step) FROM step_blocks WHERE process = ? AND first_step <= ?), 0) ORDER BY first_step
"""
"""A block that holds a step begins with it or before, and none begins in between."""


class StepBlocks:
    """The blocks of one recording. report_bad(process, count): is told of steps that could not be read."""

    def __init__(self, report_bad: Callable[[int, int], None]) -> None:
        self._report_bad = report_bad

    def steps(self, database: Database, process: int, begin: int, last: int, most: int | None = None) -> list[Step]:
        """A process's steps from one to another, at most so many."""
        return steps_of(self.rows(database, process, begin, last, most))

    def rows(self, database: Database, process: int, begin: int, last: int, most: int | None = None) -> Table:
        """A process's steps from one to another, at most so many, as rows of a table."""
        values = (process, begin, last, process, begin)
        tables: list[Table] = []
        count = 0
        limit = "" if most is None else f"LIMIT {most}"  # each holds a step at least, but for the first
        for number, blob in database.read(TABLE, ("count", "rows"), f"{_FROM} {limit}", *values):
            table = _rows(blob)
            if table is None:
                lost = number if isinstance(number, int) and 0 < number <= MOST else 1
                self._report_bad(process, 0 if most else lost)  # who goes through all of them counts
                continue
            table = table[(table["step"] >= begin) & (table["step"] <= last)]
            tables.append(table)
            count += len(table)
            if most is not None and count >= most:
                break
        if not tables:
            return NO_ROWS
        table = joined(tables)
        _, places = np.unique(table["step"], return_index=True)  # a batch that was sent again may be in two of them
        return table[places[:most]]

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
        return len(self.rows(database, process, 1, limit))

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
    if not isinstance(blob, bytes):
        return None
    inflating = zlib.decompressobj()
    try:
        table = from_column_bytes(inflating.decompress(blob, MOST_BYTES))
        check_rows(table)
    except (zlib.error, ValueError, WireError):
        return None
    return table if inflating.eof else None
