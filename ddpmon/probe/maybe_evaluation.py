"""Measures forwards without gradients separately until they turn out to be an evaluation or part of a step.

Rollouts, a teacher's forward, pseudo-labels and gradient caching belong to the step that uses their results. Only later
calls distinguish them from an evaluation.
"""

from __future__ import annotations

from ddpmon.probe.records import Fetched, RawSync


class MaybeEvaluation:
    """Time of the training thread since a forward without gradients, by phase, with its synchronisations."""

    __slots__ = ("exhausted", "explained", "fetches", "intervals", "phases", "syncs", "used")

    def __init__(self, explained: bool) -> None:
        """Begin at a forward without gradients. explained: True if a trained model was put into evaluation mode."""
        self.explained = explained
        self.exhausted = False
        """True if a loader reached its end in this time."""
        self.phases = [0, 0, 0, 0, 0, 0]
        self.syncs: list[RawSync] = []
        self.intervals: list[tuple[int, int]] = []
        """Begin and end of this time in nanoseconds; several pairs if a checkpoint was written in between."""
        self.fetches: dict[int, int] = {}
        """Number of batches that were fetched in this time, by iterator."""
        self.used: list[Fetched] = []
        """Batches that forwards without gradients consumed."""

    def is_evaluation(self, trained_on: int | None, *, repeated: bool) -> bool:
        """Return whether this time was an evaluation, now that training continues.

        Args:
            trained_on: Iterator of the batch that is trained on now; None if it was fetched before, or by no
                DataLoader.
            repeated: True if a trained model was in evaluation mode in the step before, too. What happens in every
                step is part of the training.

        """
        if self.exhausted or (self.explained and not repeated):
            return True
        return trained_on is not None and any(
            count > 1 for iterator, count in self.fetches.items() if iterator != trained_on
        )

    def blocked(self) -> int:
        """Return the nanoseconds blocked in synchronisations."""
        return sum(sync.end - sync.arrival for sync in self.syncs)

    def contains(self, moment: int) -> bool:
        """Return whether a time lies in one of the intervals."""
        return any(begin <= moment < end for begin, end in self.intervals)
