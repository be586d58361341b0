"""Decide whether a run hangs before its first step.

The usual length of a step is not known yet, and a slow start is no hang: imports, a download, the preparation of a data
set, or the compilation of a model may take long. They keep a core, a disk or a GPU busy, or move from line to line.

A rank is idle if neither the rank nor any process below it used BUSY of a core or moved BUSY_BYTES_PER_S, and its GPU
was idle. A start hangs if, for START_PROGRESS_S, every rank of the world has connected, no rank progressed to another
line of the script or a further collective, and one of these conditions holds:

- some ranks wait in a collective (or in init_process_group) for other ranks, and these other ranks are idle. The CPU
  use of the waiting ranks proves nothing, because waiting for a GPU keeps a core busy;
- all ranks wait, or no rank waits; all ranks are idle; and each has its model or is creating a process group;
- for SHARED_S, all ranks are at one line and idle, for example at a lock that a killed run has left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ddpmon.analysis.processes.disagreements import line_of, place_of
from ddpmon.analysis.processes.hangs import missing_ranks
from ddpmon.analysis.run_state import STARTING_S
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import MEETINGS, Stack

START_PROGRESS_S = Threshold(
    15.0,
    of="seconds without progress on any rank before the first step",
    why="A judgement call: ddpmon should report any hang within this time, as it does later in a run"
    " (ddpmon/analysis/run_state.py).",
)
SHARED_S = 2 * START_PROGRESS_S.enter
"""Seconds that all ranks must stay at one line, before the first step, until the line is shown to the user."""
BUSY = Threshold(
    0.05,
    of="mean CPU use of a rank and its child processes over the last seconds, as a share of one core; or "
    "utilization of its GPU",
    why="The probe itself uses less than a tenth of this value (benchmarks/rank_cost.py). GPU drivers report 1 or 2%"
    " for an idle GPU.",
)
BUSY_BYTES_PER_S = Threshold(
    65_536,
    of="bytes per second that a rank and its child processes read and write, on average over the last seconds",
    why="A judgement call: a download or the preparation of a data set moves more. If a rank only prints a "
    "line now and then, it writes less.",
)


@dataclass(frozen=True)
class Starting:
    """A rank that has not finished a step."""

    still_s: float
    """Seconds since the rank last progressed."""
    idle: bool = False
    """True if the rank and its children were idle for START_PROGRESS_S seconds; False also if this was not measured."""
    has_model: bool = False
    gone: bool = False
    """True if the rank has left or died."""
    stack: Stack | None = None
    """The rank's stack; None: the rank sends nothing, or has ended."""

    @property
    def meets(self) -> bool:
        """Return whether the rank is creating a process group, which takes only moments once all ranks do so."""
        stack = self.stack
        return stack is not None and stack.collective is not None and stack.collective.name in MEETINGS


def start_still_s(ranks: Mapping[int, Starting], world_size: int) -> float | None:
    """Return the seconds for which the start has made no progress; None if it may still progress."""
    present = {rank: one for rank, one in ranks.items() if not one.gone}
    if not present or len(ranks) < world_size:
        return None
    still_s = min(one.still_s for one in present.values())
    if still_s < START_PROGRESS_S.enter:
        return None
    stacks = {rank: one.stack for rank, one in present.items() if one.stack}
    unheard = present.keys() - stacks.keys()
    late = {*unheard, *(ranks.keys() - present.keys())} or set(missing_ranks(stacks))
    waiting = {rank for rank, stack in stacks.items() if stack.blocked} - late
    if late and waiting:
        # Check only ranks that are not blocked: a rank that waits in another collective may keep a core busy by
        # waiting.
        held_up_by = [rank for rank in late & present.keys() if rank in unheard or not stacks[rank].blocked]
        return still_s if all(present[rank].idle for rank in held_up_by) else None
    set_up = all(one.has_model or one.meets for one in present.values())
    at_rest = all(one.idle for one in present.values()) and (set_up or shared_line(ranks, world_size) is not None)
    return still_s if at_rest else None


def shared_line(ranks: Mapping[int, Starting], world_size: int) -> tuple[str, float] | None:
    """Return the line at which every rank has been for SHARED_S, and the seconds at it; None if there is none."""
    stacks = [one.stack for one in ranks.values() if one.stack is not None and not one.stack.blocked]
    still_s = min((one.still_s for one in ranks.values()), default=0.0)
    if len(stacks) < max(world_size, 1) or still_s < SHARED_S:
        return None
    lines, places = {line_of(stack) for stack in stacks}, {place_of(stack) for stack in stacks}
    if len(lines) > 1:
        return None
    # A library that polls may be at different lines on different ranks.
    return (places if len(places) == 1 else lines).pop(), still_s


FLAGS, ENVIRONMENT, LATE = "flags", "environment", "late"


@dataclass(frozen=True)
class Unarmed:
    """A process that uses torch but runs without the probe."""

    pid: int
    rank: int | None
    """The process's rank, if a launcher gave it one."""
    why: str
    """FLAGS: the interpreter ignores the environment; ENVIRONMENT: the environment was not passed on; LATE: unknown."""
    seconds: float
    """Seconds since torch was first seen in the process, without the time in which the process waited for a core."""
    gone: bool = False
    """True if the process has ended."""


def worth_telling(processes: Iterable[Unarmed], *, over: bool = False) -> list[Unarmed]:
    """Return the processes that run without the probe for longer than imports take.

    Args:
        processes: Processes that use torch without the probe.
        over: True if the run has ended, so that the probe cannot be loaded any more.

    """
    least = {LATE: STARTING_S.enter, **dict.fromkeys((FLAGS, ENVIRONMENT), 0.0 if over else START_PROGRESS_S.enter)}
    return [one for one in processes if one.seconds >= least[one.why]]
