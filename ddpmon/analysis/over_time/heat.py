"""Times of every rank over the run, in bounded memory: bins of steps at several resolutions, and the whole run.

Every value is a mean over a bin. Own time and its phases are compared with the median of the other ranks in the same
bin. A rank counts as late in a bin if it exceeds this median by more than the noise, or if a finding says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.over_time.cells import BINS_PER_RESOLUTION, Bytes, finite_range, quantise_values
from ddpmon.analysis.over_time.mean_bins import Bins, MeanBins, Part
from ddpmon.analysis.statistics.arrays import Bools, Floats, Ints, row_medians, series_median
from ddpmon.analysis.statistics.excess import SMOOTHED, over_peers, running_median, some_of
from ddpmon.analysis.steps.world import World
from ddpmon.messages import HEAT_LEVELS, HEAT_STEPS, PHASES, WHOLE_RUN
from ddpmon.messages.cells import LEAST, MOST, NOTHING

KEPT_STEPS = 4096
"""Number of latest steps that are stored, because samples of them may arrive later."""
MAX_WAITING = 64
"""Maximum number of samples of a rank that wait for the end of the step in which they were taken."""


class GpuIdle:
    """Assigns GPU samples of ranks to steps. Samples and steps may arrive in any order."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, int, float]] = []
        """(rank, beginning and end of the sample in µs of the rank's clock, utilization in percent in this time)."""
        self.forget()

    def forget(self) -> None:
        """Start anew, with other ranks or other steps."""
        self._steps: Ints = np.zeros((3, 0), np.int64)
        """[3, S] Number, beginning and end of each step."""
        self._ahead_us: Ints = np.zeros(0, np.int64)

    def add_sample(self, rank: int, since_us: int, at_us: int, percent: float) -> None:
        """Add the utilization of a GPU between two moments of its rank's own clock."""
        self._waiting.append((rank, since_us, at_us, percent))

    def append(self, part: World, ahead_us: Ints) -> None:
        """Append further steps.

        Args:
            part: The steps.
            ahead_us: [R] Offset in µs from each rank's own clock to the clock of `World.end_us`.

        """
        self._ahead_us = ahead_us
        begin_us = part.end_us - np.round(part.step_ms * 1000).astype(np.int64)
        self._steps = np.append(self._steps, [part.step, begin_us, part.end_us], axis=1)[:, -KEPT_STEPS:]

    def assign_samples(self, ranks: Sequence[int]) -> tuple[Ints, NDArray[np.float32], NDArray[np.int32]] | None:
        """Assign samples to the steps that have arrived; drop samples from before the first step.

        Returns:
            Steps [S]; for each rank, the sum of the idle shares of all samples that overlap a step [S, R]; and the
            number of these samples [S, R]. None if no sample was assigned.

        """
        step, begin_us, end_us = self._steps
        columns = {rank: column for column, rank in enumerate(ranks)} if len(step) else {}
        waiting = [sample for sample in self._waiting if sample[0] in columns]
        self._waiting = []
        if not waiting:
            return None
        rank, since, at, percent = (np.array(each) for each in zip(*waiting, strict=True))
        column = np.array([columns[each] for each in rank.tolist()])
        since, at = since + self._ahead_us[column], at + self._ahead_us[column]
        due = at <= end_us[-1]
        later = [sample for sample, taken in zip(waiting, due.tolist(), strict=True) if not taken]
        self._waiting = later[-MAX_WAITING * len(ranks) :]
        first = np.searchsorted(end_us, since, side="right")
        end = np.searchsorted(begin_us, at, side="left")
        taken = due & (first < end) & np.isfinite(percent)
        if not taken.any():
            return None
        first, end, column = first[taken], end[taken], column[taken]
        shown = slice(first.min(), end.max())
        added = np.zeros((shown.stop - shown.start + 1, len(ranks), 2))
        each = np.stack([1 - np.clip(percent[taken] / 100, 0.0, 1.0), np.ones(len(first))], axis=1)
        np.add.at(added, (first - shown.start, column), each)
        np.add.at(added, (end - shown.start, column), -each)
        sums = added.cumsum(axis=0)[:-1]
        return step[shown], sums[..., 0].astype(np.float32), sums[..., 1].round().astype(np.int32)


