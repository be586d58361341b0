"""The longest steps of a run with the data of all ranks, kept long after they have left the window."""

from __future__ import annotations

import numpy as np

from ddpmon.analysis.steps.world import World

MAX_KEPT = 12
"""Maximum number of steps that are kept, because users look through no more."""
MIN_DISTANCE = 16
"""Minimum distance, in steps, between two kept steps. In a stretch of long steps, the longest represents all."""


class LongestSteps:
    """The longest steps so far. If the ranks change, the collection starts anew."""

    def __init__(self) -> None:
        self.steps: list[World] = []
        """Worlds of one step each, the longest first."""
        self.since = 0
        """The first step that was added; 0 before any step was added."""
        self._last = 0
        self._ranks: tuple[int, ...] = ()

    def append(self, part: World) -> None:
        """Append further steps."""
        if not len(part):
            return
        if part.ranks != self._ranks or part.step[0] <= self._last:
            self.steps, self._ranks, self.since = [], part.ranks, int(part.step[0])
        self._last = int(part.step[-1])
        lengths = part.step_ms
        for place in np.argsort(-lengths, kind="stable").tolist():
            if len(self.steps) == MAX_KEPT and lengths[place] <= self.steps[-1].step_ms[0]:
                break
            step = int(part.step[place])
            near = [kept for kept in self.steps if abs(int(kept.step[0]) - step) < MIN_DISTANCE]
            if any(kept.step_ms[0] >= lengths[place] for kept in near):
                continue
            self.steps = [kept for kept in self.steps if not any(kept is each for each in near)]
            self.steps.append(part.steps_between(place, place + 1).copied())
            self.steps.sort(key=lambda kept: -kept.step_ms[0])
            del self.steps[MAX_KEPT:]

    def find_step(self, step: int) -> World | None:
        """Return the kept step with a number; None if this step is not kept."""
        return next((kept for kept in self.steps if kept.step[0] == step), None)
