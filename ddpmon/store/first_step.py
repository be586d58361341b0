"""Separates each rank's first step, which includes one-time work (allocating, tuning, compiling), from all means."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ddpmon.analysis.statistics.arrays import Bools, Ints
from ddpmon.analysis.steps.clocks import Clocks
from ddpmon.analysis.steps.table import Rows, Table, steps_of
from ddpmon.analysis.steps.waits import split_waits
from ddpmon.analysis.steps.world import World
from ddpmon.messages import Step


class FirstStep:
    """Removes the first step from the records of ranks, and stores it for views before the second step."""

    def __init__(self) -> None:
        self._records: dict[int, Step] = {}
        """First steps by rank."""

    def keep_first_step(self, rank: int, steps: Sequence[Step]) -> list[Step]:
        """Store the first step of a rank, and return the records without it. The records are sorted by step."""
        if steps and steps[0].step == 1:
            self._records[rank] = steps[0]
        return [step for step in steps if step.step > 1]

    def take_rows(self, ranks: Ints, table: Table) -> tuple[Ints, Table]:
        """Store the first steps of several ranks, and return the ranks and rows without them.

        Args:
            ranks: [N], the rank of each row.
            table: [N], the rows.

        """
        is_first: Bools = table["step"] == 1
        if is_first.any():
            self._records.update(zip(ranks[is_first].tolist(), steps_of(table[is_first]), strict=True))
        return ranks[~is_first], table[~is_first]

    def world(self, world_size: int, hosts: Mapping[int, str], host: str, own_clocks: Collection[int]) -> World | None:
        """Return the first step of all ranks, or None until every rank has reported it.

        Args:
            world_size: Number of ranks.
            hosts: The host of each rank.
            host: The host to whose clock all times are converted.
            own_clocks: Ranks whose steps are timed on their GPU.

        """
        if not len(self._records) == world_size > 0:
            return None
        ranks = tuple(sorted(self._records))
        rows = Rows(ranks, [[self._records[rank] for rank in ranks]])
        return split_waits(rows, Clocks(host).offsets_us(rows, hosts), own_clocks)
