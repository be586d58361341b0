"""The screens: their names, keys and questions, and which kinds of keys work on them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ViewName(StrEnum):
    """The names of the dashboard's screens."""

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
    """The facts about one screen that the keys and the help need."""

    name: ViewName
    digit: str = ""
    """The key that opens the screen from everywhere; "" if the screen is opened from some screens only, by another
    key."""
    title: str = ""
    question: str = ""
    """The question that the screen answers."""
    lists: bool = True
    """True if the screen has lines through which the cursor moves."""
    ranks: bool = False
    """True if a line is a rank, which the user can inspect."""
    filtered: bool = False
    """True if a filter hides some of the ranks on the screen."""
    from_rank_to_rank: bool = False
    """True if [ and ] move from rank to rank; elsewhere they move through time."""


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


def title(view: ViewName) -> str:
    """Return the name of a screen."""
    return VIEW_FACTS[view].title or view.capitalize()
