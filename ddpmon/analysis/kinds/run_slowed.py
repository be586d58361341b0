"""All ranks take longer than they did before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.kinds.late import pattern, since_words
from ddpmon.analysis.kinds.late_ranks import BEGINNING
from ddpmon.analysis.kinds.own_time import SOME_STEPS, WORTH
from ddpmon.analysis.slowness.slowdown import Slowdown
from ddpmon.analysis.words import fitting

ADVICE = {
    "data": "the shared disk or file system, how much the page cache holds, and how long the samples are",
    "forward": "what the script changed then: lengths, shapes, compilation, clocks of all GPUs",
    "backward": "what the script changed then: lengths, shapes, compilation, clocks of all GPUs",
    "optimizer": "what the script changed then: parameter groups, hooks, schedulers",
    "other": "what the script's loop does since then: logging, checkpoints, evaluation",
    "transfer": "the network and what else uses it, and the sizes of what is reduced",
}
"""Advice by phase."""


@dataclass(frozen=True)
class RunSlowed:
    """Of a step, over steps before; gain: times as fast if it were as before."""

    phase_excess_ms: float
    excess_ms: float
    """Of all phases and transfer."""
    increase_share: float
    """Of the time that the phase took before."""
    gain: float
    steps: int
    pattern: str | None = None
    since_interval: list[int] | None = None
    share: float = 1.0
    hidden_since: int | None = None
    changed: str | None = None
    """These five: see `Late`."""
    from_the_start: bool = for_words(default=False)


def detect(moment: Moment) -> Iterator[Detection[RunSlowed]]:
    """Return the slowdowns of all ranks of which the window has steps."""
    world = moment.longer or moment.world
    for one in moment.evidence.slowdowns:
        if one.scope == "all" and (one.until is None or one.until >= world.step[0]):
            yield _detected(moment, one)


def _detected(moment: Moment, one: Slowdown) -> Detection[RunSlowed]:
    world = moment.longer or moment.world
    held = next((f for f in moment.held(KIND) if f.until_step is None), None)
    last = int(world.step[-1]) if one.until is None else one.until
    facts = RunSlowed(
        phase_excess_ms=one.phases_ms[one.phase],
        excess_ms=one.excess_ms,
        increase_share=one.increase,
        gain=one.gain,
        steps=last - one.since + 1,
        from_the_start=one.since <= BEGINNING,
        **pattern(one),
    )
    worth = WORTH.reached(one.gain, held=held is not None and held.severity == "warn")
    return Detection(
        KIND, "warn" if worth and one.until is None else "info", facts, list(world.ranks), one.phase, one.since,
        one.until, one.cost_ms / max(1, facts.steps),
    )  # fmt: skip


def words(detection: Detection[RunSlowed]) -> Words:
    """Since when, in which phase, by how much, and what it costs."""
    facts, phase = detection.facts, detection.phase or ""
    over = f"{facts.increase_share:+.0%} {phase}"
    advice = f"No rank stands out: look at {ADVICE[phase]}."
    if detection.until_step is not None:
        lead = f"all ranks were slower from step {detection.since_step:,} to {detection.until_step:,}:"
        brief = f"all ranks were slower until step {detection.until_step:,}"
        return Words(fitting(f"{lead} {over}"), advice, brief, lead)
    more = "become slower and slower" if facts.pattern == "ramp" else "are slower"
    lead = f"all ranks {more}{since_words(facts, detection.since_step)}:"
    return Words(fitting(f"{lead} {over}", f"; {facts.gain:.2f}x if as before"), advice, lead=lead)


KIND = Kind(
    "run_slowed",
    subject="world",
    gone="all ranks are as fast as before again",
    words=words,
    detect=detect,
    fewest_steps=SOME_STEPS,
    by_cost=True,
    changes_level=True,
    slows="all ranks' {phase}",
)
