"""Findings about ranks that make no progress, and about waits that approach the timeout of their process group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from ddpmon.analysis.evidence import Wait
from ddpmon.analysis.kinds.kind import USED_UP_SHARE, Kind, Moment, Severity, Words
from ddpmon.analysis.processes.disagreements import advice, line_of, place_of, sentence
from ddpmon.analysis.processes.gpus import broken_gpus, evidence_of, named_gpu
from ddpmon.analysis.processes.hangs import (
    NONE_MISSING,
    NOT_MET,
    Standstill,
    absent_ranks,
    explain_silence,
    groups_by_stack,
    idle_gpus,
    lock_advice,
    not_heard,
    silence_line,
)
from ddpmon.analysis.processes.loaders import Worker
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import duration, fit_parts, named_ranks
from ddpmon.messages import MEETINGS, Collective, Finding, Stack

BROKEN_GPU = (
    "The GPU, its power or its bus has failed; the kernel log of the host (dmesg) has details. Restart the run without"
    " that GPU, or on another machine."
)


@Kind(
    explains="stalled",
    remedy="Look at the line of the rank that did not arrive, not at the ranks that wait. `ddpmon stack` prints all"
    " stacks again.",
)
def hang(moment: Moment) -> Iterator[Finding]:
    """No rank makes progress. The finding names the ranks that did not arrive, and the call in which the others wait.

    There is no finding if all ranks are connected but none can report its current line of code.
    """
    standstill = moment.evidence.standstill
    if standstill is None or not (standstill.stacks or standstill.silent or standstill.unheard):
        return
    stacks, late = standstill.stacks, absent_ranks(standstill)
    waiting = sorted(rank for rank, stack in stacks.items() if stack.blocked and rank not in late)
    awaited = _awaited([stacks[rank] for rank in waiting])
    facts = {
        "idle_s": round(standstill.idle_s, 1),
        "waiting": waiting,
        "collective": awaited.name if awaited else None,
        "sequence": awaited.sequence if awaited else None,
        "gone": sorted(standstill.gone),
        "silent": sorted(standstill.silent),
        "held": {str(rank): {"how": one.how, "where": one.where} for rank, one in sorted(standstill.held.items())},
        "unheard": sorted(standstill.unheard),
        "stacks": [
            {"ranks": ranks, "line": line_of(stacks[ranks[0]]), "frames": list(stacks[ranks[0]].frames)}
            for ranks in groups_by_stack(stacks)
        ],
        "disagreement": _disagreement(standstill),
        "gpus": {str(rank): asdict(one) for rank, one in sorted(standstill.gpus.items())} or None,
        "workers": {str(rank): asdict(one) for rank, one in sorted(standstill.workers.items())} or None,
    }
    needs_help = waiting or standstill.silent or standstill.unheard or standstill.disagreement
    severity: Severity = "critical" if needs_help else "warn"
    words = _words(standstill, late, waiting, awaited.name if awaited else "a collective")
    yield moment.finding(facts, sorted(late), severity=severity, words=words, since_step=standstill.next_step)


def _disagreement(standstill: Standstill) -> dict[str, object] | None:
    """Return how ranks that wait for each other in different calls differ, for the report's JSON."""
    one = standstill.disagreement
    if one is None:
        return None
    sides = [{"ranks": list(side.ranks), "waits_in": side.waits_in, "line": side.line} for side in (one.odd, one.rest)]
    return {"how": one.how, "odd": sides[0], "rest": sides[1], "scope_line": one.scope.line if one.scope else None}


def _awaited(waiting: Sequence[Stack]) -> Collective | None:
    """Return the collective in which most of the waiting ranks wait; None if no collective is known."""
    names = [stack.collective for stack in waiting if stack.collective]
    return max(names, key=lambda one: (names.count(one), one.sequence is not None), default=None)


