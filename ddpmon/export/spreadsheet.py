"""`ddpmon export --format csv`: one row a rank and step, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from typing import TextIO

from ddpmon.export.rows import COLUMNS, NAMED, Value, rows
from ddpmon.export.steps import Piece
from ddpmon.store.clock import Clock

_DIGITS = {"end_unix_s": ".6f"} | {name: ".3f" for name in COLUMNS if name.endswith("_ms") and name != NAMED}


def write(pieces: Iterable[Piece], clock: Clock, file: TextIO) -> None:
    """Write the head and all rows, ordered by attempt, step and rank. What is not known is empty; named_ms is JSON."""
    out = csv.writer(file, lineterminator="\n")
    out.writerow(COLUMNS)
    for row in rows(pieces, clock):
        out.writerow([_cell(name, value) for name, value in zip(COLUMNS, row, strict=True)])


def _cell(name: str, value: Value) -> Value | str:
    if isinstance(value, dict):
        return json.dumps(value)
    return format(value, _DIGITS[name]) if value is not None and name in _DIGITS else value
