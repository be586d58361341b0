"""Processes of a run that have torch loaded while the probe is not armed in them: nobody watches what they do.

Torch takes a while to import, and the probe is armed right after it; a script whose interpreter ignores the environment
may still call `ddpmon.init()`. So a process is reported only after some time, sooner where its own start says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ddpmon.analysis.processes.starts import START_S
from ddpmon.analysis.run_state import STARTING_S

FLAGS, ENVIRONMENT, LATE = "flags", "environment", "late"


@dataclass(frozen=True)
class Unarmed:
    """A process with torch and without the probe."""

    pid: int
    rank: int | None
    """Its rank, if a launcher gave it one."""
    why: str
    """FLAGS: its interpreter ignores the environment; ENVIRONMENT: that was not passed on; LATE: nothing tells."""
    seconds: float
    """Seconds since torch was first seen in it, without the time in which it waited for a core."""
    gone: bool = False
    """It has ended."""


def worth_telling(processes: Iterable[Unarmed], *, over: bool = False) -> list[Unarmed]:
    """Return the processes that are not merely importing. over: the run has ended, and nothing arms them any more."""
    least = {LATE: STARTING_S.enter, **dict.fromkeys((FLAGS, ENVIRONMENT), 0.0 if over else START_S.enter)}
    return [one for one in processes if one.seconds >= least[one.why]]
