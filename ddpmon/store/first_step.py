"""The first step of each rank: it holds what is done once (allocating, tuning, compiling), and is set apart."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ddpmon.analysis.statistics.arrays import Bools, Ints
from ddpmon.analysis.steps.clocks import Clocks
from ddpmon.analysis.steps.table import Rows, Table, steps_of
from ddpmon.analysis.steps.waits import split
from ddpmon.analysis.steps.world import World
from ddpmon.messages import Step


class FirstStep:
    """Takes it out of what ranks tell, so that no mean tells of it; it is shown while there is no other."""

    def __init__(self) -> None:
        self._records: dict[int, Step] = {}
        """First steps by rank."""

    def take(self, rank: int, steps: Sequence[Step]) -> list[Step]:
        """Records of one rank in the order of their steps, without it."""
        if steps and steps[0].step == 1:
            self._records[rank] = steps[0]
        return [step for step in steps if step.step > 1]

    def take_rows(self, ranks: Ints, table: Table) -> tuple[Ints, Table]:
        """Rows of several ranks without it. ranks: [N] whose each row is."""
        is_first: Bools = table["step"] == 1
        if is_first.any():
            self._records.update(zip(ranks[is_first].tolist(), steps_of(table[is_first]), strict=True))
        return ranks[~is_first], table[~is_first]

    def world(self, world_size: int, hosts: Mapping[int, str], host: str, own_clocks: Collection[int]) -> World | None:
        """All ranks' side by side; None: not every one has told of it. hosts: by rank; host: whose clock counts."""
        if not len(self._records) == world_size > 0:
            return None
        ranks = tuple(sorted(self._records))
        rows = Rows(ranks, [[self._records[rank] for rank in ranks]])
        return split(rows, Clocks(host).offsets_us(rows, hosts), own_clocks)
