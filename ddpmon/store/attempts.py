"""How earlier attempts of a run ended: those whose ranks were restarted."""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING

from ddpmon.analysis.processes import failures
from ddpmon.messages import Attempt
from ddpmon.store.endings import ended_as
from ddpmon.store.processes import RankProcess

if TYPE_CHECKING:
    from ddpmon.store.store import Store


def earlier_attempts(store: Store) -> list[Attempt]:
    """Oldest first; none where ranks were never restarted. What the logs say of them is added at the run's end."""
    ranks: dict[int, list[RankProcess]] = {}
    for process in store.registry.everyone.values():
        if 0 <= process.attempt < store.registry.attempt:
            ranks.setdefault(process.attempt, []).append(process)
    return [_attempt(store, number, ranks[number]) for number in sorted(ranks)]


def _attempt(store: Store, number: int, processes: list[RankProcess]) -> Attempt:
    fallen = [
        dataclasses.replace(fall, rank=process.rank)
        for process in processes
        if not process.hello.through and (fall := store.ending.falls.get(process.hello.pid))
    ]
    fallen += [row for process in processes if process.end and (row := ended_as(process, process.end))]
    failed = store.failures_of(number)
    gone = store.gone(processes) if fallen or failed else ()  # else torchrun ended them, as when a node comes
    lines = {process.rank: line for process in processes if (line := store.ending.earlier_line(process))}
    first = failures.first(fallen, failed, lines, gone=gone, world_size=processes[0].hello.world_size)
    return Attempt(
        number + 1,
        processes[0].hello.world_size,
        int(statistics.median_low(process.steps for process in processes)),
        list(first.ranks) if first else [],
        first.cause if first else None,
        first.exit or None if first else None,
    )
