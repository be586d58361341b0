"""A row a rank and step, as files for other programs have it: CSV for spreadsheets, Parquet for data frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from ddpmon.export.steps import Piece
from ddpmon.messages import PHASES
from ddpmon.store.clock import Clock

Value: TypeAlias = float | int | dict[str, float] | None

COLUMNS = (
    *("attempt", "step", "rank", "end_unix_s", "length_ms"),
    *(f"{phase}_ms" for phase in PHASES),
    *("critical", "loss", "samples", "tokens", "learning_rate", "gc_ms", "named_ms"),
)
"""Phases add up to length_ms. critical is 1 for the rank that was waited for, else 0. named_ms holds what the script
named with `ddpmon.phase`, which is part of the phases, by name."""
INTEGERS = frozenset({"attempt", "step", "rank", "critical", "samples", "tokens"})
NAMED = "named_ms"
"""Column of named phases. Other columns: milliseconds, seconds and the script's own units."""


def rows(pieces: Iterable[Piece], clock: Clock) -> Iterator[tuple[Value, ...]]:
    """Values in the order of COLUMNS, by attempt, step and rank. None: not known."""
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
