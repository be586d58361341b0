"""Ranks that left before the others: the means of their last window are kept."""

from __future__ import annotations

from collections.abc import Iterator

from ddpmon.analysis.steps.summary import Summary, summarise
from ddpmon.analysis.steps.world import World


class DepartedRanks:
    """Means of the last window in which each rank was still beside the others.

    With uneven inputs (torch's Join), or ranks of torch.multiprocessing that end earlier, the world becomes the rest.
    """

    def __init__(self) -> None:
        self._means: dict[int, tuple[Summary, int]] = {}
        """Summary of the last window of each rank, and the rank's column there."""

    def change_world(self, last: World | None, ranks: tuple[int, ...]) -> None:
        """Note that the world becomes `ranks`; `last` is the window before that, None where there was none."""
        gone = [rank for rank in last.ranks if rank not in ranks] if last is not None else []
        if last is not None and gone:
            summary = summarise(last)
            self._means.update({rank: (summary, last.ranks.index(rank)) for rank in gone})
        for rank in ranks:
            self._means.pop(rank, None)

    def __contains__(self, rank: int) -> bool:
        return rank in self._means

    def __iter__(self) -> Iterator[tuple[int, Summary, int]]:
        """Rank, summary and column in it."""
        return ((rank, *means) for rank, means in self._means.items())
