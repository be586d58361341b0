"""telemetry.db as the hub writes it: made, and made again with all that is in it where somebody deleted it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from ddpmon.recording import schema

SPARE_BYTES = 256 << 10
"""Room held on the disk, so that how much is missing can be written down though the disk is full to the end."""
LOCKED_S = 0.5
"""Time that a transaction waits for a reader on a remote file system; the hub does nothing else meanwhile."""


class WrittenFile:
    """The file of one recording."""

    def __init__(self, path: Path, meta: Mapping[str, object]) -> None:
        """meta: rows of its table `meta`, if it has none."""
        self._path = path
        self._meta = meta
        self._spare = path.with_suffix(".spare")
        self._is_ending = False
        self._opened: tuple[int, int] | None = None
        """Device and inode of what was opened."""

    def reserve(self) -> None:
        """Hold room on the disk, as far as there is any."""
        with _for_this_user(), contextlib.suppress(OSError):
            if not self._is_ending and not self._spare.exists():
                self._spare.write_bytes(bytes(SPARE_BYTES))

    def open(self, *, far: bool) -> sqlite3.Connection:
        """Open or make it, for this user alone. far: on a file system that is not this machine's.

        With a write-ahead log readers and the writer never wait for each other; it needs memory that all of them
        share, which a network file system has not: there they take turns.
        """
        self.reserve()
        with _for_this_user():
            db = sqlite3.connect(self._path, isolation_level=None, timeout=LOCKED_S if far else 5.0)
        try:
            db.execute(f"PRAGMA journal_mode={'TRUNCATE' if far else 'WAL'}")
            db.execute(f"PRAGMA synchronous={'FULL' if far else 'NORMAL'}")
            db.execute("PRAGMA cache_size=-16384")  # KiB: of a thousand ranks each writes to a page of its own
            db.execute("BEGIN")
            schema.make(db)
            db.executemany(schema.insert("meta", "OR IGNORE"), self._meta.items())
            db.execute("COMMIT")
        except BaseException:
            db.close()
            raise
        self._opened = _identity(self._path)
        return db

    @property
    def is_gone(self) -> bool:
        """Return whether another file, or none, is in its place. A folder that was moved away may come back."""
        if self._opened is None or _identity(self._path) == self._opened:
            return False
        return self._path.parent.is_dir()

    def put_back(self, db: sqlite3.Connection) -> None:
        """Write all that an open connection still has of it to a new file in its place. sqlite3.Error if it cannot be.

        The connection is closed then: it is to be opened again.
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
        db.close()  # which removes the log of that name: before the new one has one
        self._opened = None

    def free_spare(self) -> None:
        """Give the room back that was held, for good."""
        self._is_ending = True
        with contextlib.suppress(OSError):
            self._spare.unlink()


@contextlib.contextmanager
def _for_this_user() -> Iterator[None]:
    """Have files that are made meanwhile be this user's alone."""
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
