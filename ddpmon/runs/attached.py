"""A rank of a job that ddpmon did not start, and how far ddpmon is with it. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from ddpmon.runs.process import Process

ENTERING = "entering"
"""A debugger is at work."""
WAITING = "waiting"
"""It is going to run what it was given, once it comes back to Python code."""
STARTING = "starting"
"""It runs what it was given."""
IN = "in"
"""The probe is in it."""
REFUSED = "refused"
"""It cannot be entered."""
ENDED = "ended"
"""Its process has ended."""
STATES = (ENTERING, WAITING, STARTING, IN, REFUSED, ENDED)


@dataclass(frozen=True)
class Attached:
    """One rank of such a job."""

    process: Process
    rank: int | None
    """None: neither its environment nor the probe has told it yet."""
    state: str
    why: str = ""
    """Why it is refused, or in which line it waits ("in f (train.py:9)")."""

    @property
    def name(self) -> str:
        """The rank in a sentence."""
        return f"pid {self.process.pid}" if self.rank is None else f"rank {self.rank} (pid {self.process.pid})"
