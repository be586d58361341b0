"""Merges a recording's rows: steps and logged values into minutes, minutes into hours, samples into one sample a
minute.

Merged rows are deleted in the same transaction, so that a hub that is killed leaves each step in exactly one place.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.steps.clocks import Clocks
from ddpmon.analysis.steps.table import Rows, concatenate_rows, steps_of
from ddpmon.analysis.steps.waits import split_waits
from ddpmon.analysis.steps.world import World
from ddpmon.messages import OWN_PHASES, SAMPLED, Hello, Sample, Step
from ddpmon.recording import schema
from ddpmon.recording.tables import HOUR_US, MINUTE_US, PRIMARY_KEYS, TABLES

LARGEST_VALUE_FIELDS = frozenset({"time_us", *(row.field for row in SAMPLED if row.largest)})
"""Fields in which a merged sample has the largest value of its samples instead of their mean."""
LAST_VALUE_FIELDS = frozenset({"gpu_throttled", "loader_workers", "loader_pinned"})
"""Fields in which a merged sample has the last value of its samples."""

TRAINED = "(last_step > 0 OR EXISTS (SELECT 1 FROM step_blocks WHERE process = processes.id))"
"""SQL condition that the process of a row of `processes` has steps."""


@dataclass(frozen=True)
class Seat:
    """A process that was a rank in one attempt of the run, with the facts that are needed to merge its steps."""

    process: int
    host: str
    own_clock: bool
    """True if the process's steps were timed on its GPU."""
    in_whole_world: bool
    """True if the recording has every rank of the process's world."""


def processes_with_steps(db: sqlite3.Connection, attempt: int) -> list[Seat]:
    """Return the processes of an attempt that have steps, in the order of their ranks."""
    query = f"SELECT id, hello FROM processes WHERE attempt = ? AND {TRAINED} ORDER BY rank, id"  # noqa: S608  no outside input
    rows = db.execute(query, (attempt,))
    hellos = [(process, msgspec.msgpack.decode(hello, type=Hello)) for process, hello in rows]
    (ranks,) = db.execute("SELECT count(DISTINCT rank) FROM processes WHERE attempt = ?", (attempt,)).fetchone()
    return [Seat(process, hello.host, hello.device_clock, ranks >= hello.world_size) for process, hello in hellos]


def merge_steps(db: sqlite3.Connection, seats_of_attempt: Sequence[Seat], clocks: Clocks, end: int) -> None:
    """Merge all steps of an attempt before `end`, and the values that were logged for them.

    Args:
        db: The recording, with an open transaction.
        seats_of_attempt: The processes of the attempt.
        clocks: Clocks of the attempt, which must have processed all earlier steps of the attempt in order.
        end: Number of the first step that is not merged.

    Raises:
        ValueError: a row is damaged. TypeError and msgspec's errors mean the same.

    """
    columns = {seat.process: column for column, seat in enumerate(seats_of_attempt)}
    condition = f"process IN ({', '.join('?' * len(columns))}) AND step < ?"
    records: dict[int, dict[int, Step]] = {}
    for process, column in columns.items():
        for step in _taken_from_blocks(db, process, end):
            records.setdefault(step.step, {}).setdefault(column, step)
    hosts = {column: seat.host for column, seat in enumerate(seats_of_attempt)}
    own_clocks = {column for column, seat in enumerate(seats_of_attempt) if seat.own_clock}
    whole = all(seat.in_whole_world for seat in seats_of_attempt)
    ends: dict[int, int] = {}
    worlds: list[tuple[Rows, World]] = []
    for present, numbers in groupby(sorted(records), key=lambda number: tuple(sorted(records[number]))):
        rows = Rows(present, [[records[number][column] for column in present] for number in numbers])
        world = split_waits(rows, clocks.offsets_us(rows, hosts), own_clocks, whole=whole)
        worlds.append((rows, world))
        ends |= dict(zip(world.step.tolist(), world.end_us.tolist(), strict=True))
    for rows, world in worlds:
        spans = _spans(rows, world, complete=whole and len(rows.ranks) == len(seats_of_attempt))
        db.executemany(_put("rollup"), [(seats_of_attempt[rows.ranks[column]].process, *row) for column, row in spans])
    _merge_scalars(db, condition, (*columns, end), ends)


