"""Schema of telemetry.db: creation of its tables, and conversion of records to rows and back.

`tables` describes the columns. SQLite stores NaN as NULL, so NaN is stored as the text "nan".
"""

from __future__ import annotations

import math
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import msgspec

from ddpmon.analysis.episodes import EpisodeRecord
from ddpmon.analysis.steps.table import ROW, Table, column_bytes, from_column_bytes
from ddpmon.messages import MAX_STEP, Batch, Sample, Step
from ddpmon.recording.tables import INDEXES, PRIMARY_KEYS, TABLES, VIEWS
from ddpmon.store.clock import Clock

VERSION = 5
"""Version of the schema. Recordings of other versions are refused."""

ZLIB_LEVEL = 1
"""Compression level of zlib: the fastest."""
MAX_BLOCK_STEPS = 1 << 14
"""Largest number of steps in a block. A reader of a few steps has to decompress the whole block."""
MAX_RECORD_BYTES = 4096
"""Largest mean size in bytes of the encoded steps of a block that do not fit into rows."""
MOST_RATIO, SMALL_BYTES = 32, 1 << 16
"""Largest compression ratio of a block of more than SMALL_BYTES; readers refuse blocks with a higher ratio. A ratio of
7 is usual, as times differ by some µs from step to step. Data that compresses better is stored uncompressed."""

Row: TypeAlias = tuple[Any, ...]

SAMPLE_FIELDS = Sample.__struct_fields__

_encode = msgspec.msgpack.Encoder().encode
_steps = msgspec.msgpack.Decoder(list[Step])


def create_tables(db: sqlite3.Connection) -> None:
    """Create the tables, indexes and views that do not exist yet."""
    for table, columns in TABLES.items():
        key = PRIMARY_KEYS.get(table)
        declared = [f'"{column.name}" {column.kind}' for column in columns]
        parts = ", ".join([*declared, f"PRIMARY KEY ({', '.join(key)})"] if key else declared)
        db.execute(f"CREATE TABLE IF NOT EXISTS {table} ({parts}){' WITHOUT ROWID' if key else ''}")
    for name, columns_of in INDEXES.items():
        db.execute(f"CREATE INDEX IF NOT EXISTS {name} ON {columns_of}")
    for name, query in VIEWS.items():
        db.execute(f"CREATE VIEW IF NOT EXISTS {name} AS {query}")


def meta_rows(run_id: str, clock: Clock) -> dict[str, object]:
    """Return the rows of the table `meta`: the schema's version, the run, and one moment on the monotonic and on the
    Unix clock.
    """
    return {"schema": VERSION, "run_id": run_id, "monotonic_us": clock.monotonic_us, "unix": clock.unix}


def insert_sql(table: str, otherwise: str = "") -> str:
    """Return an INSERT of a whole row. `otherwise` is "OR IGNORE", "OR REPLACE" or ""."""
    names = ", ".join(f'"{column.name}"' for column in TABLES[table])
    marks = ", ".join("?" * len(TABLES[table]))
    return f"INSERT {otherwise} INTO {table} ({names}) VALUES ({marks})"  # noqa: S608  no outside input


def select_sql(table: str, columns: Iterable[str], clauses: str) -> str:
    """Return a SELECT of columns of a table, with further clauses such as WHERE."""
    names = ", ".join(f"[{name}]" for name in columns)  # SQLite reads "name" as text if there is no such column.
    return f"SELECT {names} FROM {table} {clauses}"  # noqa: S608  no outside input


def sqlite_number(value: float | None) -> float | str | None:
    """Return a float in the form in which SQLite can store it: NaN becomes "nan"."""
    return "nan" if value is not None and math.isnan(value) else value


def finding_row(told: EpisodeRecord) -> Row:
    """Return the row of the table `findings` that holds an episode."""
    finding = told.ended or told.finding
    return (
        told.record,
        told.number,
        told.attempt,
        finding.kind,
        told.severity,
        finding.since_step,
        finding.until_step,
        told.cost_s,
        told.reported_at,
        told.ended_at,
        finding.text,
        _encode(told),
    )


