"""Read access to telemetry.db: to the file itself, or if the file is damaged, to a copy of the rows that SQLite can
still read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ddpmon.errors import NothingRecordedError, RecordingError
from ddpmon.messages import MAX_US
from ddpmon.recording import schema
from ddpmon.recording.tables import PRIMARY_KEYS, TABLES
from ddpmon.runs import plain_file
from ddpmon.store.clock import Clock

PAGE_BYTES = 4096
"""Default size of a page of SQLite."""


def salvage(path: Path, *, is_damaged: bool) -> sqlite3.Connection:
    """Return a copy of a recording that SQLite refuses to read, in a temporary database that closing deletes.

    SQLite reads a copy of the file and of its log or journal. To undo an interrupted transaction, SQLite may have to
    write into the file's folder.

    Args:
        path: The recording.
        is_damaged: True if the file itself is damaged, so that rows are copied one by one instead of all at once.

    Raises:
        OSError: The file cannot be copied.
        sqlite3.Error: SQLite can read no part of the recording.

    """
    salvaged = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    try:
        with tempfile.TemporaryDirectory(prefix="ddpmon-") as folder:
            copy = Path(folder) / path.name
            for suffix in ("", "-wal", "-journal"):
                with contextlib.suppress(FileNotFoundError), plain_file.opened(Path(f"{path}{suffix}")) as source:
                    shutil.copyfile(f"/dev/fd/{source.fileno()}", f"{copy}{suffix}")
            if is_damaged:  # SQLite would read half a page as a whole one, filled with zeros.
                os.truncate(copy, copy.stat().st_size // PAGE_BYTES * PAGE_BYTES)
            with contextlib.closing(sqlite3.connect(copy)) as db:
                db.execute("PRAGMA writable_schema=ON")  # SQLite then reads a truncated file up to its end
                if is_damaged:
                    _copy_rows(db, salvaged)
                else:
                    db.backup(salvaged)
        schema.create_tables(salvaged)
    except BaseException:
        salvaged.close()
        raise
    return salvaged


def _copy_rows(db: sqlite3.Connection, salvaged: sqlite3.Connection) -> None:
    """Copy the readable rows of each table. Tables with a column `process` are copied process by process."""
    db.text_factory = lambda raw: raw.decode(errors="replace")
    schema.create_tables(salvaged)
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    salvaged.execute("PRAGMA journal_mode=OFF")
    salvaged.execute("BEGIN")
    for table in TABLES:  # `processes` comes before the tables that refer to it.
        if table not in tables:
            continue
        owner, key, *_ = (*PRIMARY_KEYS[table], "") if table in PRIMARY_KEYS else ("rowid", "")
        owners: list[tuple[int, ...]] = [()]
        if owner == "process":
            owners = salvaged.execute("SELECT id FROM processes").fetchall()
        else:
            key = owner
        clauses = f"WHERE {'process = ? AND' if owner == 'process' else ''} {key} > ? ORDER BY {key}"
        with contextlib.suppress(sqlite3.Error):
            query = schema.select_sql(table, [column.name for column in TABLES[table]], clauses)
            query = query.replace("SELECT", f"SELECT {key},", 1)
            for each in owners:
                salvaged.executemany(schema.insert_sql(table, "OR IGNORE"), _reachable_rows(db, query, each))
    salvaged.execute("COMMIT")


def _reachable_rows(db: sqlite3.Connection, query: str, owner: tuple[int, ...]) -> Iterator[tuple[object, ...]]:
    """Yield rows in the order of their key, which is their first column, and skip rows that cannot be read."""
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


BUSY_TIMEOUT_S = 2.0
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_READABLE_AS_COPY = {*_DAMAGED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
"""Errors after which a copy of the file may still be readable. SQLite opens no write-ahead log in a folder without
write permission. A read-only connection cannot undo the transaction of a writer that was killed."""
_UNREADABLE = (sqlite3.Error, OverflowError, UnicodeDecodeError)
"""Errors that a query raises. UnicodeDecodeError occurs if SQLite's own message quotes a damaged schema."""
_NEEDED = {"processes", "step_blocks"}