def _taken_from_blocks(db: sqlite3.Connection, process: int, end: int) -> list[Step]:
    """Remove a process's steps before `end` from the blocks, and return them, or raise ValueError if one is damaged."""
    condition = "process = ? AND first_step < ?"
    query = f"SELECT rows, records FROM step_blocks WHERE {condition} ORDER BY first_step"  # noqa: S608  no outside input
    blocks = [schema.block_steps(*blobs) for blobs in db.execute(query, (process, end))]
    if not blocks:
        return []
    table, records = concatenate_rows([rows for rows, _ in blocks]), [step for _, steps in blocks for step in steps]
    db.execute(f"DELETE FROM step_blocks WHERE {condition}", (process, end))  # noqa: S608  no outside input
    taken = table["step"] < end
    rest = schema.block_rows(process, table[~taken], [step for step in records if step.step >= end])
    db.executemany(schema.insert_sql("step_blocks", "OR IGNORE"), rest)
    return [*steps_of(table[taken]), *(step for step in records if step.step < end)]


def _spans(rows: Rows, world: World, *, complete: bool) -> list[tuple[int, tuple[Any, ...]]]:
    """Return rows of the rollup, without the process number, each with its rank's column in `world`. Only a `complete`
    world has waits.
    """
    begin = world.end_us // MINUTE_US * MINUTE_US
    first = np.concatenate([[0], np.flatnonzero(np.diff(begin)) + 1])
    last = np.append(first[1:], len(begin)) - 1
    shape = world.length_ms.shape
    count = np.broadcast_to((last - first + 1)[:, None], (len(first), shape[1]))

    def summed(values: NDArray[Any]) -> NDArray[Any]:
        return np.add.reduceat(values, first, axis=0)

    ends = rows.integer_field("end_us")
    paused = np.zeros_like(ends) if (pauses_us := rows.paused_us()) is None else pauses_us
    backwards = rows.integer_field("backwards")
    finite = world.has_loss & np.isfinite(world.loss)
    columns: list[list[list[Any]]] = [
        np.full(count.shape, MINUTE_US).tolist(),
        np.broadcast_to(begin[first][:, None], count.shape).tolist(),
        np.maximum.reduceat(ends, first, axis=0).tolist(),
        np.broadcast_to(world.step[first][:, None], count.shape).tolist(),
        np.broadcast_to(world.step[last][:, None], count.shape).tolist(),
        count.tolist(),
    ]
    own = {name: world.phases_ms[..., place] for place, name in enumerate(OWN_PHASES)}
    for name, ms in {"length": world.length_ms, **own, "wait": world.wait_ms, "transfer": world.transfer_ms}.items():
        us = np.round(ms * 1e3).astype(np.int64)
        is_known = complete or name not in {"wait", "transfer"}
        columns.append((summed(us) if is_known else np.zeros_like(count)).tolist())
    critical = (world.critical[:, None] == np.arange(shape[1])) & complete
    columns += [
        (count if complete else np.zeros_like(count)).tolist(),
        summed(critical.astype(np.int64)).tolist(),
        summed(finite.astype(np.int64)).tolist(),
        summed(np.where(finite, world.loss, 0.0)).tolist(),
        summed((world.has_loss & ~finite).astype(np.int64)).tolist(),
        summed(world.samples).tolist(),
        summed(world.tokens).tolist(),
        summed(world.gradient_bytes).tolist(),
        world.learning_rate[last].tolist(),  # SQLite writes NaN as NULL
        summed(np.round(world.gc_ms * 1e3).astype(np.int64)).tolist(),
        summed(backwards).tolist(),
        summed(paused).tolist(),
    ]
    return [
        (column, tuple(values[span][column] for values in columns))
        for column in range(shape[1])
        for span in range(len(first))
    ]


def _merge_scalars(db: sqlite3.Connection, condition: str, values: Sequence[object], ends: Mapping[int, int]) -> None:
    """Replace the values that the script logged by their means over a minute each.

    Args:
        db: The recording.
        condition: SQL condition of the rows of `scalars` to merge.
        values: Values of the condition's placeholders.
        ends: End of each merged step, in microseconds. Values of other steps count as logged at the last end.

    """
    if not ends:
        return
    last_us = max(ends.values())
    rows = []
    for process, step, name, logged in db.execute(
        f"SELECT process, step, name, value FROM scalars WHERE {condition}",  # noqa: S608  no outside input
        values,
    ):
        value = math.nan if logged is None else float(logged)
        begin_us = ends.get(step, last_us) // MINUTE_US * MINUTE_US
        sums = (1, value, 0) if math.isfinite(value) else (0, 0.0, 1)
        rows.append((process, MINUTE_US, begin_us, name, step, step, *sums))
    if rows:
        db.executemany(_put("scalar_rollup"), rows)
        db.execute(f"DELETE FROM scalars WHERE {condition}", values)  # noqa: S608  no outside input