def _words(standstill: Standstill, late: Sequence[int], waiting: Sequence[int], where: str) -> Words:
    """Return the words about which ranks did not arrive, and what to look at.

    Args:
        standstill: The state of every rank.
        late: The ranks that did not arrive, the most certain first.
        waiting: The ranks that wait for them.
        where: The call in which the waiting ranks wait.

    """
    stacks, world = standstill.stacks, standstill.world_size
    who = named_ranks(late, world)
    others_wait = f"; {named_ranks(waiting, world)} {'waits' if len(waiting) == 1 else 'wait'} in {where}"
    others_wait = others_wait if waiting else ""
    if standstill.gone and waiting:
        look = f"Look at the last output of {who} in the run's logs."
        if not all(rank in standstill.left for rank in late):
            return Words(f"{who} ended{others_wait}", look)
        steps = standstill.left[late[0]]
        its = "its" if len(late) == 1 else "their"
        when = f"after step {steps:,}" if steps else f"before {its} first step"
        all_must = (
            "All ranks must run the same number of steps. Give each rank the same number of batches, and let all ranks"
            " stop together (all_reduce a flag)."
            if steps
            else (
                "If the script can exit early, it must exit on all ranks, even if the output of one rank "
                "already exists."
            )
        )
        return Words(
            f"{who} ended {its} script {when}{others_wait}",
            f"{named_ranks(waiting, world)[:1].upper()}{named_ranks(waiting, world)[1:]} went on, in"
            f" {line_of(stacks[waiting[0]])}. {all_must} {look}",
        )
    if late and late[0] in standstill.gpus and standstill.gpus[late[0]].is_broken:
        lead = f"{named_gpu(late[0], standstill.gpus[late[0]].device)}:"
        return Words(f"{lead} {evidence_of(late[0], standstill.gpus)}{others_wait}", BROKEN_GPU, lead=lead)
    if standstill.silent:
        text, todo = explain_silence(standstill)
        line = silence_line(standstill)
        lead = f"{text}:" if line else ""
        return Words((f"{lead} in {line}" if line else text) + others_wait, todo, lead=lead)
    if differ := standstill.disagreement:
        lead, place = sentence(differ, world)
        return Words(f"{lead} {place}", advice(differ, world), lead=lead)
    if late and late in (idle_gpus(stacks), broken_gpus(standstill.gpus)):
        signs = evidence_of(late[0], standstill.gpus)
        lead = f"the GPU of {who} makes no progress:" if len(late) == 1 else f"the GPUs of {who} make no progress:"
        return Words(
            f"{lead} {signs}; all have issued {where}"
            if signs
            else f"{lead} all ranks have issued {where}, and the other GPUs are ahead",
            "The GPU either runs no kernel, or runs a kernel that does not end. Look for Xid errors in the "
            "kernel log (dmesg), and for"
            " ECC errors, clocks and power in nvidia-smi -q. If the GPU shows errors, train without it.",
            lead=lead,
        )
    first = stacks.get(late[0]) if late else None
    if standstill.unheard and first is None:
        text, todo = not_heard(standstill)
        return Words(text + others_wait, todo)
    lines = {line_of(stack) for stack in stacks.values()}
    if words := _for_workers(standstill, late, others_wait):
        return words
    if first is not None and waiting:
        does = "does" if len(late) == 1 else "do"
        look = lock_advice(first) or f"Look at what {who} {does} in {line_of(first)}."
        if len(lines) == 1:
            look = f"All ranks are at {line_of(first)}; look at what the previous call did on {who}."
        lead = f"{who} {does} not reach {where}:"
        return Words(f"{lead} in {line_of(first)}", look, lead=lead)
    line = lines.pop() if len(lines) == 1 else f"{len(lines)} different places"
    if waiting:
        lead = f"all ranks wait in {where} and none is missing:"
        meets = any(stack.collective and stack.collective.name in MEETINGS for stack in stacks.values())
        return Words(f"{lead} {line}", NOT_MET if meets else NONE_MISSING, lead=lead)
    lead = f"no rank finished a step for {duration(standstill.idle_s)}, and none waits for another:"
    if lines or not stacks:
        return Words(f"{lead} in {line}", "Look at each rank's line." if lines else f"Look at {line}.", lead=lead)
    one, places = next(iter(stacks.values())), {place_of(stack) for stack in stacks.values()}
    if len(places) == 1 and one.own:
        lead = f"no step for {duration(standstill.idle_s)}: all ranks are at"
        return Words(f"{lead} {places.pop()}", lock_advice(one) or f"Look at {line}.", lead=lead)
    return Words(f"{lead} in {line}", f"Look at {line}.", lead=lead)


