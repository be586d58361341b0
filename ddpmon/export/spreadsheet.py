"""`ddpmon export --format csv`: one row a rank and step, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from typing import TextIO

from ddpmon.export.steps import Piece
from ddpmon.messages import PHASES
from ddpmon.store.clock import Clock

COLUMNS = (
    *("attempt", "step", "rank", "end_unix_s", "length_ms"),
    *(f"{phase}_ms" for phase in PHASES),
    *("critical", "loss", "samples", "tokens", "learning_rate", "gc_ms", "named_ms"),
)
"""Phases add up to length_ms. What is not known is empty; critical is 1 for the rank that was waited for, else 0.
named_ms is a JSON object of what the script named with `ddpmon.phase`, which is part of the phases."""


def write(pieces: Iterable[Piece], clock: Clock, file: TextIO) -> None:
    """Write the head and all rows, ordered by attempt, step and rank."""
    out = csv.writer(file, lineterminator="\n")
    out.writerow(COLUMNS)
    for piece in pieces:
        world = piece.world
        for i, records in enumerate(piece.records):
            for j, record in enumerate(records):
                blocked = (world.wait_ms[i, j], world.transfer_ms[i, j]) if piece.complete else (None, None)
                phases = [
                    None if name in piece.unmeasured else ms
                    for name, ms in zip(PHASES, (*world.phases_ms[i, j], *blocked), strict=True)
                ]
                critical = (
                    int(world.critical[i] == j)
                    if piece.complete and "wait" not in piece.unmeasured and world.critical[i] >= 0
                    else None
                )
                out.writerow(
                    (
                        *(piece.attempt, record.step, world.ranks[j], f"{clock.unix_at(record.end_us):.6f}"),
                        *(None if ms is None else f"{ms:.3f}" for ms in (world.length_ms[i, j], *phases)),
                        *(critical, record.loss, record.samples or None, record.tokens or None, record.learning_rate),
                        f"{world.gc_ms[i, j]:.3f}",
                        json.dumps({name: us / 1e3 for name, us in record.named_us.items()}) if record.named_us else "",
                    )
                )
