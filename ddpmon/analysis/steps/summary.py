"""Means over a window: each rank's step, and the efficiencies of the world."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.run_state import WARM_UP_STEPS
from ddpmon.analysis.statistics.arrays import Bools, Floats, median
from ddpmon.analysis.statistics.excess import share_over_peers
from ddpmon.analysis.steps.pauses import TIMES
from ddpmon.analysis.steps.world import World
from ddpmon.messages import EfficiencyView

FEWEST_STEPS = 12
"""Steps that means are of, at least: steps before a change are better than means of fewer."""
LOSS_STEPS = 20
"""The last steps, whose mean is the loss as it is now: single batches stray."""
FEWEST_LOSSES = 5
"""Losses of a third of the window that tell whether they fall: the spread of fewer is hardly known."""
TREND_ERRORS = 2.0
"""Standard errors by which the last third differs from the first where losses rise or fall: chance does so in 5%."""


def past_warm_up(world: World) -> World:
    """Without the first steps of a run up to one that took far longer: it compiled, tuned or filled caches."""
    first = int(np.searchsorted(world.step, WARM_UP_STEPS, side="right"))
    lengths = world.step_ms
    if not first or len(world) < 2 * FEWEST_STEPS:
        return world
    long = np.flatnonzero(lengths[:first] > TIMES.enter * np.median(lengths))
    return world.between(int(long[-1]) + 1, len(world)) if len(long) else world


@dataclass(frozen=True)
class Summary:
    """Means of a World. Arrays are [R], in the order of its ranks."""

    ranks: tuple[int, ...]
    window: tuple[int, int]
    step_ms: Floats
    own_ms: Floats
    over_median: Floats
    """Own time over the median of the other ranks', as a fraction."""
    phases_ms: Floats
    """[R, 7] In the order of PHASES."""
    late_ms: Floats
    """NaN where no step had a gradient synchronisation."""
    critical_share: Floats
    """As in the World."""
    loss: Floats
    """The latest."""
    has_loss: list[bool]
    samples_per_s: Floats
    """NaN where samples were not counted."""
    tokens_per_s: Floats
    """NaN where there are no tokens."""
    gc_ms: Floats
    """Of a step."""
    exposed_ms: float
    exposed_wait_ms: float
    gradient_bytes: float
    step_ms_mean: float
    step_ms_p50: float
    step_ms_p95: float
    step_ms_max: float
    efficiency: EfficiencyView
    """With own time as useful time."""


def summarise(world: World) -> Summary:
    """Means of at least one step."""
    own = world.mean("own_ms")
    step = world.mean("length_ms")
    phases = np.column_stack([world.mean("phases_ms"), world.mean("wait_ms"), world.mean("transfer_ms")])
    lengths = world.step_ms
    with_gradients = ~np.isnan(world.late_ms[:, 0])
    late = world.late_ms[with_gradients].mean(axis=0) if with_gradients.any() else np.full(len(own), np.nan)
    seconds = step * (len(world) / 1e3)
    loss, has_loss = _latest_loss(world)
    return Summary(
        ranks=world.ranks,
        window=(int(world.step[0]), int(world.step[-1])),
        step_ms=step,
        own_ms=own,
        over_median=share_over_peers(own),
        phases_ms=phases,
        late_ms=late,
        critical_share=world.critical_share,
        loss=loss,
        has_loss=has_loss,
        samples_per_s=_rate(world.mean("samples") * len(world), seconds),
        tokens_per_s=_rate(world.mean("tokens") * len(world), seconds),
        gc_ms=world.mean("gc_ms"),
        exposed_ms=float(world.mean("exposed_ms").mean()),
        exposed_wait_ms=float(world.mean("exposed_wait_ms").mean()),
        gradient_bytes=float(world.mean("gradient_bytes").mean()),
        step_ms_mean=float(step.mean()),
        step_ms_p50=median(lengths),
        step_ms_p95=float(np.quantile(lengths, 0.95)),
        step_ms_max=float(lengths.max()),
        efficiency=efficiency(world),
    )


def _rate(total: Floats, seconds: Floats) -> Floats:
    return np.where((total > 0) & (seconds > 0), total / np.maximum(seconds, 1e-9), np.nan)


def efficiency(world: World) -> EfficiencyView:
    """The POP tree of a window; 1.0 where there was no own time at all."""
    return efficiency_of(world.mean("own_ms"), float(world.slowest_ms.mean()), float(world.mean("length_ms").mean()))


def efficiency_of(own_ms: Floats, slowest: float, step: float) -> EfficiencyView:
    """The POP tree of means over steps: each rank's own time, the largest own time of a step, a step's length."""
    mean, worst = float(own_ms.mean()), float(own_ms.max())
    step = max(step, slowest)  # ranks that nothing holds together have steps of their own length each
    if not (step > 0 and slowest > 0 and worst > 0):
        return EfficiencyView(1.0, 1.0, 1.0, 1.0, 1.0)
    return EfficiencyView(
        parallel=mean / step,
        load_balance=mean / slowest,
        load_balance_persistent=mean / worst,
        load_balance_moving=worst / slowest,
        communication=slowest / step,
    )


def _latest_loss(world: World) -> tuple[Floats, list[bool]]:
    """Each rank's last loss in the window, and whether it has one."""
    has_loss: Bools = np.any(world.has_loss, axis=0)
    last = len(world) - 1 - world.has_loss[::-1].argmax(axis=0)
    return world.loss[last, np.arange(world.loss.shape[1])], has_loss.tolist()


def loss_trend(world: World) -> tuple[float | None, bool | None]:
    """Mean loss of the last steps over all ranks, and whether it falls over the window; None: undecided.

    A loss that is not a number gives NaN, for everyone to see.
    """
    rows = world.has_loss.all(axis=1)
    means = world.loss[rows].mean(axis=1)
    if not len(means):
        return None, None
    now = float(means[-LOSS_STEPS:].mean())
    third = len(means) // 3
    if third < FEWEST_LOSSES or not np.isfinite(means).all():
        return now, None
    before, after = means[:third], means[-third:]
    noise = float(np.sqrt(before.var(ddof=1) / third + after.var(ddof=1) / third))
    change = float(after.mean() - before.mean())
    return now, None if abs(change) < TREND_ERRORS * noise else change < 0
