"""Creates and opens the file telemetry.db for writing, and writes it again if it was deleted."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from ddpmon.recording import schema

SPARE_BYTES = 256 << 10
"""Space in bytes that is reserved on the disk, so that the amount of missing data can be recorded even if the disk
stays full."""
LOCKED_S = 0.5
"""Longest time in seconds for which a transaction waits for a reader on a remote file system. The hub is blocked
meanwhile."""


class WrittenFile:
    """The file of one recording."""

    def __init__(self, path: Path, meta: Mapping[str, object]) -> None:
        """Do not open the file yet. When it is opened, rows of `meta` that its table `meta` lacks are inserted."""
        self._path = path
        self._meta = meta
        self._spare = path.with_suffix(".spare")
        self._is_ending = False
        self._opened: tuple[int, int] | None = None
        """Device and inode of the opened file."""

    def reserve_space(self) -> None:
        """Reserve SPARE_BYTES on the disk, as far as there is space."""
        with _for_this_user(), contextlib.suppress(OSError):
            if not self._is_ending and not self._spare.exists():
                self._spare.write_bytes(bytes(SPARE_BYTES))

    def open(self, *, far: bool) -> sqlite3.Connection:
        """Open or create the file, for this user only. `far` is True if it is on a remote file system.

        With a write-ahead log, readers and the writer never wait for each other. But the log needs shared memory, which
        a network file system does not offer. There, readers and the writer take turns instead.
        """
        self.reserve_space()
        with _for_this_user():
            db = sqlite3.connect(self._path, isolation_level=None, timeout=LOCKED_S if far else 5.0)
        try:
            db.execute(f"PRAGMA journal_mode={'TRUNCATE' if far else 'WAL'}")
            db.execute(f"PRAGMA synchronous={'FULL' if far else 'NORMAL'}")
            db.execute("PRAGMA cache_size=-16384")  # In KiB. Each of a thousand ranks writes to its own page.
            db.execute("BEGIN")
            schema.create_tables(db)
            db.executemany(schema.insert_sql("meta", "OR IGNORE"), self._meta.items())
            db.execute("COMMIT")
        except BaseException:
            db.close()
            raise
        self._opened = _identity(self._path)
        return db

    @property
    def is_gone(self) -> bool:
        """Return whether the file was deleted or replaced. If its folder is missing too, return False, because the
        folder may only have been moved.
        """
        if self._opened is None or _identity(self._path) == self._opened:
            return False
        return self._path.parent.is_dir()

    def put_back(self, db: sqlite3.Connection) -> None:
        """Write the content of the deleted file, which the open connection can still read, to a new file in its place.

        The connection is closed afterwards, and the file must be opened again.

        Raises:
            sqlite3.Error: the file cannot be written.

        """
        draft = self._path.with_suffix(".back")
        try:
            with _for_this_user(), contextlib.closing(sqlite3.connect(draft)) as new:
                db.backup(new)
            draft.replace(self._path)
        except OSError as error:
            raise sqlite3.OperationalError(f"{self._path.name} was deleted: {error.strerror}") from None
        finally:
            draft.unlink(missing_ok=True)
        db.close()  # This deletes the log of that name, so it is done before the new file has one.
        self._opened = None

    def free_spare(self) -> None:
        """Release the reserved space for good."""
        self._is_ending = True
        with contextlib.suppress(OSError):
            self._spare.unlink()


@contextlib.contextmanager
def _for_this_user() -> Iterator[None]:
    """Create files in the body of this context manager with permissions for this user only."""
    mask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(mask)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
