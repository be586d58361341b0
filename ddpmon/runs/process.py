"""Identifies a process by more than its pid, which a later process may get. Standard library only."""

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
        """Return whether this process is alive, and its pid does not belong to a later process."""
        stat = proc.stat(self.pid)
        if stat is None:
            # Reading fails without a free descriptor; then any process with this pid counts.
            return proc.exists(self.pid)
        return stat.alive and stat.start_ticks == self.start_ticks
