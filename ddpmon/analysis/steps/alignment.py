"""Puts the records of many ranks side by side, step by step, as they come in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.analysis.statistics.arrays import Bools, Ints
from ddpmon.analysis.steps.table import ROW, Rows, Table, joined, row_of, table_of
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
FEWEST_PENDING = 64
"""Steps that may wait however large the world is: ranks send some steps at a time, not all at once."""
PARTIAL_ROWS = Threshold(
    20,
    of="steps in a row without the same ranks",
    why="A judgement: from then on the world is the others; records that are lost by chance are not lost in a row.",
)


class _Pending:
    """A step of which records are missing."""

    def __init__(self, rows: Table, present: Bools) -> None:
        self.rows = rows
        self.present = present
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
        self._everyone = tuple(range(world_size))
        self._ranks = self._everyone
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
                if step.step not in self._pending:
                    self._open([step.step])
                pending = self._pending[step.step]
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
        newer = numbers > self._last[ranks]
        self._last[ranks[newer]] = numbers[newer]  # of several, the last one stays
        self._newest_us[ranks[newer]] = table["end_us"][newer]
        steps, place = np.unique(numbers, return_inverse=True)
        new = np.array([step not in self._pending for step in steps.tolist()])
        # Mostly all ranks tell of new steps: that is one assignment. Of a step that waits for some it is one each.
        rows, present = self._open(steps[new].tolist())
        into, mine = np.cumsum(new)[place] - 1, new[place]
        rows[into[mine], ranks[mine]] = table[mine]
        present[into[mine], ranks[mine]] = True
        if not mine.all():
            self._add_to_waiting(ranks[~mine], table[~mine])

    def _add_to_waiting(self, ranks: Ints, table: Table) -> None:
        order = np.argsort(table["step"], kind="stable")
        steps, begins = np.unique(table["step"][order], return_index=True)
        for step, chosen in zip(steps.tolist(), np.split(order, begins[1:]), strict=True):
            pending = self._pending[step]
            pending.rows[ranks[chosen]] = table[chosen]
            pending.present[ranks[chosen]] = True

    def _open(self, steps: Sequence[int]) -> tuple[Table, Bools]:
        """Room for steps of which nothing is there yet: [S, R] rows, and who told of them."""
        rows, present = np.zeros((len(steps), self.world_size), ROW), np.zeros((len(steps), self.world_size), bool)
        self._pending.update(zip(steps, map(_Pending, rows, present), strict=True))
        return rows, present

    def take(self, final: bool = False) -> list[Rows]:
        """Steps that are complete by now, oldest first; `final`: nothing more will come."""
        if self._rows:
            self.add_rows(np.array(self._ranks_of_rows), table_of(b"".join(self._rows)))
            self._ranks_of_rows, self._rows = [], []
        taken: list[tuple[tuple[int, ...], list[_Pending]]] = []
        for number in sorted(self._pending):
            pending = self._pending[number]
            whole = bool(pending.present.all())
            if not whole and not final and not self._hopeless(number, pending):
                break
            del self._pending[number]
            self._closed = number
            ranks = self._everyone if whole else _ranks(pending.present)
            for step in self._close(pending, ranks):
                if not taken or taken[-1][0] != ranks:
                    taken.append((ranks, []))
                taken[-1][1].append(step)
        return [_rows(ranks, steps) for ranks, steps in taken]

    def _hopeless(self, number: int, pending: _Pending) -> bool:
        """Whether no record of the ranks that are missing in a step will come any more."""
        if len(self._pending) > min(PENDING, max(FEWEST_PENDING, PENDING_RECORDS // max(1, self.world_size))):
            return True
        # Each rank by its own clock: those of several hosts have nothing in common.
        present = pending.present
        if (self._newest_us[present] - pending.rows["end_us"][present].astype(np.int64)).max() > LATE_US.enter:
            return True
        return bool((self._last[~present] > number).all())

    def _close(self, pending: _Pending, ranks: tuple[int, ...]) -> list[_Pending]:
        """The steps that can be handed out now that this one is over, of which these ranks have sent records."""
        if ranks in (self._everyone, self._ranks):
            self._ranks = ranks
            self._partial.clear()
            return [pending]
        if self._partial and not np.array_equal(self._partial[-1].present, pending.present):
            self._partial.clear()
        self._partial.append(pending)
        self.left_out += 1
        if not PARTIAL_ROWS.reached(len(self._partial)):
            return []
        self._ranks = ranks
        self.left_out -= len(self._partial)
        steps = self._partial.copy()
        self._partial.clear()
        return steps


def _ranks(present: Bools) -> tuple[int, ...]:
    return tuple(np.flatnonzero(present).tolist())


def _rows(ranks: tuple[int, ...], steps: Sequence[_Pending]) -> Rows:
    """Steps of the same ranks, side by side."""
    columns = np.array(ranks)
    whole = len(ranks) == len(steps[0].rows)
    tables = [pending.rows if whole else pending.rows[columns] for pending in steps]
    odd = {
        place * len(ranks) + int(np.searchsorted(columns, rank)): step
        for place, pending in enumerate(steps)
        for rank, step in pending.odd.items()
    }
    return Rows.of_table(ranks, joined(tables).reshape(len(steps), len(ranks)), odd)
