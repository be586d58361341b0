"""All ranks wait for data."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.kinds.relevance import BOUND, lasting_cost, most_ranks
from ddpmon.analysis.processes import loaders
from ddpmon.analysis.steps.window import FEWEST
from ddpmon.analysis.words import fitting
from ddpmon.messages import Finding, Phase


def detect(moment: Moment) -> Iterator[Finding]:
    """Find what most ranks wait in more than one step, and how many workers would hide it."""
    world = moment.world
    if cost := lasting_cost(moment, KIND, most_ranks(world, Phase.DATA), BOUND):
        data, lead = cost.cost_ms, f"all ranks wait {cost.cost_ms:.1f} ms a step for data:"
        bound = loaders.bound_workers(moment.evidence.conditions)
        where = f"; workers on {bound.where} alone" if bound else ""
        text = fitting(f"{lead} {cost.share:.0%} of it", where, f"; {cost.gain:.2f}x without")
        advice = loaders.advice(data, cost.step_ms, moment.evidence.conditions)
        yield KIND.finding(
            "warn",
            Words(text, advice, lead=lead),
            world.ranks,
            "data",
            evidence={"data_ms": data, "share": cost.share, "gain": cost.gain},
            since_step=cost.since,
            cost_ms=data,
        )


KIND = Kind(
    "data_bound",
    gone="data keeps up again",
    detect=detect,
    fewest_steps=FEWEST,
    by_cost=True,
    slows="waiting for data",
)
