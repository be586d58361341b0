"""How telemetry.db is made, and how records become rows and back. What is in it, `tables` tells.

SQLite keeps no NaN (it becomes NULL), so values that are not numbers are kept as text: "nan".
"""

from __future__ import annotations

import math
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from ddpmon.analysis.episodes import EpisodeRecord
from ddpmon.analysis.steps.table import ROW, Table, column_bytes, from_column_bytes
from ddpmon.messages import Batch, Bucket, Pause, Sample, Step, Sync
from ddpmon.recording.tables import INDEXES, KEYS, TABLES, VIEWS

VERSION = 3
"""A recording of another version is refused."""

LEVEL = 1
"""Of zlib: the fastest."""
BLOCK_STEPS = 1 << 14
"""Steps of a block at most: who wants a few of them decompresses all."""
MOST_RATIO, SMALL_BYTES = 32, 1 << 16
"""A block that zlib made smaller than this is none of ours, unless it is small: times differ by some µs from step to
step, so that 7 is usual."""

Row: TypeAlias = tuple[Any, ...]

STEPS = (
    *("step", "end_us", "length_us", "data_us", "forward_us", "backward_us", "optimizer_us", "other_us", "loss"),
    *("samples", "syncs", "tokens", "learning_rate", "gc_us", "buckets", "named", "pauses", "backwards"),
)
SAMPLES = Sample.__struct_fields__

_encode = msgspec.msgpack.Encoder().encode
_syncs = msgspec.msgpack.Decoder(list[Sync])
_buckets = msgspec.msgpack.Decoder(list[Bucket])
_pauses = msgspec.msgpack.Decoder(list[Pause])
_named = msgspec.msgpack.Decoder(dict[str, int])


def make(db: sqlite3.Connection) -> None:
    """Make the tables, indexes and views that are not there yet."""
    for table, columns in TABLES.items():
        key = KEYS.get(table)
        declared = [f'"{column.name}" {column.kind}' for column in columns]
        parts = ", ".join([*declared, f"PRIMARY KEY ({', '.join(key)})"] if key else declared)
        db.execute(f"CREATE TABLE IF NOT EXISTS {table} ({parts}){' WITHOUT ROWID' if key else ''}")
    for name, columns_of in INDEXES.items():
        db.execute(f"CREATE INDEX IF NOT EXISTS {name} ON {columns_of}")
    for name, query in VIEWS.items():
        db.execute(f"CREATE VIEW IF NOT EXISTS {name} AS {query}")


def insert(table: str, otherwise: str = "") -> str:
    """An INSERT of a whole row. otherwise: "OR IGNORE", "OR REPLACE"."""
    names = ", ".join(f'"{column.name}"' for column in TABLES[table])
    marks = ", ".join("?" * len(TABLES[table]))
    return f"INSERT {otherwise} INTO {table} ({names}) VALUES ({marks})"  # noqa: S608  names and order are ours


def select(table: str, columns: Iterable[str], clauses: str) -> str:
    """Return a SELECT of columns. clauses: WHERE and so on."""
    names = ", ".join(f"[{name}]" for name in columns)  # SQLite reads "name" as text where there is no such column
    return f"SELECT {names} FROM {table} {clauses}"  # noqa: S608  names and order are ours


def number(value: float | None) -> float | str | None:
    """A float as SQLite can keep it."""
    return "nan" if value is not None and math.isnan(value) else value


def step_row(process: int, step: Step) -> Row:
    """A row of `steps`."""
    return (
        process,
        step.step,
        step.end_us,
        step.length_us,
        step.data_us,
        step.forward_us,
        step.backward_us,
        step.optimizer_us,
        step.other_us,
        number(step.loss),
        step.samples,
        _encode(step.syncs),
        step.tokens,
        step.learning_rate,
        step.gc_us,
        _encode(step.buckets) if step.buckets else None,
        _encode(step.named_us) if step.named_us else None,
        _encode(step.pauses) if step.pauses else None,
        step.backwards,
    )


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


def block_rows(process: int, table: Table) -> list[Row]:
    """Rows of `step_blocks`, of consecutive steps of a process."""
    return [_block_row(process, table[at : at + BLOCK_STEPS]) for at in range(0, len(table), BLOCK_STEPS)]


def block_steps(blob: object) -> Table:
    """The steps in a row of `step_blocks`. ValueError if they cannot be read, or are more than a block holds."""
    if not isinstance(blob, bytes):
        raise ValueError("no block of steps")  # noqa: TRY004  of a file, not of our code
    inflating = zlib.decompressobj()
    most = min(BLOCK_STEPS * ROW.itemsize, SMALL_BYTES + MOST_RATIO * len(blob))
    try:
        raw = inflating.decompress(blob, most + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(raw) > most or not inflating.eof:
        raise ValueError("a block of steps that is cut short or too large")
    return from_column_bytes(raw)


def _block_row(process: int, table: Table) -> Row:
    first, last = table[0], table[-1]
    return (
        process,
        int(first["step"]),
        int(last["step"]),
        len(table),
        int(first["end_us"]),
        int(last["end_us"]),
        zlib.compress(column_bytes(table), LEVEL),
    )


def step_of(row: Sequence[Any]) -> Step:
    """A record from the STEPS of a row."""
    (
        step, end, length, data, forward, backward, optimizer, other, loss,
        samples, syncs, tokens, rate, gc, buckets, named, pauses, backwards,
    ) = row  # fmt: skip
    return Step(
        step,
        end,
        length,
        data,
        forward,
        backward,
        optimizer,
        other,
        _syncs.decode(syncs),
        None if loss is None else float(loss),
        samples,
        tokens,
        rate,
        gc,
        _buckets.decode(buckets) if buckets else [],
        _named.decode(named) if named else {},
        _pauses.decode(pauses) if pauses else [],
        backwards,
    )


def sample_of(row: Sequence[Any]) -> Sample:
    """A sample from the SAMPLES of a row."""
    sample = Sample(*row)
    if sample.loader_pinned is not None:
        sample.loader_pinned = bool(sample.loader_pinned)  # SQLite has no truth values
    return sample


def put_batches(db: sqlite3.Connection, batches: Sequence[tuple[int, Batch]]) -> None:
    """Write samples, logged values and digests of batches, each with the number of its process."""
    db.executemany(_PUT_SAMPLE, [sample_row(process, each) for process, batch in batches for each in batch.samples])
    db.executemany(
        insert("scalars"),
        [(process, each.step, each.name, number(each.value)) for process, batch in batches for each in batch.scalars],
    )
    db.executemany(
        insert("digests"),
        [(process, *msgspec.structs.astuple(each)) for process, batch in batches for each in batch.digests],
    )


def sample_row(process: int, sample: Sample, merged: int | None = None) -> Row:
    """A row of `samples`. merged: so many samples it is made of; None: it is one."""
    return (process, *msgspec.structs.astuple(sample), merged)


_PUT_SAMPLE = insert("samples", "OR IGNORE")
