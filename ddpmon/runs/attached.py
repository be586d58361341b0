"""A rank of a job that ddpmon did not start, and the state of attaching to it. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from ddpmon.proc import Process

ENTERING = "entering"
"""A debugger is injecting the probe."""
WAITING = "waiting"
"""The rank will run the injected code once it returns to Python code."""
STARTING = "starting"
"""The rank is running the injected code."""
IN = "in"
"""The probe is active in the rank."""
REFUSED = "refused"
"""The probe cannot be injected into the rank."""
ENDED = "ended"
"""The rank's process has ended."""
ENTRY_STATES = (ENTERING, WAITING, STARTING, IN, REFUSED, ENDED)


@dataclass(frozen=True)
class Attached:
    """One rank of a job that ddpmon has attached to."""

    process: Process
    rank: int | None
    """The rank's number; None until the environment or the probe has shown it."""
    state: str
    why: str = ""
    """Why the probe cannot be injected, or the line in which the rank waits ("in f (train.py:9)")."""

    @property
    def name(self) -> str:
        """Return the rank's name for sentences."""
        return f"pid {self.process.pid}" if self.rank is None else f"rank {self.rank} (pid {self.process.pid})"
