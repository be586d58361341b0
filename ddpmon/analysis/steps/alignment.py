"""Puts the records of many ranks side by side, step by step, as they come in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import Step

LATE_US = Threshold(
    3_000_000,
    of="µs that another rank is past a step, by its own clock, of which a rank has sent no record",
    why="A judgement: ranks send several times a second, so that its record is lost; the step is handed on without it.",
)
PENDING = 4096
"""Steps that may wait for a rank, at most, so that memory is bounded."""
PARTIAL_ROWS = Threshold(
    20,
    of="steps in a row without the same ranks",
    why="A judgement: from then on the world is the others; records that are lost by chance are not lost in a row.",
)


@dataclass(frozen=True)
class Rows:
    """Consecutive steps of the same ranks: `steps[i][j]` is the record of `ranks[j]` of the i-th step."""

    ranks: tuple[int, ...]
    steps: list[list[Step]]


class Aligner:
    """Collects records by step number; hands out steps once every rank that is still heard has sent its record.

    Records of one rank must come in the order of their steps. A step without the record of some rank (it was lost,
    or the rank left) is left out, because nobody's wait can be computed in it. If the same ranks are absent from many
    steps in a row, the rest becomes the world.
    """

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.left_out = 0
        """Steps in which a rank was missing."""
        self._ranks: tuple[int, ...] = tuple(range(world_size))
        self._pending: dict[int, dict[int, Step]] = {}
        self._last: dict[int, int] = {}
        self._closed = 0
        self._newest_us: dict[int, int] = {}
        self._partial: list[dict[int, Step]] = []

    def add(self, rank: int, steps: Iterable[Step]) -> None:
        """Take records of one rank; what comes after its step was handed out is dropped."""
        for step in steps:
            if step.step <= self._closed:
                continue
            self._pending.setdefault(step.step, {})[rank] = step
            self._last[rank] = step.step
            self._newest_us[rank] = step.end_us

    def take(self, final: bool = False) -> list[Rows]:
        """Steps that are complete by now, oldest first; `final`: nothing more will come."""
        taken: list[Rows] = []
        for number in sorted(self._pending):
            row = self._pending[number]
            if len(row) < self.world_size and not final and not self._hopeless(number, row):
                break
            del self._pending[number]
            self._closed = number
            self._close(row, taken)
        return taken

    def _hopeless(self, number: int, row: dict[int, Step]) -> bool:
        """Whether no record of the ranks that are missing in a row will come any more."""
        if len(self._pending) > PENDING:
            return True
        # Each rank by its own clock: those of several hosts have nothing in common.
        if max(self._newest_us[rank] - step.end_us for rank, step in row.items()) > LATE_US.enter:
            return True
        return all(self._last.get(rank, 0) > number for rank in range(self.world_size) if rank not in row)

    def _close(self, row: dict[int, Step], taken: list[Rows]) -> None:
        present = tuple(sorted(row))
        if present == self._ranks or len(present) == self.world_size:
            self._ranks = present
            self._partial.clear()
            _append(taken, present, row)
            return
        if self._partial and self._partial[-1].keys() != row.keys():
            self._partial.clear()
        self._partial.append(row)
        self.left_out += 1
        if PARTIAL_ROWS.reached(len(self._partial)):
            self._ranks = present
            self.left_out -= len(self._partial)
            for earlier in self._partial:
                _append(taken, present, earlier)
            self._partial.clear()


def _append(taken: list[Rows], ranks: tuple[int, ...], row: dict[int, Step]) -> None:
    steps = [row[rank] for rank in ranks]
    if taken and taken[-1].ranks == ranks:
        taken[-1].steps.append(steps)
    else:
        taken.append(Rows(ranks, [steps]))
