"""The life of a run: waiting → running ⇄ slow, stalled → done | failed | stopped | lost."""

from __future__ import annotations

from dataclasses import dataclass

from ddpmon.messages import END_STATES

STALLED_S = 10.0
STALLED_STEPS = 8


@dataclass(frozen=True)
class Signs:
    """What the state follows from, at one moment."""

    run_state: str
    """"running", "done", "failed", "stopped" or "lost", as run.json tells."""
    steps: int = 0
    """Steps that any rank finished in this attempt."""
    idle_s: float = 0.0
    """Since a rank last finished a step."""
    step_s: float | None = None
    """Median length of a step."""
    all_left: bool = False
    """Every rank said goodbye: the launcher is about to end."""
    slow: bool = False
    """Something found costs time."""


def state(signs: Signs) -> str:
    """One of messages.STATES."""
    if signs.run_state in END_STATES:
        return signs.run_state
    if not signs.steps:
        return "waiting"
    if not signs.all_left and signs.idle_s > stalled_after_s(signs.step_s):
        return "stalled"
    return "slow" if signs.slow else "running"


def stalled_after_s(step_s: float | None) -> float:
    """How long no rank may finish a step before the run counts as stalled."""
    return max(STALLED_S, STALLED_STEPS * (step_s or 0.0))
