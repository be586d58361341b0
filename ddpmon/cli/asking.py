"""Sends requests to the ranks of a running run, and waits for the answers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ddpmon.errors import DdpmonError, HubUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ddpmon.messages import Snapshot
    from ddpmon.runs import Run
    from ddpmon.source import Source

HUB_S = 5.0
"""Longest time, in seconds, for a hub's first answer."""


def check_askable(run: Run, command: str) -> None:
    """Raise DdpmonError if no rank of the run can answer on this machine. The error says what to do instead."""
    if elsewhere := run.elsewhere():
        raise DdpmonError(f"{run.name} ({run.id}) {elsewhere}; run {command} {run.id} there")
    if run.state() != "running":
        raise DdpmonError(over(run))


def over(run: Run) -> str:
    """Return the error message for a request to the ranks of a run that has ended."""
    return (
        f"{run.name} ({run.id}) has ended ({run.state()}), so no rank can answer; ddpmon report says how the run ended"
    )


def first_answer(source: Source, run: Run, fits: Callable[[Snapshot], bool]) -> Snapshot:
    """Return the hub's first snapshot for which `fits` is true. Raise DdpmonError if none comes or the run ended."""
    from ddpmon.messages import END_STATES

    shot = wait(source, HUB_S, fits)
    if shot is None and source.refused:
        raise HubUnreachableError(f"{run.name} ({run.id}): {source.refused}")
    if shot is None:
        raise HubUnreachableError(
            f"the hub of {run.name} ({run.id}) does not answer; see logs/hub.log in the run's folder"
        )
    if shot.state in END_STATES or not source.askable:
        raise DdpmonError(over(run))
    return shot


def wait(source: Source, seconds: float, fits: Callable[[Snapshot], bool]) -> Snapshot | None:
    """Return the first snapshot for which `fits` is true; None if none arrives in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        shot = source.snapshot()
        if shot is not None and fits(shot):
            return shot
        time.sleep(0.02)
    return None
