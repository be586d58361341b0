"""Attempts of a run failed alike after as many steps: the next one comes to the same step and fails of it too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.processes.alike import same_words
from ddpmon.analysis.processes.explanation import explain
from ddpmon.analysis.processes.failures import headline
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import counted, rank_list
from ddpmon.messages import Attempt, Finding

FEWEST_ATTEMPTS = Threshold(
    2,
    of="attempts in a row that failed with the same exception at the same line, after as many steps",
    why="A judgement: a lost node or connection hardly comes back at the same step.",
)
SAME_STEP = 1
"""By so many steps attempts may differ: torchrun ends the other ranks a moment later."""


def detect(moment: Moment) -> Iterator[Finding]:
    """Nothing once the attempt that runs has come further, or failed of something else."""
    evidence = moment.evidence
    # A restart may also fail to connect the ranks again, which says nothing of what the others failed of.
    alike = _failed_alike([one for one in evidence.attempts if not explain(one.cause or "").lost_peer])
    if not FEWEST_ATTEMPTS.reached(len(alike)):
        return
    latest = alike[-1]
    cause = latest.cause or ""
    failed = evidence.failed if evidence.failed and not evidence.failed.only_lost_peer else None
    if not same_words(failed.cause, cause) if failed else evidence.step > latest.steps + SAME_STEP:
        return
    after = f"after {counted(latest.steps, 'step')}" if latest.steps else "before their first step"
    numbers = [*(one.number for one in alike), *([evidence.attempts[-1].number + 1] if failed else [])]
    lead = f"attempts {rank_list(numbers, 0)} failed alike {after}:"
    advice = (
        "A restart does not mend this, unless the script goes on from a checkpoint past that step: stop the run and"
        " look at the line and the batch."
    )
    words = Words(f"{lead} {headline(latest.ranks, cause, latest.world_size)}", advice, lead=lead)
    seen = {"attempts": len(alike) + bool(failed), "steps": latest.steps}
    yield KIND.finding("critical", words, latest.ranks, evidence=seen)


def _failed_alike(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The last attempts, as far back as they failed alike."""
    if not attempts or not attempts[-1].cause:
        return []
    latest = attempts[-1]

    def is_alike(other: Attempt) -> bool:
        near = abs(other.steps - latest.steps) <= SAME_STEP
        return near and other.ranks == latest.ranks and same_words(other.cause or "", latest.cause or "")

    return [*takewhile(is_alike, reversed(attempts))][::-1]


KIND = Kind("restart_loop", detect=detect, stays_told=False)
