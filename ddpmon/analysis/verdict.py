"""The verdict, one sentence about a run: the ranks, the problem and its cost."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ddpmon.analysis.processes.starts import ENVIRONMENT, FLAGS, LATE, Unarmed, worth_telling
from ddpmon.analysis.words import VERDICT_WIDTH, duration, fit_parts, format_count, named_ranks, rank_list
from ddpmon.messages import (
    OUT_OF_DATA,
    PAUSES,
    STAGE_CONNECTED,
    STAGE_ENDED,
    STAGE_GROUP,
    STAGE_IMPORTING,
    STAGE_MODEL,
    STAGE_TRAINING,
    Finding,
    PausingView,
)

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
    """Identity of the sentence without its numbers: its name and subjects; empty if the sentence is the text of a
    finding."""
    lead: int = 0
    """Number of characters at the beginning that name the subject; 0: the whole sentence does."""
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
    """Return a sentence followed by another one, or by as many of the other one's brief texts as fit."""
    if len(whole := f"{first.text}; {second.text}") <= VERDICT_WIDTH:
        lead = len(first.text) + len("; ") + second.lead if second.lead else 0
        return replace(first, text=whole, lead=lead, findings=second.findings)
    briefs = (f"; {finding.brief}" for finding in second.findings if finding.brief)
    return replace(first, text=fit_parts(first.text, *briefs))


@dataclass(frozen=True)
class Waiting:
    """The state of a run that has no step yet."""

    world_size: int
    """Number of ranks; 0 if a launcher other than torchrun sets it: it is unknown until the first rank connects."""
    launcher: bool = False
    """True once the command (torchrun) runs."""
    stages: dict[int, int] = field(default_factory=dict)
    """Index into STAGES of each rank that has connected."""
    started: frozenset[int] = frozenset()
    """Ranks whose process has started."""
    unarmed: tuple[Unarmed, ...] = ()
    """Processes that use torch but run without the probe."""
    warnings: int = 0
    """Number of repetitions of the launcher's latest warning, while no rank is heard."""
    line: str = ""
    """The line at which all ranks have been for a while; "": there is none."""
    line_s: float = 0.0
    """Seconds for which all ranks have been at this line."""
    attached: int = 0
    """Number of ranks on this host of a job to which ddpmon attaches; 0: ddpmon started the job itself."""
    in_c_code: tuple[tuple[str, str], ...] = ()
    """Attached ranks that have not returned to Python code, where the probe can start, each with the C code that it is
    in; "": not known yet."""


_NOT_ARMED = {
    FLAGS: "with python -E, -I or -S, the probe cannot start",
    ENVIRONMENT: "the ranks' launcher did not pass PYTHONPATH on",
    LATE: "the probe did not start; the output of the ranks may say why",
}


def waiting_sentence(facts: Waiting) -> Verdict:
    """Return the sentence about the start: "2/4 ranks connected; rank 2 is importing torch"."""
    unarmed = worth_telling(one for one in facts.unarmed if not one.gone)
    if not unarmed:
        return Verdict(_awaited(facts), "info", ("waiting", *_groups(facts)))
    unwatched = {one.rank for one in unarmed}
    others = any(rank not in unwatched for rank in range(facts.world_size))
    rest = f"; {_awaited(facts, unwatched)}" if others else ""
    lead, todo = _unwatched(unarmed, facts.world_size)
    pids = map(str, sorted(one.pid for one in unarmed))
    return _led(lead, f"{todo}{rest}", "warn", "unwatched", *pids, *_groups(facts, unwatched))


def _unwatched(unarmed: Sequence[Unarmed], world_size: int, *, over: bool = False) -> tuple[str, str]:
    """Return the lead of the sentence, "all ranks run torch without the probe:", and the advice after it."""
    ranks = {one.rank for one in unarmed if one.rank is not None}
    if len(ranks) == len(unarmed):
        who, more = named_ranks(sorted(ranks), world_size), ""
    else:
        pids = sorted(one.pid for one in unarmed)
        who = f"{len(pids)} processes" if len(pids) > 1 else "a process"
        more = f"; pid {' '.join(map(str, pids[:4]))}{' …' if len(pids) > 4 else ''}"
    verb = "ran" if over else "run" if len(unarmed) > 1 else "runs"
    why = min((one.why for one in unarmed), key=list(_NOT_ARMED).index)
    do = "put import ddpmon; ddpmon.init() into the script"
    if why == ENVIRONMENT:
        do = "pass PYTHONPATH and DDPMON_* on to the ranks"
    return f"{who} {verb} torch without the probe:", f"{do} ({_NOT_ARMED[why]}{more})"


