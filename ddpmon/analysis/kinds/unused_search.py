"""DDP searches each step for unused parameters, and never found one: find_unused_parameters=True for nothing.

The walk through the graph is timed on the training thread, and marking one parameter as used on another one; the small
all-reduce that belongs to it comes on top. Which parameters were unused is looked at after 1, 10, 100 and every 500
backward calls.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.kinds.relevance import STAYS, lasting_cost
from ddpmon.analysis.steps.window import FEWEST
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import counted, fitting
from ddpmon.messages import Finding, Model

WORTH = Threshold(
    0.02,
    of="share of a step that looking for unused parameters takes for nothing",
    why="A judgement: it is certain that nothing was found, and leaving a word out mends it.",
    keeps=STAYS,
)
FEWEST_CHECKS = 2
"""The first backward is often unlike the others."""


def detect(moment: Moment) -> Iterator[Finding]:
    """Return the finding where searching costs time worth having, and no parameter of any model was ever unused."""
    setups = [moment.evidence.setups[rank] for rank in moment.world.ranks if rank in moment.evidence.setups]
    models = [model for setup in setups for model in setup.models if model.search_us]
    if not models or any(model.unused or model.searches < FEWEST_CHECKS for model in models):
        return
    search_ms = max(sum(_a_step_ms(model, setup.reductions) for model in setup.models) for setup in setups)
    cost = lasting_cost(moment, KIND, np.full(len(moment.world), search_ms), WORTH)
    if cost is None:
        return
    checks = min(model.searches for model in models)
    lead = f"find_unused_parameters=True takes {cost.cost_ms:.1f} ms a step and finds none:"
    words = Words(
        fitting(f"{lead} {cost.share:.0%} of it"),
        "Leave it out of DistributedDataParallel: every parameter got a gradient on every rank"
        f" in {counted(checks, 'backward call that was', 'backward calls that were')} checked. Keep it only if some"
        " steps use other parts of the model.",
        lead=lead,
    )
    known = {"search_ms": cost.cost_ms, "share": cost.share, "gain": cost.gain, "checked": checks}
    yield KIND.finding("warn", words, moment.world.ranks, evidence=known, since_step=cost.since, cost_ms=cost.cost_ms)


def _a_step_ms(model: Model, reductions: int) -> float:
    return model.search_us * max(1, reductions) / 1000


KIND = Kind(
    "unused_search",
    gone="looking for unused parameters costs little now",
    detect=detect,
    fewest_steps=FEWEST,
    by_cost=True,
    slows="searching for unused parameters",
)
