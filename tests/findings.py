"""Findings of some kinds: made up, or found in worlds that are."""

from collections.abc import Sequence
from dataclasses import replace as with_changes
from typing import Any

from msgspec.structs import replace

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.findings import findings
from ddpmon.analysis.kinds import kind_of
from ddpmon.analysis.slowness.engine import Engine
from ddpmon.analysis.slowness.slowdown import Slowdown
from ddpmon.analysis.steps.world import World
from ddpmon.messages import Finding


def finding(kind: str, severity: str, text: str, ranks: list[int], **more: Any) -> Finding:
    """One that says of a run's state and of machines what all of its kind say."""
    made = Finding(kind, severity, text, ranks, **more)
    return replace(made, explains=kind_of(made).explains, device=kind_of(made).device)


NOTHING = Evidence()
JUDGED_STEPS = 50
"""Steps from one judgement of a run to the next."""


def slowdowns(world: World, evidence: Evidence = NOTHING) -> Sequence[Slowdown]:
    """Return who is slow, after judging a run again and again as it went on. evidence: with the hosts."""
    engine, told = Engine(), ()
    hosts = dict.fromkeys(world.ranks, "here") | {one.rank: one.host for one in evidence.conditions}
    for end in range(JUDGED_STEPS, len(world) + JUDGED_STEPS, JUDGED_STEPS):
        engine.append(world.between(end - JUDGED_STEPS, min(end, len(world))))
        told = engine.judge(world.between(0, min(end, len(world))), hosts)
    return told


def judged(
    world: World | None, evidence: Evidence = NOTHING, before: Sequence[Finding] = (), longer: World | None = None
) -> list[Finding]:
    """Return the findings about a run, with those about slow ranks."""
    run = longer if longer is not None else world
    known = evidence if run is None or not len(run) else with_changes(evidence, slowdowns=slowdowns(run, evidence))
    return findings(world, known, before, longer)


def of_kinds(*kinds: str, world: World | None = None, before: Sequence[Finding] = (), **evidence: Any) -> list[Finding]:
    """What is found of some kinds. evidence: as in `Evidence`."""
    return [each for each in judged(world, Evidence(**evidence), before) if each.kind in kinds]


def causes(world: World, before: Sequence[Finding] = (), **evidence: Any) -> list[Finding]:
    """What is found to hold all ranks back alike."""
    kinds = ("data_bound", "gc_pauses", "loss_diverged", "communication_bound", "loss_spiked", "overhead_bound")
    return of_kinds(*kinds, world=world, before=before, **evidence)
