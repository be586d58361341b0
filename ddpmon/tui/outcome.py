"""How a person left the dashboard, for the command line to say one line about and to pick its exit code."""

from __future__ import annotations

import enum


class Outcome(enum.Enum):
    """How the dashboard was left."""

    DETACHED = "detached"
    """The run goes on, as far as this viewer knows."""
    STOPPING = "stopping"
    """A stop was asked for from here; the run had not ended yet."""
    ENDED = "ended"
    """The run was over by then."""