def merge_minutes(db: sqlite3.Connection, table: str, until_us: int) -> None:
    """Merge the minutes that begin before a moment into hours."""
    changed = {"begin_us": f"begin_us - begin_us % {HOUR_US}", "width_us": str(HOUR_US)}
    columns = ", ".join(changed.get(column.name, f'"{column.name}"') for column in TABLES[table])
    into, conflict = _into(table)
    condition = "width_us = ? AND begin_us < ?"
    query = f"{into} SELECT {columns} FROM {table} WHERE {condition} ORDER BY process, begin_us {conflict}"  # noqa: S608  no outside input
    db.execute(query, (MINUTE_US, until_us))
    db.execute(f"DELETE FROM {table} WHERE {condition}", (MINUTE_US, until_us))  # noqa: S608  no outside input


def _put(table: str) -> str:
    """Return the statement that inserts a row into a rollup, or adds it to an existing row of the same span."""
    into, conflict = _into(table)
    return f"{into} VALUES ({', '.join('?' * len(TABLES[table]))}) {conflict}"


def _into(table: str) -> tuple[str, str]:
    """Return the parts of a statement before and after the rows that it adds to a rollup."""
    names = [column.name for column in TABLES[table]]
    added = ", ".join(f'"{name}" = {_sum(name)}' for name in names if name not in PRIMARY_KEYS[table])
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"INSERT INTO {table} ({quoted})", f"ON CONFLICT ({', '.join(PRIMARY_KEYS[table])}) DO UPDATE SET {added}"


def _sum(name: str) -> str:
    """Return the SQL that merges two values of a column."""
    old, new = f'"{name}"', f'excluded."{name}"'
    if name == "first_step":
        return f"min({old}, {new})"
    if name in {"end_us", "last_step"}:
        return f"max({old}, {new})"
    if name == "learning_rate":
        return f"CASE WHEN excluded.last_step < last_step THEN {old} ELSE coalesce({new}, {old}) END"
    return f"{old} + {new}"


def merge_samples(db: sqlite3.Connection, process: int, after_us: int, until_us: int) -> tuple[int, int]:
    """Merge the samples of a process's first unmerged minute after `after_us`, if that minute had ended at `until_us`.

    Returns:
        The number of merged samples, and the moment before which all samples of the process are now merged.

    """
    width_us = MINUTE_US
    key = "process = ? AND time_us >= ?"
    first_unmerged = db.execute(
        f"SELECT time_us FROM samples WHERE {key} AND time_us < ? AND merged IS NULL ORDER BY time_us LIMIT 1",  # noqa: S608  no outside input
        (process, after_us, until_us),
    ).fetchone()
    begin_us = (until_us if first_unmerged is None else first_unmerged[0]) // width_us * width_us
    if first_unmerged is None or begin_us + width_us > until_us:
        return 0, max(after_us, begin_us)
    minute = (process, begin_us, begin_us + width_us)
    query = schema.select_sql("samples", schema.SAMPLE_FIELDS, f"WHERE {key} AND time_us < ? ORDER BY time_us")
    samples = [schema.sample_of(row) for row in db.execute(query, minute)]
    db.execute(f"DELETE FROM samples WHERE {key} AND time_us < ?", minute)  # noqa: S608  no outside input
    db.execute(schema.insert_sql("samples"), schema.sample_row(process, one_of(samples), len(samples)))
    return len(samples), begin_us + width_us


def one_of(samples: Sequence[Sample]) -> Sample:
    """Merge samples of a rank into one sample, with the mean, the largest or the last value of each field."""
    merged = Sample(samples[-1].time_us)
    for name in schema.SAMPLE_FIELDS:
        values = [value for sample in samples if (value := getattr(sample, name)) is not None]
        if not values:
            continue
        if name in LAST_VALUE_FIELDS:
            setattr(merged, name, values[-1])
        else:
            setattr(merged, name, max(values) if name in LARGEST_VALUE_FIELDS else sum(values) / len(values))
    return merged
