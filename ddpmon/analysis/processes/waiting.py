"""Words about a run that has no step yet, and about the progress of its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from ddpmon.analysis.processes.starts import ENVIRONMENT, FLAGS, LATE, Unarmed
from ddpmon.analysis.words import duration, format_count, named_ranks
from ddpmon.messages import (
    STAGE_CONNECTED,
    STAGE_ENDED,
    STAGE_GROUP,
    STAGE_IMPORTING,
    STAGE_MODEL,
    STAGE_TRAINING,
)


@dataclass(frozen=True)
class Waiting:
    """The state of a run that has no step yet."""

    world_size: int
    """Number of ranks; 0 if it is unknown until the first rank connects, because the launcher is not torchrun."""
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
    """The line of the script at which all ranks have been for a while; "": no such line."""
    line_s: float = 0.0
    """Seconds for which all ranks have been at this line."""
    attached: int = 0
    """Number of ranks on this host of a job to which ddpmon attaches; 0: ddpmon started the job itself."""
    in_c_code: tuple[tuple[str, str], ...] = ()
    """Ranks in C code, in which the probe cannot start after ddpmon has attached. Each has the name of its C code; "":
    not known yet."""


_NOT_ARMED = {
    FLAGS: "with python -E, -I or -S, the probe cannot start",
    ENVIRONMENT: "the ranks' launcher did not pass PYTHONPATH on",
    LATE: "the probe did not start; the output of the ranks may say why",
}


def unarmed_text(unarmed: Sequence[Unarmed], world_size: int, *, over: bool = False) -> tuple[str, str]:
    """Return the beginning of the sentence, such as "all ranks run torch without the probe:", and the advice."""
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


def progress_text(facts: Waiting, without: AbstractSet[int | None] = frozenset()) -> str:
    """Return words such as "2/4 ranks connected; rank 2 is importing torch". `without`: ranks to leave out."""
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
    parts = [_progress(what, ranks, facts.world_size) for what, ranks in groups_by_progress(facts, without).items()]
    if facts.line:
        parts.append(f"for {duration(facts.line_s)} in {facts.line}")
    return f"{len(facts.stages)}/{format_count(facts.world_size, 'rank')} connected; " + "; ".join(parts)


def _entered(facts: Waiting) -> str:
    """Return words about the number of ranks of a job to which ddpmon has attached."""
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
"""Words for the progress of one rank before its first step, and the same words for several ranks."""


def _progress(what: str, ranks: Sequence[int], world_size: int) -> str:
    """Return a clause about a group, such as "ranks 0-1 are importing torch" or "no rank has started"."""
    if len(ranks) == world_size > 1 and " not " in what:
        return f"no rank {what.replace(' not', '')}"
    return f"{named_ranks(ranks, world_size)} {what if len(ranks) == 1 else _PLURALS[what]}"


def groups_by_progress(facts: Waiting, without: AbstractSet[int | None] = frozenset()) -> dict[str, list[int]]:
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
