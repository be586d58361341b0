"""Findings of some kinds: made up, or found in worlds that are."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.findings import findings
from ddpmon.analysis.kinds import kind_of
from ddpmon.analysis.steps.world import World
from ddpmon.messages import Finding


def finding(kind: str, severity: str, text: str, ranks: list[int], **more: Any) -> Finding:
    """One that says of a run's state and of machines what all of its kind say."""
    made = Finding(kind, severity, text, ranks, **more)
    return replace(made, explains=kind_of(made).explains, device=kind_of(made).device)


def of_kinds(*kinds: str, world: World | None = None, before: Sequence[Finding] = (), **evidence: Any) -> list[Finding]:
    """What is found of some kinds. evidence: as in `Evidence`."""
    return [each for each in findings(world, Evidence(**evidence), before) if each.kind in kinds]


def causes(world: World, before: Sequence[Finding] = (), **evidence: Any) -> list[Finding]:
    """What is found to hold all ranks back alike."""
    kinds = ("data_bound", "gc_pauses", "loss_diverged", "communication_bound", "loss_spiked", "overhead_bound")
    return of_kinds(*kinds, world=world, before=before, **evidence)
