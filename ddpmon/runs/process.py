"""A process that is never mistaken for a later one. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from ddpmon.runs import proc


@dataclass(frozen=True)
class Process:
    """A process by pid and start time, so that a recycled pid is never taken for it."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The live process with a pid; None if there is none (a zombie counts as none)."""
        stat = proc.stat(pid)
        return cls(pid, stat.start_ticks) if stat is not None and stat.alive else None

    def alive(self) -> bool:
        """Return whether this very process still runs."""
        stat = proc.stat(self.pid)
        if stat is None:
            return proc.exists(self.pid)  # where no file is free to read it by, it lives on
        return stat.alive and stat.start_ticks == self.start_ticks
