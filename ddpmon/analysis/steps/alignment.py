"""Puts the records of many ranks side by side, step by step, as they come in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.analysis.statistics.arrays import Bools, Ints
from ddpmon.analysis.steps.table import ROW, Rows, Table, row_of, table_of
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import Step

LATE_US = Threshold(
    3_000_000,
    of="µs that another rank is past a step, by its own clock, of which a rank has sent no record",
    why="A judgement: ranks send several times a second, so that its record is lost; the step is handed on without it.",
)
PENDING = 4096
"""Steps that may wait for a rank, at most, so that memory is bounded."""
PENDING_RECORDS = 1 << 22
"""Records that may wait so, at most: in a large world fewer steps."""
PARTIAL_ROWS = Threshold(
    20,
    of="steps in a row without the same ranks",
    why="A judgement: from then on the world is the others; records that are lost by chance are not lost in a row.",
)


class _Pending:
    """A step of which records are missing."""

    def __init__(self, world_size: int) -> None:
        self.rows = np.zeros(world_size, ROW)
        self.present: Bools = np.zeros(world_size, bool)
        self.odd: dict[int, Step] = {}
        """By rank: records that do not fit into a row."""


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
        self._pending: dict[int, _Pending] = {}
        self._last: Ints = np.zeros(world_size, np.int64)
        """By rank: the last step that it told of, and when that ended by its own clock."""
        self._newest_us: Ints = np.zeros(world_size, np.int64)
        self._closed = 0
        self._ranks_of_rows: list[int] = []
        self._rows: list[bytes] = []
        """What came record by record since the last `take`: rows are dear one by one."""
        self._partial: list[_Pending] = []

    def add(self, rank: int, steps: Sequence[Step]) -> None:
        """Take records of one rank; what comes after its step was handed out is dropped."""
        if not 0 <= rank < self.world_size:
            return
        for step in steps:
            row = row_of(step)
            if row is not None:
                self._ranks_of_rows.append(rank)
                self._rows.append(row)
            elif step.step > self._closed:
                pending = self._of(step.step)
                pending.odd[rank], pending.present[rank] = step, True
                pending.rows[rank]["end_us"] = step.end_us
                if step.step > self._last[rank]:
                    self._last[rank], self._newest_us[rank] = step.step, step.end_us

    def add_rows(self, ranks: Ints, table: Table) -> None:
        """Take rows of several ranks, in the order of their steps. ranks: [N] whose each row is."""
        news = table["step"] > self._closed
        ranks, table = ranks[news], table[news]
        if not len(table):
            return
        numbers = table["step"]
        order = np.argsort(numbers, kind="stable")
        begins = np.flatnonzero(np.diff(numbers[order], prepend=0))
        for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
            chosen = order[begin:end]
            pending = self._of(int(numbers[chosen[0]]))
            pending.rows[ranks[chosen]] = table[chosen]
            pending.present[ranks[chosen]] = True
        newer = numbers > self._last[ranks]
        self._last[ranks[newer]] = numbers[newer]  # of several, the last one stays
        self._newest_us[ranks[newer]] = table["end_us"][newer]

    def _of(self, number: int) -> _Pending:
        pending = self._pending.get(number)
        if pending is None:
            pending = self._pending[number] = _Pending(self.world_size)
        return pending

    def take(self, final: bool = False) -> list[Rows]:
        """Steps that are complete by now, oldest first; `final`: nothing more will come."""
        if self._rows:
            self.add_rows(np.array(self._ranks_of_rows), table_of(b"".join(self._rows)))
            self._ranks_of_rows, self._rows = [], []
        taken: list[list[_Pending]] = []
        for number in sorted(self._pending):
            pending = self._pending[number]
            if not pending.present.all() and not final and not self._hopeless(number, pending):
                break
            del self._pending[number]
            self._closed = number
            self._close(pending, taken)
        return [_rows(steps) for steps in taken]

    def _hopeless(self, number: int, pending: _Pending) -> bool:
        """Whether no record of the ranks that are missing in a step will come any more."""
        if len(self._pending) > min(PENDING, max(64, PENDING_RECORDS // max(1, self.world_size))):
            return True
        # Each rank by its own clock: those of several hosts have nothing in common.
        present = pending.present
        if (self._newest_us[present] - pending.rows["end_us"][present].astype(np.int64)).max() > LATE_US.enter:
            return True
        return bool((self._last[~present] > number).all())

    def _close(self, pending: _Pending, taken: list[list[_Pending]]) -> None:
        present = pending.present
        whole = bool(present.all())
        if whole or _ranks(present) == self._ranks:
            self._ranks = tuple(range(self.world_size)) if whole else self._ranks
            self._partial.clear()
            _append(taken, pending)
            return
        if self._partial and not np.array_equal(self._partial[-1].present, present):
            self._partial.clear()
        self._partial.append(pending)
        self.left_out += 1
        if PARTIAL_ROWS.reached(len(self._partial)):
            self._ranks = _ranks(present)
            self.left_out -= len(self._partial)
            for earlier in self._partial:
                _append(taken, earlier)
            self._partial.clear()


def _ranks(present: Bools) -> tuple[int, ...]:
    return tuple(np.flatnonzero(present).tolist())


def _append(taken: list[list[_Pending]], pending: _Pending) -> None:
    if taken and np.array_equal(taken[-1][0].present, pending.present):
        taken[-1].append(pending)
    else:
        taken.append([pending])


def _rows(steps: Sequence[_Pending]) -> Rows:
    """Steps of the same ranks, side by side."""
    ranks = _ranks(steps[0].present)
    columns = np.array(ranks)
    odd = {
        place * len(ranks) + int(np.searchsorted(columns, rank)): step
        for place, pending in enumerate(steps)
        for rank, step in pending.odd.items()
    }
    return Rows.of_table(ranks, np.stack([pending.rows[columns] for pending in steps]), odd)
