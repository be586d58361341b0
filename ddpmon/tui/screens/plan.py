"""Which parts of the World screen there is room for, and how high each is."""

from __future__ import annotations

from dataclasses import dataclass

from ddpmon.tui.sizes import LEAST_HEIGHT, LEAST_WIDTH, WIDE


@dataclass(frozen=True)
class Layout:
    """Heights in lines; 0: not shown."""

    head: int
    upper: int = 0
    """Charts and events, or how the run failed."""
    world: int = 0
    table: int = 0
    keys: int = 0
    charts: bool = True
    events: bool = False


def plan(width: int, height: int, ranks: int, map_lines: int, *, arriving: bool = False) -> Layout:
    """Share out a screen. The table never needs more than its ranks; the charts get what is left over.

    While the ranks arrive there is nothing to chart: the events stand there, as high as they need to be.
    """
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        keys = 1 if height >= 5 else 0
        return Layout(head=max(1, height - keys), keys=keys)
    body = height - 4
    world = map_lines + 1
    upper_lines = min(10, max(4, height // 5)) if arriving else min(20, max(6, height * 3 // 8))
    upper = upper_lines if body - world >= 12 else 0
    table = body - world - upper
    if upper and not arriving:
        spare = max(0, table - (ranks + 2))
        upper, table = upper + spare, table - spare
    return Layout(
        head=3, upper=upper, world=world, table=table, keys=1, charts=not arriving, events=arriving or width >= WIDE
    )


def most_map_lines(height: int) -> int:
    """How many lines the world map may take."""
    return max(1, min(8, (height - 4) // 8))
