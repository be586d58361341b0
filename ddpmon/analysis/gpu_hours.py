"""Hours of GPUs, or of ranks in runs without GPUs, that a run has used and that its findings have cost."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from ddpmon.messages import END_STATES, Episode, Finding, RankView, Snapshot

HOUR_S = 3600.0
"""Number of seconds in an hour."""


def unit(ranks: Iterable[RankView]) -> str:
    """Return the unit of the hours: "GPU" or "rank"."""
    return "GPU" if any(rank.device.startswith("cuda") for rank in ranks) else "rank"


def rank_hours(snapshot: Snapshot, seconds: float) -> float:
    """Return the hours of all ranks together in the given number of seconds."""
    return seconds * (snapshot.run.world_size or len(snapshot.ranks)) / HOUR_S


def lost_hours(snapshot: Snapshot, finding: Finding) -> float | None:
    """Return the hours that a finding has cost so far; None if it has no measured cost."""
    return None if finding.cost_s is None else round(rank_hours(snapshot, finding.cost_s), 4)


def format_hours(of_hours: float, what: str, price: float | None = None, currency: str = "") -> str:
    """Format hours, with their price if there is one: 3.2 GPU hours ($8.00).

    Args:
        of_hours: Number of hours.
        what: Unit of the hours, as returned by `unit`.
        price: Price of an hour; None: unknown.
        currency: Symbol or name of the currency.

    """
    text = f"{of_hours:,.{3 if of_hours < 1 else 2 if of_hours < 100 else 0}f} {what} hours"
    if price is None:
        return text
    money = f"{of_hours * price:,.2f}"
    return f"{text} ({f'{money} {currency}' if currency.isalpha() else f'{currency}{money}'})"


def lost_s(findings: Sequence[Finding], last_step: int) -> float:
    """Return the seconds that findings have cost together.

    Several findings may have the same cause. In steps that findings have in common, only the costliest counts, so the
    result is a lower bound. A finding without a first step counts for the whole run.
    """
    spans = []
    for finding in findings:
        alone: list[Episode | Finding] = [finding]
        for episode in finding.episodes or alone:
            first = episode.since_step or 0
            end = (last_step if episode.until_step is None else episode.until_step) + 1
            if episode.cost_s and end > first:
                spans.append((first, end, episode.cost_s / (end - first)))
    edges = sorted({edge for first, end, _ in spans for edge in (first, end)})
    return sum(
        (end - first) * max((cost for since, until, cost in spans if since <= first and end <= until), default=0.0)
        for first, end in itertools.pairwise(edges)
    )


def cost(snapshot: Snapshot, parallel: float | None) -> dict[str, Any]:
    """Return the hours of the run as the report shows them.

    Args:
        snapshot: The run at its end, or now.
        parallel: Parallel efficiency; None: not measured.

    """
    end = snapshot.run.ended_at if snapshot.state in END_STATES and snapshot.run.ended_at else snapshot.at
    total_s = max(0.0, end - snapshot.run.started_at)
    size = snapshot.run.world_size or len(snapshot.ranks)
    return {
        "unit": unit(snapshot.ranks),
        "hours": round(rank_hours(snapshot, total_s), 4),
        "lost_hours": round(rank_hours(snapshot, min(total_s, lost_s(snapshot.findings, snapshot.step))), 4),
        "works_as_ranks": None if parallel is None else round(size * parallel, 2),
    }
