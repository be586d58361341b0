"""`ddpmon export --format parquet`: one row a rank and step, for pandas, Polars and DuckDB."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from ddpmon.errors import UsageError
from ddpmon.export.rows import COLUMNS, INTEGERS, NAMED, rows
from ddpmon.export.steps import Piece
from ddpmon.store.clock import Clock

_GROUP = 100_000
"""Rows that are in memory at once, and in a row group of the file."""
_NEEDED = "export --format parquet needs PyArrow: pip install 'ddpmon[parquet]'"


def write(pieces: Iterable[Piece], clock: Clock, path: Path) -> None:
    """Write a file of all rows, ordered by attempt, step and rank; what is not known is null, named_ms a map.

    UsageError without PyArrow.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise UsageError(_NEEDED) from None
    schema = pa.schema([(name, _type(pa, name)) for name in COLUMNS])
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