def block_rows(process: int, table: Table, records: Sequence[Step]) -> list[Row]:
    """Return rows of `step_blocks` with consecutive steps of a process.

    Args:
        process: Id of the process in the table `processes`.
        table: The steps that are rows of a table.
        records: The steps that do not fit into a row.

    """
    numbers = [*table["step"].tolist(), *(step.step for step in records)]
    if len(numbers) <= MAX_BLOCK_STEPS:
        return [_block_row(process, table, records)] if numbers else []
    bounds = [*sorted(numbers)[::MAX_BLOCK_STEPS], MAX_STEP]
    return [
        _block_row(
            process,
            table[(table["step"] >= begin) & (table["step"] < end)],
            [step for step in records if begin <= step.step < end],
        )
        for begin, end in pairwise(bounds)
    ]


def _block_row(process: int, table: Table, records: Sequence[Step]) -> Row:
    ends = [(row["step"].item(), row["end_us"].item()) for row in (*table[:1], *table[-1:])]
    ends = sorted([*ends, *((step.step, step.end_us) for step in records)])
    return (
        process,
        ends[0][0],
        ends[-1][0],
        len(table) + len(records),
        ends[0][1],
        ends[-1][1],
        _deflated(column_bytes(table)),
        _deflated(_encode(records)) if records else None,
    )


def _deflated(raw: bytes) -> bytes:
    blob = zlib.compress(raw, ZLIB_LEVEL)
    return blob if len(raw) <= SMALL_BYTES + MOST_RATIO * len(blob) else zlib.compress(raw, 0)


def block_steps(rows: object, records: object) -> tuple[Table, list[Step]]:
    """Return the steps in a row of `step_blocks`, or raise ValueError if they cannot be read or are too many."""
    table = from_column_bytes(_inflated(rows, MAX_BLOCK_STEPS * ROW.itemsize))
    steps = _steps.decode(_inflated(records, MAX_BLOCK_STEPS * MAX_RECORD_BYTES)) if records is not None else []
    if len(table) + len(steps) > MAX_BLOCK_STEPS:
        raise ValueError("a block with too many steps")
    return table, steps


def _inflated(blob: object, max_bytes: int) -> bytes:
    if not isinstance(blob, bytes):
        raise ValueError("data that is not a block of steps")  # noqa: TRY004  The value comes from a file.
    inflating = zlib.decompressobj()
    max_bytes = min(max_bytes, SMALL_BYTES + MOST_RATIO * len(blob))
    try:
        raw = inflating.decompress(blob, max_bytes + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(raw) > max_bytes or not inflating.eof:
        raise ValueError("a block of steps that is incomplete or too large")
    return raw


def sample_of(row: Sequence[Any]) -> Sample:
    """Return the sample in a row of the columns SAMPLE_FIELDS."""
    sample = Sample(*row)
    if sample.loader_pinned is not None:
        sample.loader_pinned = bool(sample.loader_pinned)  # SQLite has no booleans.
    return sample


def put_batches(db: sqlite3.Connection, batches: Sequence[tuple[int, Batch]]) -> None:
    """Write the content of batches without their steps. Each batch comes with the id of its process."""
    db.executemany(_PUT_SAMPLE, [sample_row(process, each) for process, batch in batches for each in batch.samples])
    db.executemany(
        insert_sql("scalars"),
        [
            (process, each.step, each.name, sqlite_number(each.value))
            for process, batch in batches
            for each in batch.scalars
        ],
    )
    db.executemany(
        insert_sql("digests"),
        [(process, *msgspec.structs.astuple(each)) for process, batch in batches for each in batch.digests],
    )
    db.executemany(
        insert_sql("layouts", "OR IGNORE"),
        [(process, each.number, _encode(each)) for process, batch in batches for each in batch.layouts],
    )


def sample_row(process: int, sample: Sample, merged: int | None = None) -> Row:
    """Return a row of `samples`. `merged` is the number of samples that were merged into this row, or None."""
    return (process, *msgspec.structs.astuple(sample), merged)


_PUT_SAMPLE = insert_sql("samples", "OR IGNORE")
