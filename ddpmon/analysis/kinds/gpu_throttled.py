"""GPUs hold their clocks down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.kinds.kind import Detection, Kind, Moment, Words, for_words
from ddpmon.analysis.processes.conditions import SLOWER_CLOCK
from ddpmon.analysis.words import fitting, named_ranks
from ddpmon.messages import DeviceMark

HARMLESS = frozenset({"power cap"})
"""A GPU at full load is held by its power cap; that alone is no fault."""


@dataclass(frozen=True)
class GpuThrottled:
    """Why, and what clocks they and the others have."""

    reasons: list[str]
    clock_mhz: float | None
    """The lowest."""
    others_clock_mhz: float | None
    temperature_c: float | None
    """The highest."""
    is_slower: bool = for_words()
    """Their clocks are clearly below the others'."""
    world_size: int = for_words()


def detect(moment: Moment) -> Iterator[Detection[GpuThrottled]]:
    """All GPUs that held their clocks down for most of the last seconds.

    A warning where one of them is clearly below the clocks of the rest.
    """
    conditions = moment.evidence.conditions
    held = {one.rank: one for one in conditions if one.gpu_throttled}
    if not held:
        return
    clocks = [one.gpu_clock_mhz for one in conditions if one.gpu_clock_mhz and not one.gpu_throttled]
    usual = float(np.median(clocks)) if clocks else None
    low = [
        r
        for r, one in held.items()
        if usual and one.gpu_clock_mhz and usual / one.gpu_clock_mhz - 1 >= SLOWER_CLOCK.enter
    ]
    reasons = sorted({reason for one in held.values() for reason in one.gpu_throttled})
    if not low and HARMLESS.issuperset(reasons):
        return
    ranks = sorted(low or held)
    slowest = min(held[rank].gpu_clock_mhz or np.inf for rank in ranks)
    facts = GpuThrottled(
        reasons=reasons,
        clock_mhz=slowest if np.isfinite(slowest) else None,
        others_clock_mhz=usual,
        temperature_c=max((held[rank].gpu_temperature_c or 0.0 for rank in ranks), default=0.0) or None,
        is_slower=bool(low),
        world_size=moment.evidence.world_size,
    )
    yield Detection(KIND, "warn" if low else "info", facts, ranks)


def words(detection: Detection[GpuThrottled]) -> Words:
    """Whose, why, and how much slower they are."""
    facts, s = detection.facts, "s" if len(detection.ranks) > 1 else ""
    hold = "hold their" if s else "holds its"
    clock = f", {facts.clock_mhz:,.0f} of {facts.others_clock_mhz:,.0f} MHz" if facts.is_slower else ""
    lead = f"GPU{s} of {named_ranks(detection.ranks, facts.world_size)} {hold} clocks down:"
    return Words(
        fitting(f"{lead} {', '.join(facts.reasons)}", clock),
        "Look at cooling and power limits (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER): all ranks wait"
        " for the slowest GPU.",
        lead=lead,
    )


KIND = Kind(
    "gpu_throttled",
    subject="world",
    gone="no GPU holds its clocks down any more",
    words=words,
    detect=detect,
    slows="waiting for throttled GPUs",
    device=DeviceMark("throttled", ["gpu_temperature", "gpu_clock"], 4),
    quantities=("gpu_power",),
)
