"""Reads how earlier attempts of a run ended: those whose ranks were restarted."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence

from ddpmon.analysis.processes import failures
from ddpmon.analysis.processes.launcher import Ended
from ddpmon.messages import Attempt, Failure
from ddpmon.store.endings import Ending, ended_as
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry


def earlier_attempts(
    registry: Registry,
    ending: Ending,
    failures_of: Callable[[int], list[Failure]],
    gone_of: Callable[[list[RankProcess]], Sequence[failures.Gone]],
) -> list[Attempt]:
    """Return the attempts before the present one, the oldest first. The run's end adds what the logs say of them.

    Args:
        registry: The run's processes.
        ending: What the logs say so far.
        failures_of: Returns the exceptions of an attempt.
        gone_of: Returns which processes have ended without reporting an exception.

    """
    ranks: dict[int, list[RankProcess]] = {}
    for process in registry.everyone.values():
        if 0 <= process.attempt < registry.attempt:
            ranks.setdefault(process.attempt, []).append(process)
    attempts = []
    for number, processes in sorted(ranks.items()):
        failed = failures_of(number)
        fallen = _fallen(ending, processes)
        gone = gone_of(processes) if fallen or failed else ()  # else torchrun ended them, as when a node comes
        attempts.append(_attempt(number, processes, ending, fallen, failed, gone))
    return attempts


def _fallen(ending: Ending, processes: list[RankProcess]) -> list[Ended]:
    """Return the processes that ended badly, as far as launchers said so."""
    fallen = [
        dataclasses.replace(fall, rank=process.rank)
        for process in processes
        if not process.hello.through and (fall := ending.falls.get(process.hello.pid))
    ]
    return fallen + [row for process in processes if process.end and (row := ended_as(process, process.end))]


def _attempt(
    number: int,
    processes: list[RankProcess],
    ending: Ending,
    fallen: list[Ended],
    failed: list[Failure],
    gone: Sequence[failures.Gone],
) -> Attempt:
    lines = {process.rank: line for process in processes if (line := ending.earlier_line(process))}
    first = failures.first(fallen, failed, lines, gone=gone, world_size=processes[0].hello.world_size)
    return Attempt(
        number + 1,
        processes[0].hello.world_size,
        int(statistics.median_low(process.steps for process in processes)),
        list(first.ranks) if first else [],
        first.cause if first else None,
        first.exit or None if first else None,
    )
