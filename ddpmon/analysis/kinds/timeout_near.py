"""Waits that come near the timeout of their process group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddpmon.analysis.evidence import Wait
from ddpmon.analysis.kinds.kind import NEARLY_ALL, Kind, Moment, Severity, Words
from ddpmon.analysis.processes import disagreements
from ddpmon.analysis.processes.disagreements import line_of
from ddpmon.analysis.processes.hangs import NONE_MISSING, Standstill, absent
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fitting, named_ranks
from ddpmon.messages import Finding

NEAR = Threshold(
    0.5,
    of="share of the process group's timeout that a wait has used up when ddpmon first reports it",
    why="A judgement: half of the time is left to look at the missing rank. Few waits that end normally last that"
    " long.",
)
NOT_ENFORCED = Threshold(
    1.25,
    of="length of a wait that shows that nothing enforces the timeout, as a multiple of the timeout",
    why="A judgement: backends end a run within a second of the timeout (measured with gloo). Nothing will end a wait"
    " this long.",
)
UNHURRIED_S = 120.0
"""Seconds left above which they are given in minutes, below in tens of seconds."""


@Kind(
    gone="the wait that came near the timeout is over",
    stays_told=False,
    remedy="Let that rank finish, or start the next run with a longer `init_process_group(timeout=…)`.",
)
def timeout_near(moment: Moment) -> Iterator[Finding]:
    """A wait has used up much of its process group's timeout. When the timeout expires, NCCL and gloo end the run.

    The rank that the others wait for may hang or work. An evaluation of 14 minutes on rank 0 is no hang, but it ends a
    run whose timeout is 10 minutes. If the run stands still, `hang` is a finding as well and comes first. It says who
    hangs and where; this finding says when the run ends.
    """
    wait = moment.evidence.wait
    if wait is None or not NEAR.enter <= wait.waited_s / wait.timeout_s < NOT_ENFORCED.enter:
        return
    standing, late = wait.standing, awaited(wait.standing)
    first = standing.stacks.get(late[0]) if late else None
    line = line_of(first) if first else None
    facts = {
        "timeout_s": wait.timeout_s,
        "waited_s": round(wait.waited_s),
        "ends_at": round(wait.ends_at),
        "waiting": sorted(r for r, stack in standing.stacks.items() if stack.blocked and r not in late),
        "line": line,
        "gone": sorted(standing.gone) or None,
    }
    severity: Severity = "critical" if NEARLY_ALL.reached(wait.waited_s / wait.timeout_s) else "warn"
    words, since = _words(wait, sorted(late), line), standing.next_step
    yield moment.finding(facts, sorted(late), severity=severity, words=words, since_step=since)


def awaited(standing: Standstill) -> Sequence[int]:
    """Return the ranks that did not arrive, the surest first; else those of which nothing is known."""
    return absent(standing) or [rank for rank in range(standing.world_size) if rank not in standing.stacks]


def _words(wait: Wait, late: Sequence[int], line: str | None) -> Words:
    """Return whom the others wait for, and when the run ends. line: where the first of those is."""
    timeout_s, when = wait.timeout_s, _when(wait.timeout_s - round(wait.waited_s))
    allowed = f"{timeout_s:.3g} s" if timeout_s < UNHURRIED_S else f"{timeout_s / 60:.3g} min"
    end, brief = f"the timeout ({allowed}) ends the run {when}", f"timeout {when}"
    if not late:
        lead = "all ranks wait for each other:"
        return Words(fitting(f"{lead} {end}"), NONE_MISSING, brief, lead)
    if differ := wait.standing.disagreement:
        lead = "ranks wait for each other in different calls:"
        return Words(fitting(f"{lead} {end}"), disagreements.advice(differ, wait.standing.world_size), brief, lead)
    who = named_ranks(late, wait.standing.world_size)
    be, do = ("is", "does") if len(late) == 1 else ("are", "do")
    lead = f"all wait for {who}:"
    where = f"Look at what {who} {do} in {line} (ddpmon stack)." if line else f"See where {who} {be} (ddpmon stack)."
    advice = (
        f"{where} If it evaluates or saves alone, have every rank do a share, or allow more time:"
        " init_process_group(timeout=timedelta(...))."
    )
    if wait.standing.gone:
        advice = f"Look at the last output of {who} in the run's logs."
    return Words(fitting(f"{lead} {end}"), advice, brief, lead)


def _when(left_s: float) -> str:
    """Coarsely, so that the sentence stays put for a while."""
    if left_s < 10:
        return "in seconds"
    return f"in {left_s / 60:.0f} min" if left_s > UNHURRIED_S else f"in {round(left_s, -1):.0f} s"
