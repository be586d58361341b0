"""The verdict, one sentence about a run: the ranks, the problem and its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddpmon.analysis.processes.starts import worth_telling
from ddpmon.analysis.processes.waiting import Waiting, groups_by_progress, progress_text, unarmed_text
from ddpmon.analysis.words import VERDICT_WIDTH, duration, fit_parts, format_count, named_ranks, rank_list
from ddpmon.messages import Finding, PausingView

if TYPE_CHECKING:
    from ddpmon.analysis.steps.summary import Summary  # Importing this also imports numpy.

EVEN = (0.02, 0.05, 0.10, 0.20, 0.50)
"""Bounds with which the sentence states how close the ranks are. They are few, so that the sentence rarely changes."""


@dataclass(frozen=True)
class Verdict:
    """The sentence about a run, and the facts in it."""

    text: str = ""
    severity: str = "info"
    topic: tuple[str, ...] = ()
    """Identity of the sentence without its numbers, by name and subjects; empty if it is the text of a finding."""
    lead: int = 0
    """Number of characters at the beginning that name the subject; 0: the sentence has no such beginning."""
    findings: tuple[Finding, ...] = ()
    """Findings whose whole text is in the sentence."""


def of_finding(finding: Finding) -> Verdict:
    """Return the sentence of a finding."""
    return Verdict(finding.text, finding.severity, (), finding.lead, (finding,))


def _led(lead: str, rest: str, severity: str, *topic: str) -> Verdict:
    """Return a sentence whose beginning names the subject.

    Args:
        lead: The beginning that names the subject.
        rest: The rest of the sentence.
        severity: Severity of the verdict.
        topic: Name of the sentence and its subjects.

    """
    return Verdict(f"{lead} {rest}", severity, topic, len(lead))


def _followed(first: Verdict, second: Verdict) -> Verdict:
    """Return a sentence followed by a second sentence. If that does not fit, use the brief texts of the second that
    fit.
    """
    if len(whole := f"{first.text}; {second.text}") <= VERDICT_WIDTH:
        lead = len(first.text) + len("; ") + second.lead if second.lead else 0
        return replace(first, text=whole, lead=lead, findings=second.findings)
    briefs = (f"; {finding.brief}" for finding in second.findings if finding.brief)
    return replace(first, text=fit_parts(first.text, *briefs))


def waiting_sentence(facts: Waiting) -> Verdict:
    """Return the sentence about the start: "2/4 ranks connected; rank 2 is importing torch"."""
    unarmed = worth_telling(one for one in facts.unarmed if not one.gone)
    if not unarmed:
        return Verdict(progress_text(facts), "info", ("waiting", *groups_by_progress(facts)))
    unwatched = {one.rank for one in unarmed}
    others = any(rank not in unwatched for rank in range(facts.world_size))
    rest = f"; {progress_text(facts, unwatched)}" if others else ""
    lead, todo = unarmed_text(unarmed, facts.world_size)
    pids = map(str, sorted(one.pid for one in unarmed))
    return _led(lead, f"{todo}{rest}", "warn", "unwatched", *pids, *groups_by_progress(facts, unwatched))


def running_sentence(findings: Sequence[Finding], summary: Summary | None) -> Verdict:
    """Return the sentence of a run that trains: the worst finding, or that nothing was found."""
    worst = _worst(findings)
    if worst:
        return of_finding(worst)
    if summary is None:
        return Verdict("training has begun; too few steps to compare ranks", topic=("begun",))
    if len(summary.ranks) == 1:
        return Verdict(f"one rank; a step takes {summary.step_ms_p50:.1f} ms", topic=("one rank",))
    ended_lately = [f for f in findings if f.until_step is not None and f.until_step >= summary.window[0] - 1]
    over = max(ended_lately, key=lambda f: f.until_step or 0, default=None)
    # A slowdown of severity "info" is not reported here, but then the sentence does not say that ranks are even.
    is_slow = any(f.until_step is None and "excess_ms" in f.evidence for f in findings)
    if over and not is_slow:
        return _followed(Verdict("all ranks keep up", topic=("keep up",)), Verdict(over.text, findings=(over,)))
    behind = float(abs(summary.over_median).max())
    if behind > EVEN[-1]:
        most = f"{behind:.0%}" if behind < 1 else f"a factor of {1 + behind:,.0f}"
        return Verdict(f"no rank is slow beyond chance yet; ranks differ by up to {most}", topic=("uneven",))
    bound = next(each for each in EVEN if behind <= each)
    return Verdict(f"all ranks within {bound:.0%} of the others", topic=("even",))


def replayed(seconds: float) -> Verdict:
    """Return the verdict of a run that has finished no step for some seconds, and captured its training before."""
    lead = "a CUDA graph replays the training, and ddpmon cannot count its steps:"
    return _led(lead, f"none for {duration(seconds)}", "info", "replayed")


def unheard_sentence(ranks: Sequence[int], world_size: int) -> Verdict:
    """Return the verdict that steps of some ranks do not arrive, while no other rank is late."""
    lead = f"no steps arrive from {named_ranks(ranks, world_size)}:"
    return _led(lead, "ddpmon cannot tell which rank holds the others back", "warn", "unheard", *map(str, ranks))


def unwritable(why: str) -> Verdict:
    """Return the verdict that nothing can be recorded, with the reason."""
    return _led("the recording cannot be written:", why, "warn", "unwritable")


def stopping_sentence(ended: int, world_size: int, left_s: float, killed_launcher: str) -> Verdict:
    """Return the sentence of a run whose ranks were asked to end.

    Args:
        ended: Number of ranks that have ended.
        world_size: Number of ranks.
        left_s: Seconds until the other ranks are killed.
        killed_launcher: Name of the launcher if it was killed; "": a user requested the stop.

    """
    how_many = f"{ended}/{format_count(world_size, 'rank')} ended"
    left = f"; the others have {left_s:.0f} s left" if left_s else "; the others are being killed"
    left = left if ended < world_size else ""
    if not killed_launcher:
        return Verdict(f"stop requested: {how_many}{left}", "info", ("stopping",))
    asked = f"stopping its ranks; {how_many}{left}"
    return _led(f"{killed_launcher} was killed:", asked, "critical", "stopping")


def pausing_sentence(now: PausingView, world_size: int, besides: Verdict) -> Verdict:
    """Return the sentence of a pause in which no rank finishes a step.

    Args:
        now: The pause.
        world_size: Number of ranks.
        besides: The sentence about the steps before the pause.

    """
    who = "" if len(now.ranks) == world_size else f" on {named_ranks(now.ranks, world_size)}"
    others = "; the others wait" if who else ""
    lead = f"{now.kind}{who} for {duration(now.seconds)}{others}"
    topic = ("pausing", now.kind, *(map(str, sorted(now.ranks)) if who else ()), *besides.topic)
    alone = Verdict(lead, besides.severity, topic)
    return _followed(alone, besides) if besides.severity == "warn" else alone


def stalled_sentence(idle_s: float, steps: dict[int, int], phases: dict[int, str], world_size: int) -> Verdict:
    """Return the sentence of a run in which no rank progresses: the position of each rank.

    Args:
        idle_s: Seconds since a rank last finished a step.
        steps: Latest step of each rank.
        phases: Present phase of each rank.
        world_size: Number of ranks.

    """
    least, most = min(steps.values()), max(steps.values())
    if least < most:
        behind = [rank for rank, step in steps.items() if step == least]
        where = f"{named_ranks(behind, world_size)} at step {least:,}, the others at {most:,}"
    else:
        by_phase: dict[str, list[int]] = {}
        for rank, phase in phases.items():
            by_phase.setdefault(phase, []).append(rank)
        groups = sorted(by_phase.items(), key=lambda item: len(item[1]))
        where = "; ".join(f"{rank_list(ranks, world_size)} in {phase}" for phase, ranks in groups)
    topic = ("stalled", *(map(str, behind) if least < most else sorted(by_phase)))
    return Verdict(f"no rank finished a step for {duration(idle_s)}; {where}", "critical", topic)


def ended_sentence(
    state: str,
    findings: Sequence[Finding],
    steps: int,
    seconds: float | None,
    failure: tuple[str, str] | None,
    waited: Waiting | None = None,
    replayed: bool = False,
) -> Verdict:
    """Return the sentence of a run that has ended.

    Args:
        state: One of END_STATES.
        findings: All findings of the run.
        steps: Number of steps.
        seconds: Length of the run in seconds; None: unknown.
        failure: Subject of the sentence about the failure, and the whole sentence.
        waited: The last state before the first step, which is used if there was no step.
        replayed: True if a CUDA graph replayed further steps until the end.

    """
    took = f" in {duration(seconds)}" if seconds is not None else ""
    topic, did = ("ended", state), format_count(steps, "step") + " and those that a CUDA graph replayed" * replayed
    if state == "failed":
        lead, text = failure or ("", "the command failed; ddpmon logs shows its output")
        return Verdict(text, "critical", topic, len(lead))
    if state == "unknown":
        text = f"ddpmon cannot see from here whether the run still runs; {format_count(steps, 'step')} so far"
        return Verdict(text, "warn", topic)
    if state == "lost":
        how = f"somebody killed the run's supervisor before the end; {format_count(steps, 'step')} recorded"
        return _led("exit code unknown:", how, "critical", *topic)
    if waited and not waited.stages and (unarmed := worth_telling(waited.unarmed, over=True)):
        how = "stopped on request" if state == "stopped" else "done"
        who_and_what = " ".join(unarmed_text(unarmed, waited.world_size, over=True))
        return _led(f"{how}{took}, no step recorded:", who_and_what, "warn", *topic)
    if state == "done" and not steps:
        return _led(f"done{took}:", "no training step recorded", "warn", *topic)
    if state == "stopped":
        ended = Verdict(f"stopped on request after {did}{took}", "info", topic)
    elif state == "detached":
        ended = _led("detached:", f"{did}{took}; the job continues without ddpmon", "info", *topic)
    else:
        ended = _led("done:", f"{did}{took}", "info", *topic)
    worst = _costliest(findings)
    if worst is None:
        return ended
    return replace(ended, text=f"{ended.text}; {worst.text}", severity=worst.severity, findings=(worst,))


def beside_state(sentence: str, state: str, findings: Sequence[Finding], steps: int) -> str:
    """Return the sentence of a run that has ended, for a line that already shows its state.

    If the run is done, stopped or detached, the sentence is its most severe finding, if it has a finding.

    Args:
        sentence: The result of `ended_sentence`.
        state: One of END_STATES.
        findings: All findings of the run.
        steps: Number of steps.

    """
    if state not in {"done", "stopped", "detached"} or not steps:
        return sentence
    worst = _costliest(findings)
    return worst.text if worst else sentence.removeprefix("done: ")


def _costliest(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding that sums up a run: a critical one that lasts, or the costliest.

    A warning that is listed first and costs no time takes precedence over the costliest finding, because such a warning
    means that the training itself is wrong.
    """
    came_to = [f for f in findings if f.explains != "failed" and (f.severity != "info" or not f.is_lasting)]
    is_wrong = bool(came_to) and came_to[0].severity == "warn" and came_to[0].is_lasting and not came_to[0].cost_s
    if is_wrong and not any(f.severity == "critical" for f in came_to):
        return came_to[0]
    return max(came_to, key=_weight, default=None)


def _weight(finding: Finding) -> tuple[bool, bool, float, bool]:
    critical = finding.severity == "critical" and finding.is_lasting
    return critical, finding.severity != "info", finding.cost_s or 0.0, finding.is_lasting


def _worst(findings: Sequence[Finding]) -> Finding | None:
    above = [finding for finding in findings if finding.severity != "info" and finding.is_lasting]
    return min(above, key=lambda finding: finding.severity != "critical", default=None)
