"""Steps are so small that most of them is what it takes to take one. Never more than a hint: nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.kinds import communication_bound, data_bound, gc_pauses, loss_diverged, loss_spiked
from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.kinds.whole_world import FEWEST_STEPS, STAYS, mean_step_ms, since
from ddpmon.analysis.processes.parallelism import with_ddp
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import counted, fitting
from ddpmon.messages import Phase

SMALL_MS = Threshold(
    10.0,
    of="ms of the mean step",
    why="A judgement: optimizer, all-reduce and what is around them take some ms; of longer steps that is little.",
    below=True,
    keeps=STAYS,
)
COMPUTES = Threshold(
    0.5,
    of="share of a step in forward and backward",
    why="A judgement: below it, most of a step is what it costs to take one.",
    below=True,
    keeps=STAYS,
)
FIXED = Threshold(
    0.5,
    of="share of a step that is neither forward and backward nor waiting, for data or for other ranks",
    why="The rest, where forward and backward have less than their half.",
    keeps=STAYS,
)
RATHER = frozenset(each.KIND.name for each in (communication_bound, data_bound, gc_pauses, loss_diverged, loss_spiked))
"""Kinds that are reported instead of this hint."""


@dataclass(frozen=True)
class OverheadBound:
    """Of a step; gain: times the samples a second if twice as many pay for one."""

    step_ms: float
    forward_backward_ms: float
    fixed_ms: float
    gain: float
    samples: float = for_words()
    parallelism: str = for_words()


def detect(moment: Moment) -> Iterator[Detection[OverheadBound]]:
    """Only where forward is measured, and nothing else holds all ranks back."""
    if "forward" in moment.evidence.unmeasured or any(finding.kind in RATHER for finding in moment.findings):
        return
    world, held = moment.world, moment.held_one(KIND)
    step = mean_step_ms(world)
    phases = np.median(world.mean("phases_ms"), axis=0)
    data, forward, backward = phases[[Phase.DATA, Phase.FORWARD, Phase.BACKWARD]].tolist()
    computes = forward + backward
    wait = float(world.mean("wait_ms").mean())
    fixed = step - computes - data - wait
    stays = held is not None
    if step >= SMALL_MS.asked(stays) or computes >= COMPUTES.asked(stays) * step or fixed < FIXED.asked(stays) * step:
        return
    facts = OverheadBound(
        step_ms=step,
        forward_backward_ms=computes,
        fixed_ms=fixed,
        gain=2 * step / (step + computes + data + wait),
        samples=float(world.mean("samples").mean()),
        parallelism=moment.evidence.parallelism,
    )
    yield Detection(KIND, "info", facts, world.ranks, None, since(world, held))


def words(detection: Detection[OverheadBound]) -> Words:
    """What a step costs whatever is in it."""
    facts = detection.facts
    batch = f" of {counted(round(facts.samples), 'sample')}" if facts.samples else ""
    synchronisations = "the all-reduce" if with_ddp(facts.parallelism) else "the collectives"
    return Words(
        fitting(
            f"a step takes {facts.step_ms:.1f} ms, and {facts.forward_backward_ms:.1f} of them are forward and backward"
        ),
        f"{facts.fixed_ms:.1f} ms of each step{batch} are the optimizer, {synchronisations} and what is around them,"
        f" whatever the batch: batches twice as large pay it half as often, up to {facts.gain:.2f}x the samples a"
        " second.",
    )


KIND = Kind(
    "overhead_bound",
    subject="world",
    gone="",
    words=words,
    detect=detect,
    fewest_steps=FEWEST_STEPS.enter,
    by_cost=True,
)
