"""Time passes before a forward or a backward, outside of what is measured: scripts that load by hand load there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words
from ddpmon.analysis.kinds.whole_world import FEWEST_STEPS, SHORTEST_MS, mean_step_ms, most_ranks, since
from ddpmon.analysis.steps.recurrence import recurring_mean
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fitting
from ddpmon.messages import Phase

BEFORE_BACKWARD = "before backward"
NAMES = {"before forward": "before forward", BEFORE_BACKWARD: "between forward and backward"}
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
    forward_included: bool = False
    """No forward is measured: what passes before a backward is the forward as well."""


def detect(moment: Moment) -> Iterator[Detection[Gap]]:
    """Give a hint where most ranks spend a share of the step there that is worth having."""
    world, named = moment.world, moment.evidence.named
    step = mean_step_ms(world)
    if named is None or step < SHORTEST_MS.enter:
        return
    means = named.mean_ms(world.ranks, int(world.step[0]), int(world.step[-1]), len(world))
    spent = {name: most_ranks(means[name]) for name in NAMES if name in means}
    name = max(spent, key=lambda each: spent[each], default=None)
    if name is None or spent[name] < SHARE.enter * step:
        return
    if most_ranks(recurring_mean(world.phases_ms[..., Phase.OTHER])) >= SHARE.enter * step:
        ms = spent[name]
        with_forward = name == BEFORE_BACKWARD and "forward" in moment.evidence.unmeasured
        facts = Gap(name, ms, ms / step, step / max(step - ms, 1e-3), with_forward)
        yield Detection(KIND, "info", facts, world.ranks, "other", since(world, moment.held_one(KIND)))


def words(detection: Detection[Gap]) -> Words:
    """How much, and where."""
    facts = detection.facts
    if facts.forward_included:
        lead = f"{facts.gap_ms:.1f} ms of each step pass before backward, the forward included:"
        return Words(
            fitting(f"{lead} {facts.share:.0%}"),
            f"No forward is measured here, so that it is one with whatever else the script does in these"
            f" {facts.gap_ms:.1f} ms of each step, such as loading or moving data. `with ddpmon.phase(…)` around the"
            " model's call tells them apart.",
            lead=lead,
        )
    where = NAMES[facts.where]
    lead = f"{facts.gap_ms:.1f} ms of each step pass {where}, outside of any DataLoader:"
    return Words(
        fitting(f"{lead} {facts.share:.0%}"),
        f"What the script does {where} costs {facts.gap_ms:.1f} ms of each step. Where it loads or moves data there, a"
        " DataLoader with workers, or a thread that fetches the next batch, does so beside the training;"
        " `with ddpmon.phase(…)` around parts of it tells more.",
        lead=lead,
    )


KIND = Kind("gap", subject="world", gone="", words=words, detect=detect, fewest_steps=FEWEST_STEPS.enter, by_cost=True)