def _awaited(facts: Waiting, without: AbstractSet[int | None] = frozenset()) -> str:
    if facts.attached:
        return _entered(facts)
    command = "torchrun" if facts.world_size else "the command"
    if not facts.launcher and not facts.stages:
        return f"the hub is up; {command} is about to start"
    if not facts.world_size:
        return f"the command is running{_warned(facts)}; no rank has connected yet"
    if not facts.stages and not facts.started:
        so_far = _warned(facts) or " (the ranks first import torch)"
        return f"torchrun is starting{so_far}; waiting for {format_count(facts.world_size, 'rank')}"
    parts = [_progress(what, ranks, facts.world_size) for what, ranks in _groups(facts, without).items()]
    if facts.line:
        parts.append(f"for {duration(facts.line_s)} in {facts.line}")
    return f"{len(facts.stages)}/{format_count(facts.world_size, 'rank')} connected; " + "; ".join(parts)


def _entered(facts: Waiting) -> str:
    """Return how far ddpmon has attached to the ranks of a job."""
    if facts.in_c_code:
        places: dict[str, list[str]] = {}
        for name, place in facts.in_c_code[:4]:
            places.setdefault(place, []).append(name)
        named = ", ".join(f"{', '.join(names)} {place}".rstrip() for place, names in places.items())
        inside = named_ranks(sorted(facts.stages), facts.world_size) if facts.stages else "no rank yet"
        more = " …" if len(facts.in_c_code) > 4 else ""
        return f"the probe is in {inside}; no answer from {named}{more}; it starts there on return from C code"
    if len(facts.stages) < facts.attached:
        return f"attaching to {format_count(facts.attached, 'rank')}"
    return "the probe is in all ranks; waiting for the first whole step"


def _warned(facts: Waiting) -> str:
    return f" and has warned {format_count(facts.warnings, 'time')}" if facts.warnings else ""


_PLURALS = {
    "has not started": "have not started",
    "has not connected yet": "have not connected yet",
    "is importing torch": "are importing torch",
    "has not called init_process_group yet": "have not called init_process_group yet",
    "is building the model": "are building the model",
    "is in the first step": "are in the first step",
    "ended before the first step": "ended before the first step",
}
"""Progress of one rank before its first step in words, and that of several ranks."""


def _progress(what: str, ranks: Sequence[int], world_size: int) -> str:
    """Return a clause about a group, such as "ranks 0-1 are importing torch" or "no rank has started"."""
    if len(ranks) == world_size > 1 and " not " in what:
        return f"no rank {what.replace(' not', '')}"
    return f"{named_ranks(ranks, world_size)} {what if len(ranks) == 1 else _PLURALS[what]}"


def _groups(facts: Waiting, without: AbstractSet[int | None] = frozenset()) -> dict[str, list[int]]:
    """Return groups of ranks by their progress, without empty groups."""
    everyone = [rank for rank in range(facts.world_size) if rank not in without]
    missing = [rank for rank in everyone if rank not in facts.stages]
    reached = ({STAGE_IMPORTING}, {STAGE_CONNECTED}, {STAGE_GROUP}, {STAGE_MODEL, STAGE_TRAINING}, {STAGE_ENDED})
    groups = (
        [rank for rank in missing if rank not in facts.started],
        [rank for rank in missing if rank in facts.started],
        *([rank for rank, stage in facts.stages.items() if stage in stages] for stages in reached),
    )
    return {what: ranks for what, ranks in zip(_PLURALS, groups, strict=True) if ranks}


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
    # A slowdown of severity "info" is not the sentence, but ranks are then not called even.
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


def paused_text(kind: str, ranks: Sequence[int], seconds: float, step: int, phase: str, world_size: int) -> str:
    """Return the text of the event for a pause that has ended.

    Args:
        kind: One of PAUSES.
        ranks: Ranks that paused.
        seconds: Length of the pause.
        step: The step before which, or in which, the ranks paused.
        phase: The longest phase of a pause of unknown kind; "" for other kinds.
        world_size: Number of ranks.

    """
    if kind == PAUSES[OUT_OF_DATA]:
        return (
            f"{named_ranks(ranks, world_size)} ran out of data after step {step - 1:,}; the other ranks "
            "continue to train"
        )
    who = "" if len(ranks) == world_size else f" on {named_ranks(ranks, world_size)}"
    where = f", in {phase}" if phase else ""
    return f"{kind} before step {step:,}: {duration(seconds)}{who}{where}"


def unwritable(why: str) -> Verdict:
    """Return the verdict that nothing can be recorded, with the reason."""
    return _led("the recording cannot be written:", why, "warn", "unwritable")


def stopping_sentence(ended: int, world_size: int, left_s: float, killed_launcher: str) -> Verdict:
    """Return the sentence of a run whose ranks were asked to end.

    Args:
        ended: Number of ranks that have ended.
        world_size: Number of ranks.
        left_s: Seconds until the others are killed.
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
        besides: The sentence about the steps before.

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
        idle_s: Time since a rank last finished a step.
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
        seconds: Length of the run; None: unknown.
        failure: Subject of the sentence about the failure, and the whole sentence.
        waited: The last state before the first step, which is used if there was no step.
        replayed: A CUDA graph replayed further steps until the end.

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
        who_and_what = " ".join(_unwatched(unarmed, waited.world_size, over=True))
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

    For a run that is done, stopped or detached, this is its most severe finding, if it has one.

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

    A warning that is listed first and costs no time takes precedence over the costliest: the training itself is wrong.
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
