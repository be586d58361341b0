"""GPUs that hold their clocks down."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ddpmon.analysis.conditions import SLOWER_CLOCK, Conditions
from ddpmon.analysis.verdict import rank_list
from ddpmon.analysis.words import fitting
from ddpmon.messages import Finding

HARMLESS = frozenset({"power cap"})
"""A GPU at full load is held by its power cap; that alone is no fault."""


def gpu_throttled(told: Iterable[Conditions], world_size: int) -> list[Finding]:
    """One finding about all GPUs that held their clocks down for most of the last seconds.

    A warning where one of them is clearly below the clocks of the rest.
    """
    known = list(told)
    held = {one.rank: one for one in known if one.gpu_throttled}
    if not held:
        return []
    clocks = [one.gpu_clock_mhz for one in known if one.gpu_clock_mhz and not one.gpu_throttled]
    usual = float(np.median(clocks)) if clocks else None
    low = [
        r for r, one in held.items() if usual and one.gpu_clock_mhz and usual / one.gpu_clock_mhz - 1 >= SLOWER_CLOCK
    ]
    reasons = sorted({reason for one in held.values() for reason in one.gpu_throttled.split(", ")})
    if not low and HARMLESS.issuperset(reasons):
        return []
    ranks = sorted(low or held)
    slowest = min((held[rank].gpu_clock_mhz or np.inf, rank) for rank in ranks)
    clock = f", {slowest[0]:,.0f} of {usual:,.0f} MHz" if low else ""
    many = len(ranks) > 1
    return [
        Finding(
            "gpu_throttled",
            "warn" if low else "info",
            fitting(
                f"GPU{'s' if many else ''} of rank{'s' if many else ''} {rank_list(ranks, world_size)}"
                f" hold{'' if many else 's'} {'their' if many else 'its'} clocks down: {', '.join(reasons)}",
                clock,
            ),
            ranks,
            evidence={
                "reasons": reasons,
                "clock_mhz": slowest[0] if np.isfinite(slowest[0]) else None,
                "others_clock_mhz": usual,
                "temperature_c": max((held[rank].gpu_temperature_c or 0.0 for rank in ranks), default=0.0) or None,
            },
            advice="Look at cooling and power limits (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER): all ranks wait"
            " for the slowest GPU.",
        )
    ]
