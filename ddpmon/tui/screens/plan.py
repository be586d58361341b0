"""Plans the parts of the World screen that there is room for, and their heights."""

from __future__ import annotations

from dataclasses import dataclass

from ddpmon.tui.sizes import LEAST_HEIGHT, LEAST_WIDTH, WIDE


@dataclass(frozen=True)
class Arrangement:
    """Heights in lines; 0: not shown."""

    head: int
    upper: int = 0
    """Charts and events, or how the run failed."""
    world: int = 0
    table: int = 0
    findings: int = 0
    phases: int = 0
    """The mean step by phase."""
    detail: bool = False
    """More of the rank under the cursor stands beside it."""
    keys: int = 0
    charts: bool = True
    events: bool = False


_PHASES = 11
"""Lines of the mean step by phase."""
_DETAIL = 18
"""Lines with which a rank's phases stand there through time."""
_FINDINGS_LEAST = 5
"""Lines with which a finding stands there with its advice."""
_CHARTS, _CHARTS_MOST = 18, 24
"""Lines that charts take before findings have theirs, and that they ever take: higher ones tell nothing more."""


def plan(
    width: int, height: int, ranks: int, map_lines: int, *, arriving: bool = False, findings: int = 0
) -> Arrangement:  # fmt: skip
    """Share out a screen. The table never needs more than its ranks; charts, findings and the mean step the rest.

    While the ranks arrive there is nothing to chart: the events stand there, as high as they need to be. findings: the
    lines of all of them; they stand there where at least one with its advice fits.
    """
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        keys = 1 if height >= 5 else 0
        return Arrangement(head=max(1, height - keys), keys=keys)
    body = height - 4
    world = map_lines + 1
    upper_lines = min(10, max(4, height // 5)) if arriving else min(20, max(6, height * 3 // 8))
    upper = upper_lines if body - world >= 12 else 0
    table = body - world - upper
    listed = phases = 0
    if upper and not arriving:
        spare = max(0, table - (ranks + 2))
        table -= spare
        higher = min(spare, max(0, _CHARTS - upper))
        listed = min(spare - higher, findings)
        listed = listed if listed >= min(findings, _FINDINGS_LEAST) else 0
        spare -= listed
        phases = _PHASES if spare - higher >= _PHASES else 0
        spare -= phases
        higher = min(spare, max(0, _CHARTS_MOST - upper))
        upper += higher
        below = spare - higher  # stays empty, at the end of the last part
        if phases:
            phases += below
        elif listed:
            listed += below
        else:
            table += below
    return Arrangement(
        head=3, upper=upper, world=world, table=table, findings=listed, phases=phases, keys=1,
        detail=width >= WIDE and phases >= _DETAIL, charts=not arriving, events=arriving or width >= WIDE,
    )  # fmt: skip


def most_map_lines(height: int) -> int:
    """Return how many lines the world map may take."""
    return max(1, min(8, (height - 4) // 8))
