"""Means of each rank over a window of steps, also of ranks that have left, and the trend of the loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.run_state import WARM_UP_STEPS
from ddpmon.analysis.statistics.arrays import Bools, Floats, series_median
from ddpmon.analysis.statistics.excess import share_over_peers
from ddpmon.analysis.steps.pauses import PAUSE_RATIO
from ddpmon.analysis.steps.step_sums import StepSums
from ddpmon.analysis.steps.world import World

MIN_MEAN_STEPS = 12
"""Minimum number of steps for means, even if some of these steps precede a change of speed."""
CURRENT_LOSS_STEPS = 20
"""Number of last steps whose mean is the current loss. The losses of single batches scatter."""
FEWEST_LOSSES = 5
"""Minimum number of losses in each third of the window for a trend. The spread of fewer losses is too uncertain."""
TREND_ERRORS = 2.0
"""Minimum difference between the mean losses of the first and the last third, in standard errors, for a trend. Chance
alone reaches it in 5% of cases."""


def past_warm_up(world: World) -> World:
    """Return the steps after the initial ones that took far longer because they compiled, tuned or filled caches."""
    first = int(np.searchsorted(world.step, WARM_UP_STEPS, side="right"))
    lengths = world.step_ms
    if not first or len(world) < 2 * MIN_MEAN_STEPS:
        return world
    long = np.flatnonzero(lengths[:first] > PAUSE_RATIO.enter * np.median(lengths))
    return world.steps_between(int(long[-1]) + 1, len(world)) if len(long) else world


@dataclass(frozen=True)
class Summary:
    """Means over at least one step. Arrays are [R], in the order of `ranks`."""

    ranks: tuple[int, ...]
    window: tuple[int, int]
    step_ms: Floats
    own_ms: Floats
    over_median: Floats
    """Excess of the own time over the median of the other ranks, as a fraction."""
    phases_ms: Floats
    """[R, 7] Mean time in each phase, in the order of PHASES."""
    late_ms: Floats
    """Mean lateness in ms; NaN if no step had a gradient synchronisation."""
    critical_share: Floats
    """Share of the steps with a wait in which the others waited for this rank; NaN if no rank ever waited."""
    loss: Floats
    """The latest loss of each rank."""
    has_loss: list[bool]
    samples_per_s: Floats
    """Samples per second; NaN if samples were not counted."""
    tokens_per_s: Floats
    """Tokens per second; NaN if tokens were not counted."""
    gc_ms: Floats
    """Mean time of Python's garbage collector in a step."""
    sums: StepSums
    step_ms_mean: float
    step_ms_p50: float
    step_ms_p95: float
    step_ms_max: float


def summarise(world: World) -> Summary:
    """Return the means over a world of at least one step."""
    own = world.mean("own_ms")
    step = world.mean("length_ms")
    phases = np.column_stack([world.mean("phases_ms"), world.mean("wait_ms"), world.mean("transfer_ms")])
    lengths = world.step_ms
    with_gradients = ~np.isnan(world.late_ms[:, 0])
    late_ms = world.late_ms if with_gradients.all() else world.late_ms[with_gradients]
    late = late_ms.mean(axis=0) if len(late_ms) else np.full(len(own), np.nan)
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
        sums=StepSums.from_world(world),
        step_ms_mean=float(step.mean()),
        step_ms_p50=series_median(lengths),
        step_ms_p95=float(np.quantile(lengths, 0.95)),
        step_ms_max=float(lengths.max()),
    )


def _rate(total: Floats, seconds: Floats) -> Floats:
    return np.where((total > 0) & (seconds > 0), total / np.maximum(seconds, 1e-9), np.nan)


def _latest_loss(world: World) -> tuple[Floats, list[bool]]:
    """Return each rank's last loss in the window, and whether the rank has one."""
    has_loss: Bools = np.any(world.has_loss, axis=0)
    last = len(world) - 1 - world.has_loss[::-1].argmax(axis=0)
    return world.loss[last, np.arange(world.loss.shape[1])], has_loss.tolist()


def loss_trend(world: World) -> tuple[float | None, bool | None]:
    """Return the mean loss of the last steps over all ranks, and whether it falls over the window.

    A loss that is NaN or infinite makes the mean NaN or infinite too, so that users see it.

    Returns:
        The mean loss, None if there is no loss; and True if it falls, False if it rises, None if undecided.

    """
    rows = world.has_loss.all(axis=1)
    means = world.loss.mean(axis=1)[rows]
    if not len(means):
        return None, None
    now = float(means[-CURRENT_LOSS_STEPS:].mean())
    third = len(means) // 3
    if third < FEWEST_LOSSES or not np.isfinite(means).all():
        return now, None
    before, after = means[:third], means[-third:]
    noise = float(np.sqrt(before.var(ddof=1) / third + after.var(ddof=1) / third))
    change = float(after.mean() - before.mean())
    return now, None if abs(change) < TREND_ERRORS * noise else change < 0


class DepartedRanks:
    """Means of ranks that have left the world, each over the last window in which it was still one of the world's
    ranks.

    Ranks leave a world with uneven inputs (torch's Join), or if ranks of torch.multiprocessing end earlier.
    """

    def __init__(self) -> None:
        self._means: dict[int, tuple[Summary, int]] = {}
        """Summary of the last window of each rank, and the rank's column there."""

    def change_world(self, last: World | None, ranks: tuple[int, ...]) -> None:
        """Note that the ranks of the world become `ranks`; `last` is the window with the earlier ranks, or None."""
        gone = [rank for rank in last.ranks if rank not in ranks] if last is not None else []
        if last is not None and gone:
            summary = summarise(last)
            self._means.update({rank: (summary, last.ranks.index(rank)) for rank in gone})
        for rank in ranks:
            self._means.pop(rank, None)

    def __contains__(self, rank: int) -> bool:
        return rank in self._means

    def __iter__(self) -> Iterator[tuple[int, Summary, int]]:
        """Iterate over the ranks that have left: the rank, the summary of its last window, and its column there."""
        return ((rank, *means) for rank, means in self._means.items())
