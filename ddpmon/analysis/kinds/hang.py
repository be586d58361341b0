"""No rank comes on: who did not arrive, and what the others wait in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.processes.hangs import (
    Standstill,
    absent,
    alike,
    line_of,
    not_heard,
    silence,
    silence_line,
)
from ddpmon.analysis.words import duration, named_ranks
from ddpmon.messages import Collective, Stack


@dataclass(frozen=True)
class Hang:
    """Where every rank stands."""

    idle_s: float
    waiting: list[int]
    """Ranks that wait for those of the finding."""
    collective: str | None
    """That they wait in."""
    sequence: int | None
    gone: list[int]
    silent: list[int]
    held: dict[str, dict[str, str]]
    """By rank: how the kernel keeps it from running, and where."""
    unheard: list[int]
    """Ranks of which nothing is heard and nothing is known, as behind a link that is cut."""
    stacks: list[dict[str, Any]]
    """Ranks with identical stacks together."""
    standstill: Standstill = for_words()
    late: Sequence[int] = for_words()
    """Those who did not arrive, who is surest first."""


def detect(moment: Moment) -> Iterator[Detection[Hang]]:
    """Nothing where no rank could tell where it is, and all are heard."""
    standstill = moment.evidence.standstill
    if standstill is None or not (standstill.stacks or standstill.silent or standstill.unheard):
        return
    stacks = standstill.stacks
    late = absent(standstill)
    waiting = sorted(rank for rank, stack in stacks.items() if stack.blocked and rank not in late)
    awaited = _awaited([stacks[rank] for rank in waiting])
    facts = Hang(
        idle_s=round(standstill.idle_s, 1),
        waiting=waiting,
        collective=awaited.name if awaited else None,
        sequence=awaited.sequence if awaited else None,
        gone=sorted(standstill.gone),
        silent=sorted(standstill.silent),
        held={str(rank): {"how": one.how, "where": one.where} for rank, one in sorted(standstill.held.items())},
        unheard=sorted(standstill.unheard),
        stacks=[
            {"ranks": ranks, "line": line_of(stacks[ranks[0]]), "frames": list(stacks[ranks[0]].frames)}
            for ranks in alike(stacks)
        ],
        standstill=standstill,
        late=late,
    )
    since = max(stack.step for stack in stacks.values()) + 1 if stacks else None
    needs_help = waiting or standstill.silent or standstill.unheard
    yield Detection(KIND, "critical" if needs_help else "warn", facts, sorted(late), since_step=since)


def _awaited(waiting: Sequence[Stack]) -> Collective | None:
    """The collective that most of the waiting ranks are in."""
    names = [stack.collective for stack in waiting if stack.collective]
    return max(names, key=lambda one: (names.count(one), one.sequence is not None), default=None)


def words(detection: Detection[Hang]) -> Words:
    """Who does not come, and what to look at."""
    facts, standstill = detection.facts, detection.facts.standstill
    stacks, world, waiting, late = standstill.stacks, standstill.world_size, facts.waiting, facts.late
    where = facts.collective or "a collective"
    who, others = named_ranks(late, world), named_ranks(waiting, world)
    if facts.gone and waiting:
        wait = "waits" if len(waiting) == 1 else "wait"
        return Words(f"{who} ended; {others} {wait} in {where}", f"Look at the last output of {who} in the run's logs.")
    if facts.silent:
        text, advice = silence(standstill)
        line = silence_line(standstill)
        lead = f"{text}:" if line else ""
        text = f"{lead} in {line}" if line else text
        if waiting:
            text = f"{text}; {others} {'waits' if len(waiting) == 1 else 'wait'} in {where}"
        return Words(text, advice, lead=lead)
    first = stacks.get(late[0]) if late else None
    if facts.unheard and first is None:
        text, advice = not_heard(standstill)
        if waiting:
            text = f"{text}; {others} {'waits' if len(waiting) == 1 else 'wait'} in {where}"
        return Words(text, advice)
    if first is not None and waiting:
        does = "does" if len(late) == 1 else "do"
        advice = f"Look at what {who} {does} in {line_of(first)}."
        if len({line_of(stacks[rank]) for rank in stacks}) == 1:
            advice = f"All ranks are at {line_of(first)}; look at what the call before it did on {who}."
        lead = f"{who} {does} not reach {where}:"
        return Words(f"{lead} in {line_of(first)}", advice, lead=lead)
    lines = {line_of(stack) for stack in stacks.values()}
    line = line_of(next(iter(stacks.values()))) if len(lines) == 1 else f"{len(lines)} different places"
    if waiting:
        lead = f"all ranks wait in {where} and none is missing:"
        return Words(
            f"{lead} {line}",
            "Every rank has issued it: look at the network between them and at the backend's own log.",
            lead=lead,
        )
    lead = f"no rank finished a step for {duration(standstill.idle_s)}, and none waits for another:"
    return Words(f"{lead} in {line}", f"Look at {line}." if len(lines) == 1 else "Look at each rank's line.", lead=lead)


KIND = Kind("hang", subject="world", gone="", words=words, detect=detect, explains="stalled")
