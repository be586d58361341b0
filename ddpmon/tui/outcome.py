"""Tells how a person left the dashboard, so that the command line can print one line and pick its exit code."""

from __future__ import annotations

import enum


class Outcome(enum.Enum):
    """Way in which the dashboard was left."""

    DETACHED = "detached"
    """The run goes on, as far as this viewer knows."""
    STOPPING = "stopping"
    """A stop was asked for from here; the run had not ended yet."""
    ENDED = "ended"
    """The run was over by then."""
