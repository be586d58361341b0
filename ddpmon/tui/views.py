"""The screens: their names, keys and questions, and which keys mean something on them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ViewName(StrEnum):
    """Every screen of the dashboard."""

    WORLD = "world"
    RANKS = "ranks"
    HEAT = "heat"
    COMM = "comm"
    TIMELINE = "timeline"
    DEVICES = "devices"
    LOGS = "logs"
    RUNS = "runs"
    FINDINGS = "findings"
    INSPECT = "inspect"
    CHART = "chart"


@dataclass(frozen=True)
class ViewFacts:
    """One screen, as far as keys and help are concerned."""

    name: ViewName
    digit: str = ""
    """The key that opens it from everywhere; empty: another one does, from some screens."""
    title: str = ""
    question: str = ""
    """Question that it answers."""
    lists: bool = True
    """It has lines to move through."""
    ranks: bool = False
    """A line is a rank, which can be inspected."""
    filtered: bool = False
    """A filter leaves out some of its ranks."""
    from_rank_to_rank: bool = False
    """There [ and ] go from rank to rank; elsewhere they move through time."""


VIEW_FACTS = {
    each.name: each
    for each in (
        ViewFacts(ViewName.WORLD, "1", "World", "how is the run?", ranks=True, filtered=True),
        ViewFacts(ViewName.RANKS, "2", "Ranks", "who is slow?", ranks=True, filtered=True),
        ViewFacts(ViewName.HEAT, "3", "Heat", "which rank was slow, and when?", ranks=True, filtered=True),
        ViewFacts(ViewName.COMM, "4", "Comm", "what does communication cost, and why?", ranks=True, filtered=True),
        ViewFacts(ViewName.TIMELINE, "5", "Timeline", "what happened in the last steps?", ranks=True, filtered=True),
        ViewFacts(ViewName.DEVICES, "6", "Devices", "what are the machines doing?", ranks=True, filtered=True),
        ViewFacts(
            ViewName.LOGS, "7", "Logs", "what did the ranks print?",
            filtered=True, from_rank_to_rank=True,
        ),
        ViewFacts(ViewName.RUNS, "8", "Runs", "which runs are there?"),
        ViewFacts(ViewName.FINDINGS, "9", "Findings", "what is wrong, what does it cost, what to do?"),
        ViewFacts(ViewName.INSPECT, from_rank_to_rank=True),
        ViewFacts(ViewName.CHART, lists=False),
    )
}  # fmt: skip
