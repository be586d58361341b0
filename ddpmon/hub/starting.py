"""Which ranks torchrun has started, before they can say so themselves."""

from __future__ import annotations

import psutil

from ddpmon.runs import Process


def started_ranks(agent: Process) -> frozenset[int]:
    """Ranks of the processes that torchrun started, by their environment; empty if it is gone.

    Reads every child's environment: for the time of waiting only.
    """
    if not agent.alive():
        return frozenset()
    ranks = set()
    try:
        children = psutil.Process(agent.pid).children()
    except psutil.Error:
        return frozenset()
    for child in children:
        try:
            rank = child.environ().get("RANK", "")
        except (psutil.Error, OSError):
            continue  # ended meanwhile
        if rank.isdecimal():
            ranks.add(int(rank))
    return frozenset(ranks)
