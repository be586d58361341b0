"""GPUs hold their clocks down."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.processes.conditions import SLOWER_CLOCK, median_of
from ddpmon.analysis.words import fitting, named_ranks
from ddpmon.messages import DeviceMark, Finding

HARMLESS = frozenset({"power cap"})
"""A GPU at full load is held by its power cap; that alone is no fault."""


def detect(moment: Moment) -> Iterator[Finding]:
    """All GPUs that held their clocks down for most of the last seconds.

    A warning where one of them is clearly below the clocks of the rest.
    """
    conditions = moment.evidence.conditions
    held = {one.rank: one for one in conditions if one.gpu_throttled}
    usual = median_of(one.gpu_clock_mhz for one in conditions if not one.gpu_throttled)
    clocks = {rank: one.gpu_clock_mhz for rank, one in held.items() if one.gpu_clock_mhz}
    low = [rank for rank, mhz in clocks.items() if usual and SLOWER_CLOCK.reached(usual / mhz - 1)]
    reasons = sorted({reason for one in held.values() for reason in one.gpu_throttled})
    if not low and HARMLESS.issuperset(reasons):
        return
    ranks, s = sorted(low or held), "s" if len(low or held) > 1 else ""
    slowest = min((clocks[rank] for rank in ranks if rank in clocks), default=None)
    clock = f", {slowest:,.0f} of {usual:,.0f} MHz" if low else ""
    lead = (
        f"GPU{s} of {named_ranks(ranks, moment.evidence.world_size)} {'hold their' if s else 'holds its'} clocks down:"
    )
    words = Words(
        fitting(f"{lead} {', '.join(reasons)}", clock),
        "Look at cooling and power limits (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER): all ranks wait"
        " for the slowest GPU.",
        lead=lead,
    )
    evidence = {
        "reasons": reasons,
        "clock_mhz": slowest,
        "others_clock_mhz": usual,
        "temperature_c": max(held[rank].gpu_temperature_c or 0.0 for rank in ranks) or None,
    }
    yield KIND.finding("warn" if low else "info", words, ranks, evidence=evidence)


KIND = Kind(
    "gpu_throttled",
    gone="no GPU holds its clocks down any more",
    detect=detect,
    slows="waiting for throttled GPUs",
    device=DeviceMark("throttled", ["gpu_temperature", "gpu_clock"], 4),
    quantities=("gpu_power",),
)
