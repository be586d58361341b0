"""Identifies a process so that it is never confused with a later one of the same pid. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from ddpmon.runs import proc


@dataclass(frozen=True)
class Process:
    """A process by its pid and start time, so that a process with a recycled pid is not equal to it."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """Return the live process with a pid; None if there is none. A zombie does not count."""
        stat = proc.stat(pid)
        return cls(pid, stat.start_ticks) if stat is not None and stat.alive else None

    def alive(self) -> bool:
        """Return whether this very process still runs."""
        stat = proc.stat(self.pid)
        if stat is None:
            # Without a free descriptor to read the file, the process counts as alive if it exists.
            return proc.exists(self.pid)
        return stat.alive and stat.start_ticks == self.start_ticks
