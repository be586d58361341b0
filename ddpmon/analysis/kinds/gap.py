"""Time passes before a forward or a backward, outside of what is measured: scripts that load by hand load there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.kinds.relevance import COSTLY, cost, lasting_cost, most_ranks
from ddpmon.analysis.steps.window import FEWEST
from ddpmon.analysis.words import fitting
from ddpmon.messages import Finding, Phase

BEFORE_BACKWARD = "before backward"
NAMES = {"before forward": "before forward", BEFORE_BACKWARD: "between forward and backward"}
"""The probe's name of such a gap, and how sentences call it."""


def detect(moment: Moment) -> Iterator[Finding]:
    """Give a hint where most ranks spend a share of the step there that is worth having."""
    world, named = moment.world, moment.evidence.named
    if named is None or not lasting_cost(moment, KIND, most_ranks(world, Phase.OTHER), COSTLY):
        return
    means = named.mean_ms(world.ranks, int(world.step[0]), int(world.step[-1]), len(world))
    spent = {name: float(np.quantile(means[name], 0.5, method="lower")) for name in NAMES if name in means}
    name = max(spent, key=lambda each: spent[each], default="")
    found = cost(moment, KIND, spent.get(name, 0.0))
    if not COSTLY.reached(found.share):
        return
    ms, forward_included = found.cost_ms, name == BEFORE_BACKWARD and "forward" in moment.evidence.unmeasured
    lead = f"{ms:.1f} ms of each step pass {NAMES[name]}, outside of any DataLoader:"
    advice = (
        f"What the script does {NAMES[name]} costs {ms:.1f} ms of each step. Where it loads or moves data there, a"
        " DataLoader with workers, or a thread that fetches the next batch, does so beside the training;"
        " `with ddpmon.phase(…)` around parts of it tells more."
    )
    if forward_included:
        lead = f"{ms:.1f} ms of each step pass before backward, the forward included:"
        advice = (
            f"No forward is measured here, so that it is one with whatever else the script does in these {ms:.1f} ms of"
            " each step, such as loading or moving data. `with ddpmon.phase(…)` around the model's call tells them"
            " apart."
        )
    yield KIND.finding(
        "info",
        Words(fitting(f"{lead} {found.share:.0%}"), advice, lead=lead),
        world.ranks,
        "other",
        evidence={"where": name, "gap_ms": ms, "share": found.share, "gain": found.gain},
        beside={"forward_included": forward_included or None},
        since_step=found.since,
    )


KIND = Kind("gap", detect=detect, fewest_steps=FEWEST, by_cost=True)
