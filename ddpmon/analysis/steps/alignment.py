"""Alignment of the step records of all ranks by step number, as they arrive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ddpmon.analysis.statistics.arrays import Bools, Ints
from ddpmon.analysis.steps.table import ROW, Rows, Table, concatenate_rows, row_of, table_of
from ddpmon.messages import Step

MAX_LAG_US = 3_000_000
"""Time in µs after the end of a step after which a missing record of a rank counts as lost, by the clock of a rank that
has sent its record. Ranks send records several times a second."""
MAX_PENDING_STEPS = 4096
"""Maximum number of steps that wait for records, to limit memory."""
MAX_PENDING_RECORDS = 1 << 20
"""Maximum number of records, over all ranks, for which waiting steps have room. This limits memory in large worlds."""
MAX_PARTIAL_STEPS = 20
"""Number of consecutive steps without the records of the same ranks after which the other ranks become the world.
Records that are lost by chance are not lost in so many steps in a row."""


class _Pending:
    """A step that waits for the records of some ranks."""

    def __init__(self, world_size: int) -> None:
        self.rows: Table = np.zeros(world_size, ROW)
        self.present: Bools = np.zeros(world_size, bool)
        """True for each rank whose record has arrived."""
        self.odd: dict[int, Step] = {}
        """Records that do not fit into a row of the table, by rank."""


class Aligner:
    """Collects records, and hands out each step once every rank that still sends messages has sent its record.

    Records of one rank must arrive in the order of their steps. A step is left out if the record of some rank is
    missing, because it was lost or the rank left: without it, no rank's wait can be computed. If the same ranks are
    absent from many steps in a row, the other ranks become the world.
    """

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.left_out = 0
        """Number of steps that were left out because the record of some rank was missing."""
        self._everyone = tuple(range(world_size))
        self._ranks = self._everyone
        self._pending: dict[int, _Pending] = {}
        self._last: Ints = np.zeros(world_size, np.int64)
        """[R] The last step in the records of each rank."""
        self._last_end_us: Ints = np.zeros(world_size, np.int64)
        """[R] The end of that step by the rank's own clock."""
        self._closed = 0
        self._ranks_of_rows: list[int] = []
        self._rows: list[bytes] = []
        """Packed rows since the last `pop_complete`. They are converted to a table together, because one by one is
        slow."""
        self._partial: list[_Pending] = []

    def add(self, rank: int, steps: Sequence[Step]) -> None:
        """Add records of one rank. Ignore records of steps that were already handed out."""
        if not 0 <= rank < self.world_size:
            return
        for step in steps:
            row = row_of(step)
            if row is not None:
                self._ranks_of_rows.append(rank)
                self._rows.append(row)
            elif step.step > self._closed:
                pending = self._pending_step(step.step)
                pending.odd[rank], pending.present[rank] = step, True
                pending.rows[rank]["end_us"] = step.end_us
                if step.step > self._last[rank]:
                    self._last[rank], self._last_end_us[rank] = step.step, step.end_us

    def add_rows(self, ranks: Ints, table: Table) -> None:
        """Add rows of several ranks, in the order of their steps.

        Args:
            ranks: [N] Rank of each row.
            table: [N] The rows.

        """
        new = table["step"] > self._closed
        ranks, table = ranks[new], table[new]
        if not len(table):
            return
        numbers = table["step"]
        newer = numbers > self._last[ranks]
        self._last[ranks[newer]] = numbers[newer]  # If a rank has several rows, the last one is kept.
        self._last_end_us[ranks[newer]] = table["end_us"][newer]
        order = np.argsort(numbers, kind="stable")
        steps, begins = np.unique(numbers[order], return_index=True)
        for step, chosen in zip(steps.tolist(), np.split(order, begins[1:]), strict=True):
            pending = self._pending_step(step)
            pending.rows[ranks[chosen]] = table[chosen]
            pending.present[ranks[chosen]] = True

    def _pending_step(self, number: int) -> _Pending:
        if number not in self._pending:
            self._pending[number] = _Pending(self.world_size)
        return self._pending[number]

    def pop_complete(self, final: bool = False) -> list[Rows]:
        """Return the complete steps, oldest first. With `final`, return all, because no more records will arrive."""
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
        """Return whether the records of the ranks that are missing in a step will never come."""
        if len(self._pending) > min(MAX_PENDING_STEPS, MAX_PENDING_RECORDS // max(1, self.world_size)):
            return True
        # Compare moments of the same rank's clock only, because the clocks of hosts may differ.
        present = pending.present
        if (self._last_end_us[present] - pending.rows["end_us"][present].astype(np.int64)).max() > MAX_LAG_US:
            return True
        return bool((self._last[~present] > number).all())

    def _close(self, pending: _Pending, ranks: tuple[int, ...]) -> list[_Pending]:
        """Return the steps to hand out now that a step is closed, with only the records of `ranks`."""
        if ranks in (self._everyone, self._ranks):
            self._ranks = ranks
            self._partial.clear()
            return [pending]
        if self._partial and not np.array_equal(self._partial[-1].present, pending.present):
            self._partial.clear()
        self._partial.append(pending)
        self.left_out += 1
        if len(self._partial) < MAX_PARTIAL_STEPS:
            return []
        self._ranks = ranks
        self.left_out -= len(self._partial)
        steps = self._partial.copy()
        self._partial.clear()
        return steps


def _ranks(present: Bools) -> tuple[int, ...]:
    return tuple(np.flatnonzero(present).tolist())


def _rows(ranks: tuple[int, ...], steps: Sequence[_Pending]) -> Rows:
    """Combine steps of the same ranks into one table."""
    columns = np.array(ranks)
    whole = len(ranks) == len(steps[0].rows)
    tables = [pending.rows if whole else pending.rows[columns] for pending in steps]
    odd = {
        place * len(ranks) + int(np.searchsorted(columns, rank)): step
        for place, pending in enumerate(steps)
        for rank, step in pending.odd.items()
    }
    return Rows.of_table(ranks, concatenate_rows(tables).reshape(len(steps), len(ranks)), odd)
