"""The one sentence about a run: who, how much, what kind, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddpmon.analysis.processes.unarmed import ENVIRONMENT, FLAGS, LATE, Unarmed, worth_telling
from ddpmon.analysis.words import counted, duration, fitting, rank_list
from ddpmon.messages import Finding

if TYPE_CHECKING:
    from ddpmon.analysis.steps.summary import Summary  # numpy with it, which the dashboard of a live run never needs

EVEN = (0.02, 0.05, 0.10)
"""How close to the median all own times can be said to be: few values, so that the sentence stays put."""


@dataclass(frozen=True)
class Waiting:
    """What a run that has no step yet waits for."""

    world_size: int
    """0 where a launcher other than torchrun decides it: not known before the first rank is heard."""
    launcher: bool = False
    """The command (torchrun) runs."""
    stages: dict[int, int] = field(default_factory=dict)
    """Index into STAGES of each rank that was heard."""
    started: frozenset[int] = frozenset()
    """Ranks whose process was seen."""
    unarmed: tuple[Unarmed, ...] = ()
    """Processes with torch and without the probe."""


_NOT_ARMED = {
    FLAGS: "python -E, -I or -S keeps it out",
    ENVIRONMENT: "a launcher started them without the PYTHONPATH that it got",
    LATE: "their output may say why",
}


def waiting(facts: Waiting) -> tuple[str, str]:
    """Sentence and severity of what is waited for: "2/4 ranks connected; importing torch: 2; not started: 3"."""
    unarmed = worth_telling(one for one in facts.unarmed if not one.gone)
    if not unarmed:
        return _awaited(facts), "info"
    unwatched = {one.rank for one in unarmed}
    others = any(rank not in unwatched for rank in range(facts.world_size))
    rest = f"; {_awaited(facts, unwatched)}" if others else ""
    return _unwatched(unarmed, facts.world_size) + rest, "warn"


def _unwatched(unarmed: Sequence[Unarmed], world_size: int, *, over: bool = False) -> str:
    """As in: all ranks run torch unwatched: put import ddpmon; ddpmon.init() in the script (the probe is not …)."""
    ranks = {one.rank for one in unarmed if one.rank is not None}
    if len(ranks) == len(unarmed):
        names = rank_list(list(ranks), world_size)
        who, more = ("all ranks" if names == "all" else f"rank {names}"), ""
    else:
        pids = sorted(one.pid for one in unarmed)
        who = f"{len(pids)} processes" if len(pids) > 1 else "a process"
        more = f"; pid {' '.join(map(str, pids[:4]))}{' …' if len(pids) > 4 else ''}"
    verb = "ran" if over else "run" if len(unarmed) > 1 else "runs"
    why = min((one.why for one in unarmed), key=list(_NOT_ARMED).index)
    do = "put import ddpmon; ddpmon.init() in the script"
    if why == ENVIRONMENT:
        do = "pass PYTHONPATH and DDPMON_* on to them"
    armed = "was never" if over else "is not"
    return f"{who} {verb} torch unwatched: {do} (the probe {armed} armed: {_NOT_ARMED[why]}{more})"


def _awaited(facts: Waiting, without: AbstractSet[int | None] = frozenset()) -> str:
    command = "torchrun" if facts.world_size else "the command"
    if not facts.launcher and not facts.stages:
        return f"the hub is up; {command} is about to start"
    if not facts.world_size:
        return "the command is running; no rank was heard yet"
    if not facts.stages and not facts.started:
        return f"torchrun is starting (it imports torch first); {counted(facts.world_size, 'rank')} to come"
    everyone = [rank for rank in range(facts.world_size) if rank not in without]
    groups = {
        "not started": [r for r in everyone if r not in facts.stages and r not in facts.started],
        "importing torch": [r for r in everyone if r in facts.started and facts.stages.get(r, 0) == 0]
        + [r for r, stage in facts.stages.items() if stage == 0 and r not in facts.started],
        "not yet in init_process_group": [r for r, stage in facts.stages.items() if stage == 1],
        "building the model": [r for r, stage in facts.stages.items() if stage == 2],
        "in the first step": [r for r, stage in facts.stages.items() if stage in {3, 4}],
        "gone before the first step": [r for r, stage in facts.stages.items() if stage == 5],
    }
    parts = [f"{what}: {rank_list(ranks, facts.world_size)}" for what, ranks in groups.items() if ranks]
    return f"{len(facts.stages)}/{counted(facts.world_size, 'rank')} connected; " + "; ".join(parts)


def running(found: Sequence[Finding], summary: Summary | None) -> tuple[str, str]:
    """Sentence and severity while all goes its way: the worst finding, or that there is none."""
    worst = _worst(found)
    if worst:
        return worst.text, worst.severity
    if summary is None:
        return "training has begun; too few steps to compare ranks", "info"
    if len(summary.ranks) == 1:
        return f"one rank; a step takes {summary.step_ms_p50:.1f} ms", "info"
    over = max((f for f in found if f.until_step is not None), key=lambda f: f.until_step or 0, default=None)
    if over:
        shorter = [over.brief] if over.brief else []
        return max((fitting("all ranks keep up", f"; {words}") for words in (over.text, *shorter)), key=len), "info"
    behind = float(abs(summary.over_median).max())
    for bound in EVEN:
        if behind <= bound:
            return f"all ranks within {bound:.0%} of the median", "info"
    return "no rank is late for long: now one, now another takes longer than the rest", "info"


@dataclass(frozen=True)
class Pausing:
    """What a run does just now instead of training."""

    kind: str
    """One of PAUSES."""
    ranks: Sequence[int]
    """Those that do it."""
    seconds: float
    """For how long."""


def paused(kind: str, ranks: Sequence[int], seconds: float, step: int, phase: str, world_size: int) -> str:
    """That a run did something else than training, once that is over. phase: of a pause of an unknown kind."""
    who = "" if len(ranks) == world_size else f" on rank {rank_list(ranks, world_size)}"
    where = f", in {phase}" if phase else ""
    return f"{kind} before step {step:,}: {duration(seconds)}{who}{where}"


def pausing(now: Pausing, world_size: int, found: str) -> str:
    """What goes on while no rank finishes a step, though all is well. found: what is wrong besides; "": nothing."""
    who = "" if len(now.ranks) == world_size else f" on rank {rank_list(now.ranks, world_size)}"
    others = "; the others wait" if who else ""
    return fitting(f"{now.kind}{who} for {duration(now.seconds)}{others}", f"; {found}" if found else "")


def stalled(idle_s: float, steps: dict[int, int], phases: dict[int, str], world_size: int) -> str:
    """Who stands where when no rank finishes steps any more."""
    least, most = min(steps.values()), max(steps.values())
    if least < most:
        behind = [rank for rank, step in steps.items() if step == least]
        where = f"rank {rank_list(behind, world_size)} at step {least:,}, the others at {most:,}"
    else:
        by_phase: dict[str, list[int]] = {}
        for rank, phase in phases.items():
            by_phase.setdefault(phase, []).append(rank)
        groups = sorted(by_phase.items(), key=lambda item: len(item[1]))
        where = "; ".join(f"{rank_list(ranks, world_size)} in {phase}" for phase, ranks in groups)
    return f"no rank finished a step for {duration(idle_s)}; {where}"


def ended(
    state: str,
    found: Sequence[Finding],
    steps: int,
    seconds: float | None,
    failure: str | None,
    waited: Waiting | None = None,
) -> tuple[str, str]:
    """Sentence and severity of a run that is over. `failure`: what is known of why it failed.

    waited: what it waited for last; it matters where no step was seen.
    """
    took = f" in {duration(seconds)}" if seconds is not None else ""
    if state == "failed":
        return failure or "the command failed; its own words are in the logs", "critical"
    if state == "unknown":
        return f"whether it still runs cannot be seen from here; {counted(steps, 'step')} recorded so far", "warn"
    if state == "lost":
        seen = f"{counted(steps, 'step')} {'was' if steps == 1 else 'were'} seen"
        return f"exit code unknown: its supervisor was killed and nobody saw how it ended; {seen}", "critical"
    if waited and not waited.stages and (unarmed := worth_telling(waited.unarmed, over=True)):
        how = "stopped on request" if state == "stopped" else "done"
        return f"{how}{took}, no step seen: {_unwatched(unarmed, waited.world_size, over=True)}", "warn"
    if state == "stopped":
        return f"stopped on request after {counted(steps, 'step')}{took}", "info"
    if not steps:
        return f"done{took}: no training step was seen", "warn"
    worst = _worst_in(found)
    done = f"done: {counted(steps, 'step')}{took}"
    return (f"{done}; {worst.text}", worst.severity) if worst else (done, "info")


def beside_state(sentence: str, state: str, found: Sequence[Finding], steps: int, seconds: float) -> str:
    """What is told of a run that is over where its state stands beside it. sentence: what `ended` tells.

    Of one that is done, what was found in it, and only if that is nothing how many steps it took.
    """
    if state != "done" or not steps:
        return sentence
    worst = _worst_in(found)
    return worst.text if worst else f"{counted(steps, 'step')} in {duration(seconds)}"


def _worst_in(found: Sequence[Finding]) -> Finding | None:
    """Of a run that is done: that a rank failed is not what it came to."""
    return _worst([f for f in found if f.explains != "failed"])


def _worst(found: Sequence[Finding]) -> Finding | None:
    above = [finding for finding in found if finding.severity != "info"]
    return min(above, key=lambda finding: finding.severity != "critical", default=None)
