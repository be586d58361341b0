"""Records the steps in which some ranks were silent, so that these steps never count as complete."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from ddpmon.analysis.statistics.arrays import Bools
from ddpmon.messages import Rank, SmallCount, StepNumber, require

MAX_SILENCES = 10_000
"""Largest number of silences to store. The oldest are dropped first."""


class Silence(msgspec.Struct, array_like=True, frozen=True):
    """A range of steps in which some ranks were silent. Any of these ranks may have arrived last."""

    attempt: SmallCount
    first_step: StepNumber
    last_step: StepNumber
    ranks: tuple[Rank, ...]

    def __post_init__(self) -> None:
        require(self.first_step <= self.last_step, "steps of a silence", self.last_step)


class Silences:
    """The silences of a run, in the order of their steps."""

    def __init__(self, recorded: Iterable[Silence] = ()) -> None:
        self._all = sorted(recorded, key=_begin)[-MAX_SILENCES:]
        self._changed: dict[tuple[int, int], Silence] = {}

    def add(self, attempt: int, first: int, last: int, ranks: Sequence[int]) -> None:
        """Add a range of steps, from `first` to `last`, in which ranks were silent."""
        before = self._all[-1] if self._all else None
        if before and (attempt, first) < _begin(before):
            return  # These steps were added before, with the ranks that were silent then.
        if before and (before.attempt, before.ranks) == (attempt, tuple(ranks)) and before.last_step >= first - 1:
            first = before.first_step
            self._all.pop()
        silence = Silence(attempt, first, last, tuple(ranks))
        self._all.append(silence)
        self._changed[_begin(silence)] = silence
        del self._all[:-MAX_SILENCES]

    def take_changed(self) -> list[Silence]:
        """Return the silences that are not recorded yet: new silences, and silences that have become longer."""
        changed, self._changed = list(self._changed.values()), {}
        return changed

    def steps_without_silence(self, attempt: int, steps: Sequence[int], ranks: Sequence[int]) -> Bools:
        """Return [S]: for each step, True if no rank was silent in it.

        Args:
            attempt: The attempt of the run.
            steps: [S], numbers of the steps.
            ranks: Ranks that sent records of these steps, and so were not silent.

        """
        whole = np.ones(len(steps), bool)
        place = max(0, bisect.bisect_right(self._all, (attempt, steps[0]), key=_begin) - 1)
        for silence in self._all[place:]:
            if _begin(silence) > (attempt, steps[-1]):
                break
            if silence.attempt == attempt and not set(silence.ranks) <= set(ranks):
                first = bisect.bisect_left(steps, silence.first_step)
                whole[first : bisect.bisect_right(steps, silence.last_step)] = False
        return whole


def _begin(silence: Silence) -> tuple[int, int]:
    return silence.attempt, silence.first_step