BINNED = ("own", *PHASES, "loss", "idle")
"""Quantities of the bins: times in ms, the loss, and the share of the time in which the GPU was idle."""
OVER = (-0.25, 1.0)
"""Scale of values relative to a median: from 25% below it to 100% above it."""
IDLE_SCALE = (0.0, 1.0)
"""Scale of GPU utilization, as the share of time in which the GPU was idle, so that more is worse."""
IN_NOISE, LATE = 1, 2
"""Cell values of a judged map: within the noise; and late by the first of HEAT_LEVELS."""
MIN_BINS = 5
"""Minimum number of bins from which the noise is measured."""
CHANCE, LIT_BY_CHANCE = 0.0002, 0.2
"""Maximum probability that noise marks a cell as late, and maximum expected number of such cells in a map. The stricter
limit applies."""
NEGLIGIBLE = 0.02
"""Smallest excess over the other ranks that is shown, as a share of their median."""
MIN_BINS_APART = 64
"""Distance in bins at which noise is no longer correlated."""
SPIKES = 1.5
"""Minimum excess of a late cell, as a multiple of the largest single spike of a typical rank."""
_OF_SQUARES = NormalDist().inv_cdf(0.75) ** 2
"""Ratio of the median square of a normal variable to its variance."""


@dataclass(frozen=True)
class Grid:
    """Cells [rows, bins] of a metric, the oldest bin first, as bytes: LEAST stands for `low`, and MOST for `high`."""

    cells: Bytes
    first_bin: int
    """Number of the first bin. A bin begins at the step that is its number times `steps`."""
    steps: int
    low: float
    high: float
    last_step: int
    end_us: Ints
    """[bins] End of the last step of each bin; 0 if the bin has no step."""
    noise: float | None = None
    """The maximum excess over the other ranks, as a share, that counts as noise; None: too few bins to measure it."""


@dataclass(frozen=True)
class LateSteps:
    """Steps in which a finding says that ranks were late."""

    ranks: frozenset[int]
    first: int
    last: int | None
    """The last late step; None: the ranks are still late."""
    phase: str | None
    about: bool = False
    """True if the first step is not known exactly."""
    least_ms: float = 0.0
    """Minimum excess over the other ranks that makes a step late, for ranks that are late now and then; 0: every step
    is late."""


