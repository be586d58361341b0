"""Writes one row for each rank and step: CSV for spreadsheets, Parquet for data frames."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from ddpmon.errors import UsageError
from ddpmon.export.steps import Piece
from ddpmon.messages import PHASES
from ddpmon.store.clock import Clock

Value: TypeAlias = float | int | dict[str, float] | None

ROW_COLUMNS = (
    *("attempt", "step", "rank", "end_unix_s", "length_ms"),
    *(f"{phase}_ms" for phase in PHASES),
    *("critical", "loss", "samples", "tokens", "learning_rate", "gc_ms", "named_ms"),
)
"""Columns of a row. The phases add up to length_ms. critical is 1 for the rank that the others waited for, else 0.
named_ms has the time in each `ddpmon.phase` of the script, by name; this time is also part of the phases."""
INTEGERS = frozenset({"attempt", "step", "rank", "critical", "samples", "tokens"})
NAMED = "named_ms"
"""Name of the column with the times of each `ddpmon.phase`, a map. All columns except this one and INTEGERS are
floats."""


def rows(pieces: Iterable[Piece], clock: Clock) -> Iterator[tuple[Value, ...]]:
    """Yield values in the order of ROW_COLUMNS, by attempt, step and rank. Unknown values are None."""
    for piece in pieces:
        world = piece.world
        for i, records in enumerate(piece.records):
            waited_for = piece.critical_rank(i)
            for j, record in enumerate(records):
                blocked = (world.wait_ms[i, j], world.transfer_ms[i, j]) if piece.complete else (None, None)
                phases = [
                    None if name in piece.unmeasured or ms is None else float(ms)
                    for name, ms in zip(PHASES, (*world.phases_ms[i, j], *blocked), strict=True)
                ]
                critical = None if waited_for is None else int(waited_for == world.ranks[j])
                named = {name: us / 1e3 for name, us in record.named_us.items()} if record.named_us else None
                yield (
                    *(piece.attempt, record.step, world.ranks[j], clock.unix_at(record.end_us)),
                    *(float(world.length_ms[i, j]), *phases),
                    *(critical, record.loss, record.samples or None, record.tokens or None, record.learning_rate),
                    *(float(world.gc_ms[i, j]), named),
                )


_DIGITS = {"end_unix_s": ".6f"} | {name: ".3f" for name in ROW_COLUMNS if name.endswith("_ms") and name != NAMED}


def write_csv(pieces: Iterable[Piece], clock: Clock, file: TextIO) -> None:
    """Write the header and all rows, ordered by attempt, step and rank. Unknown values are empty; named_ms is JSON."""
    out = csv.writer(file, lineterminator="\n")
    out.writerow(ROW_COLUMNS)
    for row in rows(pieces, clock):
        out.writerow([_cell(name, value) for name, value in zip(ROW_COLUMNS, row, strict=True)])


def _cell(name: str, value: Value) -> Value | str:
    if isinstance(value, dict):
        return json.dumps(value)
    return format(value, _DIGITS[name]) if value is not None and name in _DIGITS else value


_GROUP = 100_000
"""Number of rows in memory at once, and in each row group of a Parquet file."""
_NEEDED = "export --format parquet needs PyArrow: pip install 'ddpmon[parquet]'"


def write_parquet(pieces: Iterable[Piece], clock: Clock, path: Path) -> None:
    """Write a file of all rows, ordered by attempt, step and rank. Unknown values are null; named_ms is a map.

    Raises:
        UsageError: PyArrow is not installed.

    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise UsageError(_NEEDED) from None
    schema = pa.schema([(name, _type(pa, name)) for name in ROW_COLUMNS])
    with parquet.ParquetWriter(path, schema, compression="zstd") as file:
        every = rows(pieces, clock)
        while group := list(islice(every, _GROUP)):
            columns = [
                [list(value.items()) if isinstance(value, dict) else value for value in column]
                for column in zip(*group, strict=True)
            ]
            file.write_table(pa.table(columns, schema=schema))


def _type(pa: Any, name: str) -> Any:
    if name == NAMED:
        return pa.map_(pa.string(), pa.float64())
    return pa.int64() if name in INTEGERS else pa.float64()
