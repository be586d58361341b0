"""Made-up snapshots that are hard to draw: nothing in it, no number finite, a thousand ranks."""

from __future__ import annotations

import math

from msgspec.structs import replace

from ddpmon.messages import Event, Finding, RankView, RunView, Series, Snapshot
from tests.tui.snapshots import rank_view, running


def empty() -> Snapshot:
    """Every field that may be missing is missing."""
    return Snapshot(
        epoch="",
        version=0,
        at=0.0,
        run=RunView(id="", name="", world_size=3),
        state="running",
        verdict="",
        ranks=[RankView(rank=0, health="ok", stage="training"), RankView(rank=1), RankView(rank=2)],
    )


def nobody() -> Snapshot:
    """No rank was heard, and how many there will be is not known."""
    return replace(empty(), state="waiting", run=RunView(id="", name="sleep", world_size=0), ranks=[])


def not_finite() -> Snapshot:
    """Numbers that are none, wherever a number can be."""
    nan, inf = math.nan, math.inf
    calm = running(4, 4)
    ranks = [
        replace(calm.ranks[0], own_ms=nan, over_median=nan, loss=nan, step_ms=nan, phases_ms=(nan,) * 7),
        replace(calm.ranks[1], own_ms=inf, over_median=inf, loss=inf, step_ms=inf, phases_ms=(inf,) * 7),
        replace(
            calm.ranks[2], own_ms=-1.0, over_median=-inf, loss=-inf, phases_ms=(1.0,), late_ms=-inf, critical_share=nan
        ),
        replace(calm.ranks[3], own_ms=1e308, over_median=1e300, loss=1e300, step_ms=1e308, phases_ms=(1e308,) * 7),
    ]
    broken = Series(
        seconds=[0.0, 1.0, 2.0, 3.0, 4.0],
        low=[nan, 1.0, -inf, 1e308, None],
        median=[None, 2.0, nan, 1.5e308, nan],
        high=[inf, 3.0, None, 1.7e308, inf],
    )
    return replace(
        calm,
        ranks=ranks,
        loss=nan,
        loss_falls=False,
        step_ms_p50=inf,
        step_ms_max=nan,
        all_reduce_ms=-inf,
        wait_share=nan,
        gpu_percent=inf,
        samples_per_s=nan,
        eta_s=inf,
        verdict_since=nan,
        loss_series=broken,
        own_series=broken,
        events=[Event(at=inf, severity="?", text=""), Event(at=nan, severity="info", text="\x1b[31mred\x07")],
    )


def many() -> Snapshot:
    """1,024 ranks, one of them slow, one dead."""
    calm = running(1024, 8)
    ranks = [rank_view(r, 8, extra_ms=45.4 if r == 813 else 0.0, worst_ms=40.0) for r in range(1024)]
    ranks[300] = replace(ranks[300], health="dead")
    return replace(
        calm,
        ranks=ranks,
        state="slow",
        severity="warn",
        verdict="rank 813 (node101 gpu5) is slow: +41 ms compute each step.",
        findings=[Finding(kind="straggler", severity="warn", text="rank 813", ranks=[813])],
    )


MADE = {"empty": empty, "nobody": nobody, "not_finite": not_finite, "many": many}