class Heat:
    """Means of every rank over bins of 1, 8, 64 and 512 steps, and over the whole run, until the ranks change."""

    def __init__(self) -> None:
        self.ranks: tuple[int, ...] = ()
        self.last_step = 0
        self._levels: dict[int, MeanBins] = {}
        """Bins by their number of steps. Bins of WHOLE_RUN reach back to the first step."""
        self._gpu_idle = GpuIdle()

    def add_gpu_sample(self, rank: int, since_us: int, at_us: int, percent: float) -> None:
        """Add a rank's GPU utilization between two moments of its own clock, for the next `overlay_samples`."""
        self._gpu_idle.add_sample(rank, since_us, at_us, percent)

    def overlay_samples(self) -> None:
        """Assign GPU samples to the steps that they overlap, as far as these have arrived."""
        if (laid := self._gpu_idle.assign_samples(self.ranks)) is None:
            return
        steps, idle, samples = laid
        values = np.zeros((*idle.shape, len(BINNED)), np.float32)
        counts = np.zeros(values.shape, np.uint32)
        values[..., BINNED.index("idle")], counts[..., BINNED.index("idle")] = idle, samples
        part = Part(steps, np.zeros(len(steps), np.int64), values, counts)
        for level in self._levels.values():
            level.add(part)

    def append(self, part: World, ahead_us: Ints | None = None) -> None:
        """Append further steps.

        Args:
            part: The steps.
            ahead_us: [R] Offset in µs from each rank's own clock to the clock of `World.end_us`; None: 0.

        """
        if part.ranks != self.ranks or (len(part) and part.step[0] <= self.last_step):
            self.ranks = part.ranks
            self._levels = {
                steps: MeanBins(max(1, steps), len(part.ranks), BINNED) for steps in (*HEAT_STEPS, WHOLE_RUN)
            }
            self._gpu_idle.forget()
        if not len(part):
            return
        self.last_step = int(part.step[-1])
        loss, nothing = np.where(part.has_loss, part.loss, 0.0), np.zeros(part.loss.shape)
        phases_ms = np.moveaxis(part.phases_ms, -1, 0)
        with np.errstate(over="ignore"):
            values = np.stack(
                [part.own_ms, *phases_ms, part.wait_ms, part.transfer_ms, loss, nothing], axis=-1, dtype=np.float32
            )
        counts = np.ones(values.shape, np.uint32)
        counts[..., BINNED.index("loss")], counts[..., BINNED.index("idle")] = part.has_loss, 0
        added = Part(part.step, part.end_us, values, counts)
        whole = self._levels[WHOLE_RUN]
        whole.widen_to_reach(self.last_step)
        coarsest = added
        for steps in HEAT_STEPS:  # The bins of each level are made from those of the finer level before it.
            added = self._levels[steps].add(added)
            coarsest = added if steps <= whole.width else coarsest
        whole.add(coarsest)
        self._gpu_idle.append(part, np.zeros(len(part.ranks), np.int64) if ahead_us is None else ahead_us)

    def latest_bins(self, steps: int, most: int) -> Bins | None:
        """Return at most `most` latest bins, each of `steps` steps (see `metric_grid`); None before the first step."""
        level = self._levels.get(steps)
        if level is None or not self.last_step:
            return None
        merged = 1
        while steps == WHOLE_RUN and self.last_step // (level.width * merged) >= most:
            merged *= 2
        last, first = self.last_step // (level.width * merged), 1 // (level.width * merged)  # A run begins with step 1.
        return Bins.from_level(
            level, merged, np.arange(max(first, last - min(most, BINS_PER_RESOLUTION) + 1), last + 1)
        )

    def metric_grid(self, metric: str, steps: int, bins: int) -> Grid | None:
        """Return the latest bins of a metric, one row per rank; None before the first step.

        Args:
            metric: One of HEAT_METRICS.
            steps: Number of steps in a bin, one of HEAT_STEPS; or WHOLE_RUN, for the smallest bins with which the whole
                run fits.
            bins: Maximum number of bins.

        """
        shown = self.latest_bins(steps, bins)
        if shown is None:
            return None
        low, high = OVER
        has_value = shown.count({"gpu": "idle", "loss": "loss"}.get(metric, "own")) > 0
        if metric == "gpu":
            values, (low, high) = shown.mean("idle"), IDLE_SCALE
        elif metric == "loss":
            values = shown.mean("loss")
            low, high = finite_range(values[has_value])
        elif metric in {"wait", "step"}:
            step = np.maximum(step_ms(shown), 1e-9)
            values = shown.mean("wait") / step if metric == "wait" else step / np.nanmedian(step) - 1
            low = 0.0 if metric == "wait" else low
        else:
            values = over_others(shown, metric)
        cells = quantise_values(values, has_value, low, high).T
        return Grid(cells, int(shown.numbers[0]), shown.width, low, high, self.last_step, shown.end_us)

    def judged_grid(self, metric: str, steps: int, bins: int, late: Iterable[LateSteps] = ()) -> Grid | None:
        """Return the bins of `metric_grid`, graded by how far they exceed the noise; None before the first step.

        A cell is NOTHING (no value), IN_NOISE, or LATE plus the number of further HEAT_LEVELS that its value reaches.

        Args:
            metric: One of HEAT_JUDGED: own time or one of its phases, compared with the other ranks; or the step,
                compared with the usual step of the run.
            steps: As in `metric_grid`.
            bins: As in `metric_grid`.
            late: Steps in which findings say that ranks were late; their cells are late even within the noise.

        """
        # Measure noise on all stored bins, not only on those that are shown.
        kept = self.latest_bins(steps, bins if steps == WHOLE_RUN else BINS_PER_RESOLUTION)
        if kept is None:
            return None
        count = kept.count("own")[:, 0]
        over = over_others(kept, metric)
        alone = metric != "step" and len(self.ranks) < 2
        full = np.sqrt(count / max(1, count.max())).astype(over.dtype)[:, None]
        noise = None if alone else noise_of(over[full[:, 0] ** 2 > 0.5])
        # A bin with few steps varies more, so it needs a larger excess. Findings may also know ranks to be late whose
        # excess in a bin is within the noise.
        lit = self._late_cells(metric, kept, late) | (over * full > (np.inf if noise is None else noise))
        graded = LATE + np.searchsorted(HEAT_LEVELS[1:], over, side="right")
        cells = np.where(count[:, None] > 0, np.where(lit, graded, IN_NOISE), NOTHING).astype(np.uint8)[-bins:]
        low, high = HEAT_LEVELS[0], HEAT_LEVELS[-1]
        first = int(kept.numbers[-len(cells)])
        return Grid(cells.T, first, kept.width, low, high, self.last_step, kept.end_us[-bins:], noise)

    def _late_cells(self, metric: str, bins: Bins, late: Iterable[LateSteps]) -> Bools:
        """Return [B, R]: True for each cell that findings call late."""
        told = np.zeros((len(bins.numbers), len(self.ranks)), bool)
        begins = bins.numbers * bins.width
        for each in late:
            if metric in ("own", each.phase):
                last = self.last_step if each.last is None else each.last
                during = (begins <= last) & (begins + bins.width > each.first)
                cells = during[:, None] & np.array([rank in each.ranks for rank in self.ranks])
                if each.least_ms:
                    cells &= np.nan_to_num(over_peers(bins.mean(metric)) * bins.count(metric)) >= each.least_ms
                told |= cells
        return told