def _for_workers(standstill: Standstill, late: Sequence[int], others_wait: str) -> Words | None:
    """Return the words about ranks that wait for DataLoader workers; None if the first rank of `late` does not wait for
    one.
    """
    stacks = standstill.stacks
    fetching = [rank for rank in late or sorted(stacks) if rank in stacks and stacks[rank].worker]
    if not fetching or (late and fetching[0] != late[0]) or (not late and len(fetching) < len(stacks)):
        return None
    worker = standstill.workers.get(fetching[0]) or Worker(stacks[fetching[0]].worker)
    who = named_ranks(fetching, standstill.world_size)
    waits, which = ("waits", "") if len(fetching) == 1 else ("wait", f" (rank {fetching[0]}: {worker.pid})")
    lead = f"{who} {waits} for DataLoader worker{f' {worker.pid}' if not which else f's{which}'}:"
    return Words(f"{lead} {worker.place}{others_wait}", worker.advice, lead=lead)


NEAR_TIMEOUT = Threshold(
    0.5,
    of="share of the process group's timeout after which ddpmon reports a wait",
    why="A judgement call: half of the time is left to look at the missing rank. Few waits that end normally last that"
    " long.",
)
NOT_ENFORCED = Threshold(
    1.25,
    of="length of a wait, as a multiple of the timeout, above which the backend evidently ignores it",
    why="A judgement call: backends end a run within a second of the timeout (measured with gloo). If a wait "
    "is longer than that, the backend will not end it.",
)
UNHURRIED_S = 120.0
"""Remaining seconds above which the sentence gives the time in minutes, and below which it gives tens of seconds."""


@Kind(
    gone="the wait that came near the timeout has ended",
    stays_told=False,
    remedy="Let that rank finish, or start the next run with a longer `init_process_group(timeout=…)`.",
)
def timeout_near(moment: Moment) -> Iterator[Finding]:
    """A wait has used up much of its process group's timeout. When the timeout expires, NCCL and gloo end the run.

    The rank that the others wait for may hang, or may still work. An evaluation of 14 minutes on rank 0 is no hang, but
    it ends a run whose timeout is 10 minutes. If no rank makes progress, there is also the finding `hang`, which comes
    first. `hang` says which rank hangs and where; this finding says when the run ends.
    """
    wait = moment.evidence.wait
    if wait is None or not NEAR_TIMEOUT.enter <= wait.waited_s / wait.timeout_s < NOT_ENFORCED.enter:
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
    severity: Severity = "critical" if USED_UP_SHARE.is_reached(wait.waited_s / wait.timeout_s) else "warn"
    words, since = _words_of_wait(wait, sorted(late), line), standing.next_step
    yield moment.finding(facts, sorted(late), severity=severity, words=words, since_step=since)


def awaited(standing: Standstill) -> Sequence[int]:
    """Return the ranks that did not arrive, the most certain first. If unknown, return the ranks without a stack."""
    return absent_ranks(standing) or [rank for rank in range(standing.world_size) if rank not in standing.stacks]


def _words_of_wait(wait: Wait, late: Sequence[int], line: str | None) -> Words:
    """Return the words about the ranks that the others wait for, and when the run ends.

    Args:
        wait: The wait that the timeout will end.
        late: The ranks that the others wait for.
        line: The line of the first of these ranks; None: unknown.

    """
    timeout_s, when = wait.timeout_s, _when(wait.timeout_s - round(wait.waited_s))
    allowed = f"{timeout_s:.3g} s" if timeout_s < UNHURRIED_S else f"{timeout_s / 60:.3g} min"
    end, brief = f"the timeout ({allowed}) ends the run {when}", f"timeout {when}"
    if not late:
        lead = "all ranks wait for each other:"
        return Words(fit_parts(f"{lead} {end}"), NONE_MISSING, brief, lead)
    if differ := wait.standing.disagreement:
        lead = "ranks wait for each other in different calls:"
        return Words(fit_parts(f"{lead} {end}"), advice(differ, wait.standing.world_size), brief, lead)
    who = named_ranks(late, wait.standing.world_size)
    be, do = ("is", "does") if len(late) == 1 else ("are", "do")
    lead = f"all wait for {who}:"
    where = f"Look at what {who} {do} in {line} (ddpmon stack)." if line else f"See where {who} {be} (ddpmon stack)."
    look = (
        f"{where} If that rank evaluates or saves alone, let every rank do a part, or allow more time:"
        " init_process_group(timeout=timedelta(...))."
    )
    if wait.standing.gone:
        look = f"Look at the last output of {who} in the run's logs."
    return Words(fit_parts(f"{lead} {end}"), look, brief, lead)


def _when(left_s: float) -> str:
    """Return the remaining time, rounded coarsely so that the sentence does not change each second."""
    if left_s < 10:
        return "in seconds"
    return f"in {left_s / 60:.0f} min" if left_s > UNHURRIED_S else f"in {round(left_s, -1):.0f} s"
