"""Copy of a recording without secrets, for other people: every text in it is passed through a redactor."""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from functools import lru_cache
from pathlib import Path

import msgspec

from ddpmon.recording import schema
from ddpmon.recording.recording import Recording
from ddpmon.recording.tables import TABLES
from ddpmon.redaction import Redactor
from ddpmon.runs import Run

_NUMBERS_ONLY = {("step_blocks", "rows")}
"""Columns of bytes, as table and column, that hold no text."""
_CACHED_TEXTS = 1 << 12


def write_redacted_copy(run: Run, path: Path, redactor: Redactor) -> None:
    """Write the recording of a run to a new file, without secrets.

    Raises:
        RecordingError: The recording cannot be read.
        sqlite3.Error: The file cannot be written.

    """
    with Recording(run) as recording:
        recording.database.write_to(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("BEGIN")
        schema.create_tables(db)
        db.create_function("redact_text", 1, lru_cache(_CACHED_TEXTS)(redactor.text), deterministic=True)
        db.create_function("redact_bytes", 1, lambda packed: _redact_bytes(packed, redactor), deterministic=True)
        for table, columns in TABLES.items():
            for column in columns:
                if (table, column.name) not in _NUMBERS_ONLY and not column.kind.startswith(("INTEGER", "REAL")):
                    for stored, redact in (("text", "redact_text"), ("blob", "redact_bytes")):
                        db.execute(
                            f'UPDATE OR REPLACE {table} SET "{column.name}" = {redact}("{column.name}")'  # noqa: S608  no outside input
                            f" WHERE typeof(\"{column.name}\") = '{stored}'"
                        )
        db.execute("COMMIT")
        db.execute("VACUUM")  # The pages that held the secrets are still in the file.


def _redact_bytes(packed: bytes, redactor: Redactor) -> bytes:
    """Return msgpack, compressed or not, without secrets, or b"" if it cannot be decoded."""
    try:
        return _redact_packed(packed, redactor)
    except msgspec.DecodeError:
        pass
    try:
        return zlib.compress(_redact_packed(zlib.decompress(packed), redactor), schema.ZLIB_LEVEL)
    except (zlib.error, msgspec.DecodeError):
        return b""


def _redact_packed(packed: bytes, redactor: Redactor) -> bytes:
    return msgspec.msgpack.encode(redactor.anything(msgspec.msgpack.decode(packed)))
