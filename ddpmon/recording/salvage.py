"""Makes of a damaged telemetry.db one that can be read: every row that is whole, whatever else is gone.

SQLite refuses a file that was cut, though all but its last page be there. Here each page is looked at by itself: rows
of a table are reached from its root down, and those of pages that nothing leads to any more by their shape.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ddpmon.recording import schema
from ddpmon.recording.pages import Cell, Pages, Value
from ddpmon.recording.tables import KEYS, TABLES

_ROW_NUMBER = "INTEGER PRIMARY KEY"
"""How a column is declared that is the row's number: a record does not hold it."""
_NONE = type(None)
_ANY = (_NONE, int, float, str, bytes)
_TYPES: dict[str, tuple[type, ...]] = {
    "INTEGER": (_NONE, int),
    "REAL": (_NONE, float, int),
    "TEXT": (_NONE, str),
    "BLOB": (_NONE, bytes),
}


def salvage(path: Path) -> sqlite3.Connection:
    """What is left of a recording, in a database that goes away with its connection. OSError: it cannot be opened."""
    db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode=OFF")
        schema.make(db)
        db.execute("BEGIN")
        with Pages(path) as pages:
            for table, cells in _tables(pages):
                _put(db, table, cells)
        db.execute("COMMIT")
    except BaseException:
        db.close()
        raise
    return db


def _tables(pages: Pages) -> Iterator[tuple[str, list[Cell]]]:
    """Rows, a page at a time, and the table that they are of."""
    visited = pages.free() | {1}
    for name, root in _roots(pages):
        for number in _below(pages, root, visited):
            cells = [cell for cell in pages.cells(number) if name in _SHAPES and _SHAPES[name].fits(cell)]
            if cells:
                yield name, cells
    for number in range(2, pages.count + 1):
        if number not in visited:
            cells = list(pages.cells(number))
            if cells and (table := _table_of(cells)):
                yield table, cells


def _roots(pages: Pages) -> list[tuple[str, int]]:
    """Of each table and index its name and first page, as the schema says it."""
    roots = []
    for number in _below(pages, 1, set()):
        for cell in pages.cells(number):
            kind, name, _, root = [*cell.record[:4], None, None, None, None][:4]
            if kind in ("table", "index") and isinstance(name, str) and isinstance(root, int) and root > 1:
                roots.append((name if kind == "table" else "", root))
    return roots


def _below(pages: Pages, root: int, visited: set[int]) -> Iterator[int]:
    """A page and all below it that were not seen before."""
    waiting = [root]
    while waiting:
        number = waiting.pop()
        if number in visited or not 0 < number <= pages.count:
            continue
        visited.add(number)
        yield number
        waiting += reversed(pages.children(number))


class _Shape:
    """What a row of a table looks like on a page."""

    def __init__(self, table: str) -> None:
        kinds = {column.name: column.kind for column in TABLES[table]}
        keys = list(KEYS.get(table, ()))
        self.keyed = len(keys)
        """Columns of the key; 0: rows have numbers."""
        self.order = keys + [name for name in kinds if name not in keys]
        """Columns as they lie in a record."""
        self.types = [_TYPES.get(kinds[name].partition(" ")[0], _ANY) for name in self.order]
        self.numbered = next((i for i, kind in enumerate(kinds.values()) if kind == _ROW_NUMBER), None)
        """The column that is the row's number."""
        has_rowid = not keys and self.numbered is None
        self.columns = ", ".join(f'"{name}"' for name in (*(["rowid"] if has_rowid else []), *self.order))

    def fits(self, cell: Cell) -> bool:
        """Whether a row can be one of the table."""
        record = cell.record
        if (cell.rowid is None) != bool(self.keyed) or not max(2, self.keyed + 1) <= len(record):
            return False
        if any(value is None for value in record[: self.keyed]):
            return False
        return all(map(isinstance, record, self.types))

    def evidence(self, cell: Cell) -> int:
        """How well a row fits, to choose between several tables that it could be of."""
        matching = sum(value is not None and kind != _ANY for value, kind in zip(cell.record, self.types, strict=False))
        return matching - 2 * abs(len(cell.record) - len(self.order))

    def row(self, cell: Cell) -> Sequence[Value]:
        """Its values in the order of `columns`."""
        values = [*cell.record[: len(self.order)], *[None] * (len(self.order) - len(cell.record))]
        if self.numbered is not None:
            values[self.numbered] = cell.rowid
            return values
        return values if self.keyed else [cell.rowid, *values]


_SHAPES = {table: _Shape(table) for table in TABLES}


def _table_of(cells: Sequence[Cell]) -> str | None:
    """Which table the rows of a page are of; None: of none."""
    fitting = [table for table, shape in _SHAPES.items() if all(map(shape.fits, cells))]
    if "steps" in fitting:
        syncs = _SHAPES["steps"].order.index("syncs")
        if any(len(cell.record) <= syncs or not isinstance(cell.record[syncs], bytes) for cell in cells):
            fitting.remove("steps")
    return max(fitting, key=lambda table: sum(map(_SHAPES[table].evidence, cells)), default=None)


def _put(db: sqlite3.Connection, table: str, cells: Iterable[Cell]) -> None:
    shape = _SHAPES[table]
    rows = [shape.row(cell) for cell in cells]
    marks = ", ".join("?" * len(rows[0]))
    query = f"INSERT OR IGNORE INTO {table} ({shape.columns}) VALUES ({marks})"  # noqa: S608  names are ours
    db.executemany(query, rows)