def step_ms(bins: Bins, ranks: slice | Ints = slice(None)) -> Floats:
    """Return the mean length of a step of some ranks, [B, R]; NaN if a bin has no step."""
    return bins.mean("own", ranks) + bins.mean("wait", ranks) + bins.mean("transfer", ranks)


def over_others(bins: Bins, metric: str) -> Floats:
    """Return how far means exceed those of the other ranks; 0 if a bin has no step.

    Args:
        bins: Some bins of a Heat.
        metric: "own" or one of its phases; or "step", which is compared with the usual step of the run.

    Returns:
        [B, R] share of the others' own time; [B, 1] share of the usual step for "step".

    """
    if metric == "step":
        step = np.median(step_ms(bins), axis=1, keepdims=True)
        usual = np.broadcast_to(np.nanmedian(step), step.shape)
        over = step - usual
    else:
        own = bins.mean("own")
        over_own = over_peers(own)
        usual = own - over_own
        over = over_own if metric == "own" else over_peers(bins.mean(metric))
    share: Floats = np.divide(over, usual, out=np.zeros_like(over), where=usual > 0)
    return np.nan_to_num(share)


def noise_of(over: Floats) -> float | None:
    """Return the maximum excess over the other ranks, as a share, that may be noise; None if there are too few bins.

    The noise is estimated from the robust spread of differences between distant bins (von Neumann, 1941), so that
    neither a change of some ranks nor a rank that is always late counts as noise. Lasting differences within the faster
    half of ranks count as noise. The result is larger for few bins (Student's t), and if most ranks have single spikes.

    Args:
        over: [B, R] Means of bins over those of the other ranks, all of the same number of steps.

    """
    count, ranks = over.shape
    if count < MIN_BINS:
        return None
    over = over[:, some_of(np.arange(ranks))]
    apart = min(MIN_BINS_APART, count // 3)
    strays, near = (
        series_median(row_medians(np.square(over[lag:] - over[:-lag]).T)) / (2 * _OF_SQUARES) for lag in (apart, 1)
    )
    levels = np.sort(row_medians(over.T))
    differ = (levels[(len(levels) - 1) // 2] - levels[(len(levels) - 1) // 4]) ** 2 / _OF_SQUARES
    far = NormalDist().inv_cdf(1 - min(CHANCE, LIT_BY_CHANCE / (count * ranks)))
    # Convert the normal quantile to Student's (first term of Abramowitz and Stegun, 26.7.5). If neighbouring bins
    # differ less than distant ones, noise is correlated, so that there are fewer independent bins.
    told = max(count / apart, count * min(1.0, near / max(strays, 1e-30)))
    freedom = max(1.0, max(1, over.shape[1] - 1) * told / 2)
    far *= 1 + (far**2 + 1) / (4 * freedom)
    middle = np.pad(running_median(over), ((SMOOTHED // 2, SMOOTHED // 2), (0, 0)), mode="edge")
    spikes = (
        series_median((over - middle).max(axis=0)) if ranks > 1 else 0.0
    )  # In a single series, a spike is a signal.
    return max(NEGLIGIBLE, float(far * (strays + differ) ** 0.5), SPIKES * spikes)


def least_cell(grid: Grid, value: float) -> int:
    """Return the smallest cell that stands for at least `value`."""
    share = (value - grid.low) / max(grid.high - grid.low, 1e-12)
    return int(np.ceil(np.clip(share, 0.0, 1.0) * (MOST - LEAST) + LEAST - 1e-6))
