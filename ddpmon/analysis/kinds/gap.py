"""Time goes before a forward, or before its backward, outside of any DataLoader: who loads by hand loads there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words
from ddpmon.analysis.kinds.whole_world import FEWEST_STEPS, SHORTEST_MS, mean_step_ms, since
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fitting

NAMES = {"before forward": "before forward", "before backward": "between forward and backward"}
"""The probe's name of such a gap, and how sentences call it."""
SHARE = Threshold(
    0.1,
    of="share of a step that most ranks spend outside of what is measured, before a forward or its backward",
    why="A judgement: 1.1 times as fast without it is worth a hint, which is all that it is.",
)


@dataclass(frozen=True)
class Gap:
    """Of a step; gain: times as fast without."""

    where: str
    """Of NAMES."""
    gap_ms: float
    share: float
    gain: float


def detect(moment: Moment) -> Iterator[Detection[Gap]]:
    """A hint where all ranks spend a share of the step there that is worth having; nothing is known to be wrong."""
    world, named = moment.world, moment.evidence.named
    step = mean_step_ms(world)
    if named is None or step < SHORTEST_MS.enter:
        return
    means = named.mean_ms(world.ranks, int(world.step[0]), int(world.step[-1]), len(world))
    spent = {name: float(np.quantile(means[name], 0.5, method="lower")) for name in NAMES if name in means}
    name = max(spent, key=lambda each: spent[each], default=None)
    if name is not None and spent[name] >= SHARE.enter * step:
        ms = spent[name]
        facts = Gap(name, ms, ms / step, step / max(step - ms, 1e-3))
        yield Detection(KIND, "info", facts, world.ranks, "other", since(world, moment.held_one(KIND)))


def words(detection: Detection[Gap]) -> Words:
    """How much, and where."""
    facts = detection.facts
    where = NAMES[facts.where]
    lead = f"{facts.gap_ms:.1f} ms of each step go {where}, outside of any DataLoader:"
    return Words(
        fitting(f"{lead} {facts.share:.0%}"),
        f"What the script does {where} costs {facts.gap_ms:.1f} ms of each step. Where it loads or moves data there, a"
        " DataLoader with workers, or a thread that fetches the next batch, does so beside the training;"
        " `with ddpmon.phase(…)` around parts of it tells more.",
        lead=lead,
    )


KIND = Kind("gap", subject="world", gone="", words=words, detect=detect, fewest_steps=FEWEST_STEPS.enter, by_cost=True)
