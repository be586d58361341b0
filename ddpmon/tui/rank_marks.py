"""Marks a rank's state by a glyph, the same on the world map and in the rank table."""

from __future__ import annotations

from ddpmon.messages import HEAT_LEVELS, NOTABLE, RankView, Snapshot
from ddpmon.tui.frame import finite_or_none
from ddpmon.tui.lines import Line

GRADES = tuple(zip(reversed(HEAT_LEVELS[1:]), "█▆▃", ("bad", "warn", "text"), strict=True))
"""Marks for the excess of a rank's own time over the others' median: (minimum excess as a fraction, glyph, role)."""

_MARKS = "".join(f"  {mark} {least:.0%}" for least, mark, _ in reversed(GRADES))
LEGEND: Line = [
    (f"· <{NOTABLE:.0%}", "muted"), (f"{_MARKS}+", "muted"), ("  ? silent", "muted"), ("  ✖ dead", "muted"),
]  # fmt: skip


_SENT_BY_LAUNCHER = frozenset({"SIGTERM", "SIGINT"})
"""Signals that torchrun sends to the other ranks once one rank has failed."""


def has_failed(rank: RankView) -> bool:
    """Return whether the rank ended with a failure."""
    end = rank.exit
    return rank.health == "dead" or (end is not None and bool(end.error or end.signal or end.code))


def dragged_along(rank: RankView) -> bool:
    """Return whether the launcher ended the rank because another rank had failed."""
    end = rank.exit
    return end is not None and end.signal in _SENT_BY_LAUNCHER and not end.error


def heard(rank: RankView) -> bool:
    """Return whether the rank is sending data, or has ended properly."""
    return rank.health in {"ok", "left"}


def state_grade(rank: RankView) -> tuple[int, str, str]:
    """Return (order, glyph, role) of a rank's state. The higher the order, the more attention the rank needs."""
    if has_failed(rank):
        return (8, "✖", "muted") if dragged_along(rank) else (9, "✖", "bad")
    if not heard(rank):
        return 8, "?", "muted" if rank.health == "missing" else "warn"
    over = finite_or_none(rank.over_median)
    if over is not None:
        for order, (least, glyph, role) in enumerate(GRADES):
            if over >= least:
                return 7 - order, glyph, role
    measured = over is not None and rank.health == "ok"
    return 1, "·", "ok" if measured else "muted"


def accused_ranks(snapshot: Snapshot) -> frozenset[int]:
    """Return the ranks that a finding names as the problem. A finding about all ranks singles out no rank."""
    most = max(1, snapshot.run.world_size - 1)
    findings = [f for f in snapshot.findings if f.severity != "info" and f.is_lasting and len(f.ranks) <= most]
    return frozenset(rank for finding in findings for rank in finding.ranks)


def culprits(snapshot: Snapshot) -> frozenset[int]:
    """Return the ranks that, according to the findings, failed first or do not arrive in a hang."""
    findings = [finding for finding in snapshot.findings if finding.explains and finding.is_lasting]
    return frozenset(rank for finding in findings for rank in finding.ranks)


def problem_marker(rank: RankView, named: frozenset[int]) -> tuple[str, str]:
    """Return (glyph, role) for the rank table's first column. The glyph is blank if the rank sends data and no
    finding names it.
    """
    order, glyph, role = state_grade(rank)
    if order >= 8:
        return glyph, role
    if rank.rank in named:
        return "▲", "bad" if order == 7 else "warn"
    return " ", "text"
