"""Idle time of GPUs in each step: samples are taken every second, and assigned to the steps that they overlap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.statistics.arrays import Ints
from ddpmon.analysis.steps.world import World

KEPT_STEPS = 4096
"""Number of latest steps that are stored, because samples of them may arrive later."""
MAX_WAITING = 64
"""Maximum number of samples of a rank that wait for the end of the step in which they were taken."""


class GpuIdle:
    """Assigns GPU samples of ranks to steps, in whatever order both arrive."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, int, float]] = []
        """Rank, two moments of its own clock and the utilization in percent between them."""
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
