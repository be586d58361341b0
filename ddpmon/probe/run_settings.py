"""The run that this process is watched by: from its environment, or given by whoever attached to it."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class RunSettings:
    """Where a run's hub listens, and what its ranks may do to find other hubs."""

    run_id: str
    socket: str
    """Address of the hub; "": nobody watches."""
    folder: str = ""
    """The run's folder; "": it has none on this machine."""
    alone: bool = False
    """No rank is on another machine, nor will be."""
    hub_given: bool = False
    """Hubs of several machines were given a place to meet."""
    attached: bool = False
    """The process was running before somebody attached to it."""


_given: RunSettings | None = None


def give(settings: RunSettings | None) -> None:
    """Set the run in the place of what the environment says; None: take it back."""
    global _given
    _given = settings


def current() -> RunSettings:
    """Return the settings that hold now."""
    if _given is not None:
        return _given
    return RunSettings(
        run_id=os.environ.get("DDPMON_RUN_ID", ""),
        socket=os.environ.get("DDPMON_SOCKET", ""),
        folder=os.environ.get("DDPMON_RUN_DIR", ""),
        alone=os.environ.get("DDPMON_ALONE") == "1",
        hub_given=os.environ.get("DDPMON_HUB_GIVEN") == "1",
    )
