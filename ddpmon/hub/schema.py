"""The tables of telemetry.db, and how records become rows and back.

SQLite keeps no NaN (it becomes NULL), so values that are not numbers are kept as text: "nan".
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from ddpmon.messages import Bucket, Pause, Sample, Step, Sync

VERSION = 1
"""Raised when an older reader would misread a recording; a further table or column does not raise it."""

TABLES: dict[str, tuple[str, ...]] = {
    "meta": ("key TEXT PRIMARY KEY", "value"),
    "processes": (
        *("id INTEGER PRIMARY KEY", "attempt INTEGER", "rank INTEGER", "pid INTEGER", "start_ticks INTEGER"),
        *("host TEXT", "hello BLOB", "stage INTEGER", "seq INTEGER", "steps INTEGER", "last_step INTEGER"),
        *("records INTEGER", "dropped INTEGER", "total_steps INTEGER", "left INTEGER", "dead INTEGER"),
        *("unsynchronised INTEGER", "unsynchronised_at INTEGER", "stack BLOB", "epoch INTEGER", "epochs INTEGER"),
    ),
    "steps": (
        *("process INTEGER", "step INTEGER", "end_us INTEGER", "length_us INTEGER", "data_us INTEGER"),
        *("forward_us INTEGER", "backward_us INTEGER", "optimizer_us INTEGER", "other_us INTEGER", "loss"),
        *("samples INTEGER", "syncs BLOB", "tokens INTEGER", "learning_rate REAL", "gc_us INTEGER", "buckets BLOB"),
        *("named BLOB", "pauses BLOB", "backwards INTEGER"),
    ),
    "samples": (
        *("process INTEGER", "time_us INTEGER", "cpu_percent REAL", "rss_bytes INTEGER", "gpu_percent REAL"),
        *("gpu_memory_used_bytes INTEGER", "gpu_memory_total_bytes INTEGER", "gpu_power_w REAL"),
        *("gpu_temperature_c REAL", "gpu_clock_mhz REAL", "starved_share REAL", "major_faults_per_s REAL"),
        *("minor_faults_per_s REAL", "read_bytes_per_s REAL", "written_bytes_per_s REAL", "threads INTEGER"),
        *("gpu_throttled TEXT", "loader_workers INTEGER", "loader_pinned INTEGER"),
    ),
    "scalars": ("process INTEGER", "step INTEGER", "name TEXT", "value"),
    "digests": (
        *("process INTEGER", "step INTEGER", "model INTEGER", "value INTEGER", '"group" TEXT', "sequence INTEGER"),
        "updates INTEGER",
    ),
    "layouts": ("process INTEGER", "number INTEGER", "layout BLOB"),
    "events": ("at REAL", "severity TEXT", "text TEXT"),
    "failures": ("rank INTEGER", "pid INTEGER", "failure BLOB"),
    "checkpoints": ("name TEXT PRIMARY KEY", "value BLOB"),
}
"""Columns of each table. New ones go to the end; what reads them takes NULL for a recording that has none."""

KEYS = {"steps": "process, step", "samples": "process, time_us", "failures": "rank, pid", "layouts": "process, number"}

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
    """Make what is not there yet: every table, or the further columns of a table that an older version made."""
    for table, columns in TABLES.items():
        key = KEYS.get(table)
        parts = ", ".join([*columns, f"PRIMARY KEY ({key})"] if key else columns)
        db.execute(f"CREATE TABLE IF NOT EXISTS {table} ({parts}){' WITHOUT ROWID' if key else ''}")
        known = _columns(db, table)
        for column in columns:
            if name(column) not in known:
                db.execute(f"ALTER TABLE {table} ADD COLUMN {column}")


def insert(table: str, otherwise: str = "") -> str:
    """An INSERT of a whole row. otherwise: "OR IGNORE", "OR REPLACE"."""
    names = ", ".join(f'"{name(column)}"' for column in TABLES[table])
    marks = ", ".join("?" * len(TABLES[table]))
    return f"INSERT {otherwise} INTO {table} ({names}) VALUES ({marks})"  # noqa: S608  names and order are ours


def select(db: sqlite3.Connection, table: str, columns: Iterable[str], rest: str) -> str:
    """A SELECT of columns of which an older recording may lack some: those are NULL. rest: WHERE and so on."""
    known = _columns(db, table)
    names = ", ".join(f'"{name}"' if name in known else "NULL" for name in columns)
    return f"SELECT {names} FROM {table} {rest}"  # noqa: S608  names and order are ours


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in db.execute(f"PRAGMA table_info({table})")}


def name(column: str) -> str:
    """Of a column, without its type."""
    return column.partition(" ")[0].strip('"')


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


def step_of(row: Sequence[Any]) -> Step:
    """A record from the STEPS of a row."""
    step, end, length, data, forward, backward, optimizer, other, loss, samples = row[:10]
    syncs, tokens, rate, gc, buckets, named, pauses, backwards = row[10:]
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
        tokens or 0,
        rate,
        gc or 0,
        _buckets.decode(buckets) if buckets else [],
        _named.decode(named) if named else {},
        _pauses.decode(pauses) if pauses else [],
        1 if backwards is None else backwards,
    )


def sample_of(row: Sequence[Any]) -> Sample:
    """A sample from the SAMPLES of a row."""
    sample = Sample(*row)
    if sample.loader_pinned is not None:
        sample.loader_pinned = bool(sample.loader_pinned)  # SQLite has no truth values
    return sample


def sample_row(process: int, sample: Sample) -> Row:
    """A row of `samples`."""
    return (process, *msgspec.structs.astuple(sample))
