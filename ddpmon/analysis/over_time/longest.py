"""The longest steps of a run, whole: what every rank did in them, long after the window has gone on."""

from __future__ import annotations

import numpy as np

from ddpmon.analysis.steps.world import ARRAYS, World

KEPT = 12
"""As many as a person looks through."""
APART = 16
"""Steps between two of them at least: of a stretch of long ones the longest stands for all."""


class LongestSteps:
    """Takes every step once. A change of the ranks starts it anew."""

    def __init__(self) -> None:
        self.steps: list[World] = []
        """Each a world of one step, the longest first."""
        self.since = 0
        """The first step that was looked at; 0: none was."""
        self._last = 0
        self._ranks: tuple[int, ...] = ()

    def append(self, part: World) -> None:
        """Take further steps."""
        if not len(part):
            return
        if part.ranks != self._ranks or part.step[0] <= self._last:
            self.steps, self._ranks, self.since = [], part.ranks, int(part.step[0])
        self._last = int(part.step[-1])
        lengths = part.step_ms
        for place in np.argsort(-lengths, kind="stable").tolist():
            if len(self.steps) == KEPT and lengths[place] <= self.steps[-1].step_ms[0]:
                break
            step = int(part.step[place])
            near = [kept for kept in self.steps if abs(int(kept.step[0]) - step) < APART]
            if any(kept.step_ms[0] >= lengths[place] for kept in near):
                continue
            self.steps = [kept for kept in self.steps if not any(kept is each for each in near)]
            alone = World(part.ranks, **{name: getattr(part, name)[place : place + 1].copy() for name in ARRAYS})
            self.steps.append(alone)
            self.steps.sort(key=lambda kept: -kept.step_ms[0])
            del self.steps[KEPT:]

    def of(self, step: int) -> World | None:
        """One of them by its number; None: it is not kept, or no more."""
        return next((kept for kept in self.steps if kept.step[0] == step), None)
