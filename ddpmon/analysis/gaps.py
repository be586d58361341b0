"""Time that goes before a forward, or before its backward, outside of any DataLoader: who loads by hand loads there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.analysis.named import NamedTimes
from ddpmon.analysis.words import fitting
from ddpmon.analysis.world import World
from ddpmon.messages import Finding

NAMES = {"before forward": "before forward", "before backward": "between forward and backward"}
"""What the probe calls such a gap, and how it is told."""
SHARE = 0.1
FEWEST_STEPS = 40
SHORTEST_MS = 5.0


def gap(world: World, named: NamedTimes, before: Sequence[Finding]) -> Finding | None:
    """A hint where all ranks spend a share of the step there that is worth having; nothing is known to be wrong."""
    step = float(world.step_ms.mean())
    if len(world) < FEWEST_STEPS or step < SHORTEST_MS:
        return None
    means = named.mean_ms(world.ranks, int(world.step[0]), int(world.step[-1]), len(world))
    spent = {name: float(np.quantile(means[name], 0.5, method="lower")) for name in NAMES if name in means}
    name = max(spent, key=lambda each: spent[each], default=None)
    if name is None or spent[name] < SHARE * step:
        return None
    known = next((finding for finding in before if finding.kind == "gap"), None)
    ms = spent[name]
    return Finding(
        "gap",
        "info",
        fitting(f"{ms:.1f} ms of each step go {NAMES[name]}, outside of any DataLoader: {ms / step:.0%}"),
        list(world.ranks),
        "other",
        known.since_step if known and known.since_step is not None else int(world.step[0]),
        evidence={"where": name, "gap_ms": ms, "share": ms / step, "gain": step / (step - ms)},
        advice=(
            f"What the script does {NAMES[name]} costs {ms:.1f} ms of each step. Where it loads or moves data there, a"
            " DataLoader with workers, or a thread that fetches the next batch, does so beside the training;"
            " `with ddpmon.phase(…)` around parts of it tells more."
        ),
    )
