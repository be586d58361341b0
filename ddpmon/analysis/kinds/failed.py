"""Findings about ranks that failed, in the present attempt and in earlier attempts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from ddpmon.analysis.kinds.kind import Kind, Moment
from ddpmon.analysis.processes import failures
from ddpmon.analysis.processes.explanation import explain_words, same_words
from ddpmon.analysis.words import format_count, rank_list
from ddpmon.messages import Attempt, Finding

FEWEST_ATTEMPTS = 2
"""Minimum number of consecutive attempts that fail alike: a lost node or connection rarely recurs at the same step."""
SAME_STEP = 1
"""Maximum difference between the step counts of attempts that failed alike, because torchrun ends the other ranks a
moment later."""


def _explains(failed: Finding, hang: Finding) -> bool:
    """Return whether a failure explains a hang. It does not if the hang names missing ranks, or if only a wait timed
    out.
    """
    return not hang.ranks and not failed.evidence.get("only_lost_peer")


@Kind(
    "critical",
    "{failed}| {cause}",
    "{next_step}",
    subject="rank",
    is_announced=False,
    explains="failed",
    outdoes=("hang",),
    covers=_explains,
    stays_told=False,  # The finding changes when more is known about the first failure.
    remedy="Read the exception, its line, and the advice below. `ddpmon logs --rank K` shows the output before the"
    " exception.",
)
def rank_failed(moment: Moment) -> Iterator[Finding]:
    """A rank failed. The finding names the first cause and the ranks that failed in the same way."""
    if first := moment.evidence.failed:
        memory = moment.evidence.memory
        resident = {one.rank: (one.rss_bytes, one.worker_bytes) for one in memory if one.rss_bytes}
        world_size = moment.evidence.world_size
        failed = failures.who_failed(first.ranks, world_size)
        next_step = failures.advice(first, resident)
        next_step = next_step or failures.look_at_traceback(first, moment.evidence.step, world_size)
        beside = {"failed": failed, "cause": first.cause, "next_step": next_step}
        yield moment.finding({"only_lost_peer": first.only_lost_peer or None}, first.ranks, beside=beside)


@Kind(
    "critical",
    "attempts {numbers} failed in the same way {after}:| {headline}",
    "A restart fixes this only if the script resumes from a checkpoint after that step. Stop the run, and look at the"
    " failing line and the batch.",
    stays_told=False,
)
def restart_loop(moment: Moment) -> Iterator[Finding]:
    """Attempts of a run failed in the same way after the same number of steps, so the next one will probably fail too.

    The finding ends once the present attempt has finished more steps, or has failed for another reason. Attempts whose
    ranks could not connect do not count.
    """
    evidence = moment.evidence
    alike = _failed_alike([one for one in evidence.attempts if not explain_words(one.cause or "").lost_peer])
    if len(alike) < FEWEST_ATTEMPTS:
        return
    latest = alike[-1]
    cause = latest.cause or ""
    failed = evidence.failed if evidence.failed and not evidence.failed.only_lost_peer else None
    if not same_words(failed.cause, cause) if failed else evidence.step > latest.steps + SAME_STEP:
        return
    numbers = [*(one.number for one in alike), *([evidence.attempts[-1].number + 1] if failed else [])]
    beside = {
        "numbers": rank_list(numbers, 0),
        "after": f"after {format_count(latest.steps, 'step')}" if latest.steps else "before their first step",
        "headline": failures.headline(latest.ranks, cause, latest.world_size),
    }
    yield moment.finding({"attempts": len(numbers), "steps": latest.steps}, latest.ranks, beside=beside)


def _failed_alike(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the latest consecutive attempts that failed in the same way, oldest first."""
    if not attempts or not attempts[-1].cause:
        return []
    latest = attempts[-1]

    def is_alike(other: Attempt) -> bool:
        near = abs(other.steps - latest.steps) <= SAME_STEP
        return near and other.ranks == latest.ranks and same_words(other.cause or "", latest.cause or "")

    return [*takewhile(is_alike, reversed(attempts))][::-1]
