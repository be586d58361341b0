"""GPU utilization through steps: samples come by the second and are laid over the steps that they overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.statistics.arrays import Ints
from ddpmon.analysis.steps.world import World

KEPT_STEPS = 4096
"""The last steps, to which samples that come after them may belong."""
WAITING_MOST = 64
"""Samples of a rank that wait for the step to end in which they were taken."""


@dataclass(frozen=True)
class Overlaps:
    """Samples, and the first and the last step that each overlaps. All [N]."""

    column: Ints
    """Of the world."""
    first: Ints
    last: Ints
    busy: NDArray[np.float32]
    """Share of its time in which the GPU worked, 0 to 1."""


class Utilization:
    """Takes samples of a world's ranks and its steps, in whatever order they come."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, int, float]] = []
        """Rank, two moments of its own clock and the percentage between them."""
        self.forget()

    def forget(self) -> None:
        """Begin anew, with other ranks or other steps."""
        self._step: Ints = np.zeros(0, np.int64)
        self._begin_us: Ints = np.zeros(0, np.int64)
        self._end_us: Ints = np.zeros(0, np.int64)
        self._ahead_us: Ints = np.zeros(0, np.int64)

    def sample(self, rank: int, since_us: int, at_us: int, percent: float) -> None:
        """What a GPU did between two moments of its rank's own clock."""
        self._waiting.append((rank, since_us, at_us, percent))

    def append(self, part: World, ahead_us: Ints) -> None:
        """Take further steps.

        ahead_us: [R] By how much the clock of the world's `end_us` is ahead of each rank's own.
        """
        self._ahead_us = ahead_us
        step_us = np.round(part.step_ms * 1000).astype(np.int64)
        self._step = np.append(self._step, part.step)[-KEPT_STEPS:]
        self._begin_us = np.append(self._begin_us, part.end_us - step_us)[-KEPT_STEPS:]
        self._end_us = np.append(self._end_us, part.end_us)[-KEPT_STEPS:]

    def overlaps(self, ranks: Sequence[int]) -> Overlaps | None:
        """Samples that were taken up to the end of the last step. Those of before the first step are forgotten."""
        columns = {rank: column for column, rank in enumerate(ranks)} if len(self._step) else {}
        waiting = [sample for sample in self._waiting if sample[0] in columns]
        if not waiting:
            self._waiting = []
            return None
        column, since, at = np.array([(columns[rank], since, at) for rank, since, at, _ in waiting], np.int64).T
        percent = np.array([sample[3] for sample in waiting], np.float32)
        since, at = since + self._ahead_us[column], at + self._ahead_us[column]
        due = at <= self._end_us[-1]
        later = [sample for sample, taken in zip(waiting, due.tolist(), strict=True) if not taken]
        self._waiting = later[-WAITING_MOST * len(ranks) :]
        first = np.searchsorted(self._end_us, since, side="right")
        last = np.searchsorted(self._begin_us, at, side="left") - 1
        taken = due & (first <= last) & np.isfinite(percent)
        if not taken.any():
            return None
        first, last = self._step[first[taken]], self._step[last[taken]]
        return Overlaps(column[taken], first, last, np.clip(percent[taken] / 100, 0.0, 1.0))
