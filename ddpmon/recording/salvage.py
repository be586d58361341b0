"""Read a damaged telemetry.db: every row that SQLite still reaches, around the pages that it cannot read."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ddpmon.messages import MAX_US
from ddpmon.recording import schema
from ddpmon.recording.tables import KEYS, TABLES
from ddpmon.runs import plain_file

PAGE_BYTES = 4096
"""Size of a page as SQLite makes it."""


def salvage(path: Path, *, is_damaged: bool) -> sqlite3.Connection:
    """Return a copy of a recording that SQLite refuses to read, in a database that goes away with its connection.

    SQLite reads a copy of the file and its log or journal: it may write beside that one, as it must to undo a
    transaction that was cut short.

    Args:
        path: The recording.
        is_damaged: Copy row by row instead of all of it at once.

    Raises:
        OSError: The file cannot be copied.
        sqlite3.Error: SQLite reads nothing of it.

    """
    salvaged = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    try:
        with tempfile.TemporaryDirectory(prefix="ddpmon-") as folder:
            copy = Path(folder) / path.name
            for suffix in ("", "-wal", "-journal"):
                with contextlib.suppress(FileNotFoundError), plain_file.opened(Path(f"{path}{suffix}")) as source:
                    shutil.copyfile(f"/dev/fd/{source.fileno()}", f"{copy}{suffix}")
            if is_damaged:  # half of a page would be read as a whole one, the rest zeros
                os.truncate(copy, copy.stat().st_size // PAGE_BYTES * PAGE_BYTES)
            with contextlib.closing(sqlite3.connect(copy)) as db:
                db.execute("PRAGMA writable_schema=ON")  # a file that was cut is read up to there
                if is_damaged:
                    _copy_rows(db, salvaged)
                else:
                    db.backup(salvaged)
        schema.make(salvaged)
    except BaseException:
        salvaged.close()
        raise
    return salvaged


def _copy_rows(db: sqlite3.Connection, salvaged: sqlite3.Connection) -> None:
    """Copy each table as far as it can be read; of those of a process, its rows for each process."""
    db.text_factory = lambda raw: raw.decode(errors="replace")
    schema.make(salvaged)
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    salvaged.execute("PRAGMA journal_mode=OFF")
    salvaged.execute("BEGIN")
    for table in TABLES:  # `processes` is before those that need it
        if table not in tables:
            continue
        owner, key, *_ = (*KEYS[table], "") if table in KEYS else ("rowid", "")
        owners: list[tuple[int, ...]] = [()]
        if owner == "process":
            owners = salvaged.execute("SELECT id FROM processes").fetchall()
        else:
            key = owner
        clauses = f"WHERE {'process = ? AND' if owner == 'process' else ''} {key} > ? ORDER BY {key}"
        with contextlib.suppress(sqlite3.Error):
            query = schema.select(table, [column.name for column in TABLES[table]], clauses)
            query = query.replace("SELECT", f"SELECT {key},", 1)
            for each in owners:
                salvaged.executemany(schema.insert(table, "OR IGNORE"), _reachable_rows(db, query, each))
    salvaged.execute("COMMIT")


def _reachable_rows(db: sqlite3.Connection, query: str, owner: tuple[int, ...]) -> Iterator[tuple[object, ...]]:
    """Yield rows in the order of their key, which comes first, and go on behind what cannot be read."""
    after, stride = -1, 1
    while after < MAX_US:
        try:
            for key, *row in db.execute(query, (*owner, after)):
                yield tuple(row)
                if isinstance(key, int):
                    after, stride = key, 1
            return
        except sqlite3.DatabaseError:
            after, stride = after + stride, 2 * stride
