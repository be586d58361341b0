"""Findings of some kinds: made up, or found in worlds that are."""

from collections.abc import Sequence
from dataclasses import replace as with_changes
from math import inf
from typing import Any, NamedTuple

from msgspec.structs import replace

from ddpmon.analysis.events import Announcement, Announcer
from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.findings import all_findings
from ddpmon.analysis.kinds import kind_of
from ddpmon.analysis.slowness.engine import Engine
from ddpmon.analysis.slowness.slowdown import Slowdown
from ddpmon.analysis.steps.window import Window
from ddpmon.analysis.steps.world import World
from ddpmon.messages import Finding


def finding(kind: str, severity: str, text: str, ranks: list[int], **more: Any) -> Finding:
    """One that says of a run's state and of machines what all of its kind say."""
    made = Finding(kind, severity, text, ranks, **more)
    return replace(made, explains=kind_of(made).explains, device=kind_of(made).device)


NOTHING = Evidence()
JUDGED_STEPS = 50
"""Steps from one judgement of a run to the next."""


class Moment(NamedTuple):
    """One judgement of a run."""

    steps: int
    """Steps so far."""
    slowdowns: Sequence[Slowdown]
    findings: list[Finding]
    events: list[Announcement]
    """New ones. Ends are announced at once."""


def unfold(world: World, evidence: Evidence = NOTHING, *, every: int = 20) -> list[Moment]:
    """Judge a run after every few steps, by its last 600 steps and its last 30 seconds, as a hub does."""
    engine, window, news, moments = Engine(), Window(600), Announcer(), []
    hosts, before = _hosts(world, evidence), []
    for end in range(every, len(world) + every, every):
        part = world.steps_between(end - every, end)
        window.append(part)
        engine.append(part)
        told = engine.judge(window.as_world(), hosts)
        known = with_changes(evidence, slowdowns=told, world_size=len(world.ranks))
        found = all_findings(window.as_world(30.0), known, before, window.as_world())
        moments.append(Moment(min(end, len(world)), told, found, news.announce(before, found, inf)))
        before = found
    return moments


def _hosts(world: World, evidence: Evidence) -> dict[int, str]:
    return dict.fromkeys(world.ranks, "here") | {one.rank: one.host for one in evidence.conditions}


def slowdowns(world: World, evidence: Evidence = NOTHING) -> Sequence[Slowdown]:
    """Return who is slow, after judging a run again and again as it went on. evidence: with the hosts."""
    engine, told, hosts = Engine(), (), _hosts(world, evidence)
    for end in range(JUDGED_STEPS, len(world) + JUDGED_STEPS, JUDGED_STEPS):
        engine.append(world.steps_between(end - JUDGED_STEPS, min(end, len(world))))
        told = engine.judge(world.steps_between(0, min(end, len(world))), hosts)
    return told


def judged(
    world: World | None, evidence: Evidence = NOTHING, before: Sequence[Finding] = (), longer: World | None = None
) -> list[Finding]:
    """Return the findings about a run, with those about slow ranks."""
    run = longer if longer is not None else world
    known = evidence if run is None or not len(run) else with_changes(evidence, slowdowns=slowdowns(run, evidence))
    return all_findings(world, known, before, longer)


def of_kinds(*kinds: str, world: World | None = None, before: Sequence[Finding] = (), **evidence: Any) -> list[Finding]:
    """Return what is found of some kinds. evidence: as in `Evidence`."""
    return [each for each in judged(world, Evidence(**evidence), before) if each.kind in kinds]


def causes(world: World, before: Sequence[Finding] = (), **evidence: Any) -> list[Finding]:
    """Return what is found to hold all ranks back alike."""
    kinds = ("data_bound", "gc_pauses", "loss_diverged", "communication_bound", "loss_spiked", "overhead_bound")
    return of_kinds(*kinds, world=world, before=before, **evidence)