class Database:
    """Read access to the rows of a recording. Its methods raise a RecordingError of one line if the recording cannot be
    read.
    """

    def __init__(self, path: Path, name: str, db: sqlite3.Connection | None = None) -> None:
        """Open the file at `path` of the run `name`, or use the connection `db` instead of the file."""
        self.path = path
        self.salvaged = False
        """True if SQLite refuses the file, so that rows are read from a salvaged copy."""
        self.corrupt = False
        """True if the file itself is damaged, so that the copy lacks rows. SQLite also refuses an intact file, for
        instance after a disk error."""
        self.damaged = False
        """True if some of the recording could not be read."""
        self.on_salvage: Callable[[], None] | None = None
        """Called when a salvaged copy replaces the copy in memory. Rows that were written to the copy in memory are
        lost."""
        self._in_memory = db is not None
        self._db = db or _open(path, name)
        self._db.text_factory = _text
        try:
            self.tables = self._find_tables()
        except BaseException:
            self.close()
            raise

    @classmethod
    def empty_recording(cls, path: Path, run_id: str, clock: Clock) -> Database:
        """Return an empty recording in memory, for a run of which nothing was recorded."""
        db = _memory()
        schema.create_tables(db)
        db.executemany(schema.insert_sql("meta"), schema.meta_rows(run_id, clock).items())
        return cls(path, "", db)

    def close(self) -> None:
        self._db.close()

    def read_table(self, table: str, columns: Sequence[str], clauses: str, *values: object) -> list[Any]:
        """Return rows of a table, or [] if the table does not exist."""
        if table not in self.tables:
            return []
        return self._tried(lambda: self._db.execute(schema.select_sql(table, columns, clauses), values).fetchall())

    def rows(self, query: str, *values: object) -> list[Any]:
        """Return the rows of a query."""
        return self._tried(lambda: self._db.execute(query, values).fetchall())

    def writable_copy(self) -> sqlite3.Connection:
        """Return a writable copy in memory, from which this object reads from now on. Closing discards the copy."""
        if not self._in_memory:
            copy = _memory()
            try:
                self._db.backup(copy)
                schema.create_tables(copy)
            except sqlite3.Error as error:
                copy.close()
                self._salvage(error)
            else:
                self._db.close()
                self._go_on_with(copy)
        return self._db

    def write_to(self, path: Path) -> None:
        """Write the whole recording to a new file, or raise sqlite3.Error."""
        new = sqlite3.connect(path)
        try:
            self._db.backup(new)
        finally:
            new.close()

    def unreadable(self, error: Exception) -> RecordingError:
        """Return an error that says in one line why nothing can be read."""
        return RecordingError(f"{self.path} cannot be read: {error}")

    def _find_tables(self) -> set[str]:
        """Return the names of the existing tables. Views are left out, because a view in a manipulated file could have
        endless rows.
        """
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
        all_names = {name for (name,) in self._tried(lambda: self._db.execute(query).fetchall())}
        tables = all_names & TABLES.keys()
        if not all_names and not self.salvaged:
            raise NothingRecordedError(f"{self.path} is empty, because ddpmon recorded nothing")
        if not tables:
            raise RecordingError(f"{self.path} is not a recording of ddpmon")
        self.damaged |= not tables >= _NEEDED
        return tables

    def _tried(self, read: Callable[[], list[Any]]) -> list[Any]:
        """Return the rows of a query. If SQLite refuses the file, return the rows that can be read from a salvaged
        copy.
        """
        try:
            return read()
        except _UNREADABLE as error:
            self._salvage(error)
        try:
            return read()
        except _UNREADABLE as error:
            raise self.unreadable(error) from None

    def _salvage(self, error: sqlite3.Error | OverflowError | UnicodeDecodeError) -> None:
        is_no_text = isinstance(error, UnicodeDecodeError)
        code = sqlite3.SQLITE_CORRUPT if is_no_text else getattr(error, "sqlite_errorcode", 0) & 0xFF
        if self.salvaged or code not in _READABLE_AS_COPY:
            raise self.unreadable(error) from None
        is_damaged = code in _DAMAGED
        try:
            salvaged = salvage(self.path, is_damaged=is_damaged)
        except (OSError, sqlite3.Error):
            if not is_damaged:
                raise self.unreadable(error) from None
            raise RecordingError(
                f"{self.path} is damaged ({error}), and ddpmon can read nothing from it; try `sqlite3 FILE .recover`"
            ) from None
        self._db.close()
        self._go_on_with(salvaged)
        self.salvaged, self.corrupt = True, is_damaged
        self.damaged |= is_damaged
        if is_damaged and not salvaged.execute("SELECT 1 FROM processes LIMIT 1").fetchall():
            raise RecordingError(f"{self.path} is damaged ({error}), and ddpmon can read none of its ranks") from None
        if self.on_salvage:
            self.on_salvage()

    def _go_on_with(self, db: sqlite3.Connection) -> None:
        self._db, self._in_memory = db, True
        db.text_factory = _text
        self.tables = set(TABLES)


def _open(path: Path, name: str) -> sqlite3.Connection:
    try:
        with plain_file.opened(path) as file:
            size = os.fstat(file.fileno()).st_size
        for beside in ("-wal", "-shm", "-journal"):  # SQLite opens these files too.
            with contextlib.suppress(FileNotFoundError):
                plain_file.check(path.with_name(f"{path.name}{beside}"))
    except FileNotFoundError:
        raise NothingRecordedError(f"{name} has no recording: {path} does not exist") from None
    except OSError as error:
        raise RecordingError(f"{path} cannot be read: {error.strerror}") from None
    if not size:
        raise NothingRecordedError(f"{path} is empty, because ddpmon recorded nothing")
    try:
        return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
    except sqlite3.Error as error:
        raise RecordingError(f"{path} cannot be read: {error}") from None


def _memory() -> sqlite3.Connection:
    """Return a temporary database that closing deletes. SQLite keeps it on disk if it is large."""
    return sqlite3.connect("", isolation_level=None, check_same_thread=False)


def _text(raw: bytes) -> str:
    """Decode text, and replace bytes that are not UTF-8, so that the rest can be read."""
    return raw.decode(errors="replace")
