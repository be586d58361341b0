"""All ranks wait for data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.kinds.whole_world import (
    FEWEST_STEPS,
    SHORTEST_MS,
    STAYS,
    mean_step_ms,
    most_ranks,
    since,
)
from ddpmon.analysis.processes import loaders
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.steps.recurrence import recurring_mean
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fitting
from ddpmon.messages import Phase

SHARE = Threshold(
    0.3,
    of="share of a step that most ranks wait for data",
    why="A judgement: without it steps are 1.4 times as fast, and a few more workers are all that it takes.",
    keeps=STAYS,
)


@dataclass(frozen=True)
class DataBound:
    """Of a step; gain: times as fast without waiting for data."""

    data_ms: float
    share: float
    gain: float
    step_ms: float = for_words()
    conditions: Sequence[Conditions] = for_words()


def detect(moment: Moment) -> Iterator[Detection[DataBound]]:
    """Find what most ranks wait in more than one step."""
    world, held = moment.world, moment.held_one(KIND)
    step = mean_step_ms(world)
    least = step * SHARE.asked(held is not None)
    data = most_ranks(world.mean("phases_ms")[:, Phase.DATA])
    if not SHORTEST_MS.reached(step) or data < least:
        return
    if most_ranks(recurring_mean(world.phases_ms[..., Phase.DATA])) >= least:
        facts = DataBound(data, data / step, step / max(step - data, 1e-3), step, moment.evidence.conditions)
        yield Detection(KIND, "warn", facts, world.ranks, "data", since(world, held), cost_ms=data)


def words(detection: Detection[DataBound]) -> Words:
    """How long, and how many workers would hide it."""
    facts = detection.facts
    lead = f"all ranks wait {facts.data_ms:.1f} ms a step for data:"
    return Words(
        fitting(f"{lead} {facts.share:.0%} of it", f"; {facts.gain:.2f}x without"),
        loaders.advice(facts.data_ms, facts.step_ms, facts.conditions),
        lead=lead,
    )


KIND = Kind(
    "data_bound",
    subject="world",
    gone="data keeps up again",
    words=words,
    detect=detect,
    fewest_steps=FEWEST_STEPS.enter,
    by_cost=True,
    slows="waiting for data",
)
