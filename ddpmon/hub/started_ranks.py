"""Finds the ranks that torchrun has started, before they can say so themselves."""

from __future__ import annotations

import contextlib

from ddpmon.runs import Process, proc


def started_ranks(agent: Process) -> frozenset[int]:
    """Ranks of the processes that torchrun started, by their environment; empty if it is gone.

    Reads every child's environment: for the time of waiting only.
    """
    ranks: set[int] = set()
    for pid in proc.children().get(agent.pid, ()) if agent.alive() else ():
        with contextlib.suppress(OSError):  # ended meanwhile
            values = [word[5:] for word in proc.environment(pid) if word.startswith(b"RANK=")]
            ranks.update(int(value) for value in values if value.isdigit())
    return frozenset(ranks)
