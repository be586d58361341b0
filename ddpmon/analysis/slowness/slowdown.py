"""Defines the description of a slowdown, and when evidence for a slowdown is strong enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from ddpmon.analysis.threshold import Threshold

Scope = Literal["rank", "ranks", "host", "all", "rotating"]
PatternName = Literal["lasting", "stretch", "steps", "seconds", "irregular", "ramp"]
Changed = Literal["these", "others", "unknown"]

CERTAIN_Z = 6.0
"""Number of standard deviations above which a change is not chance. The detector's thresholds are about as high."""
EVIDENCE = CERTAIN_Z**2 / 2
"""Log likelihood ratio at which a change of level, up or down, is accepted. The end of a slowdown needs as much
evidence as its beginning."""
WORTH = Threshold(
    1.02,
    of="time since a slowdown began, divided by the time that the same steps would take without the slowdown",
    why="The value is 2% of the run's time, which is larger than the usual error: in nine of ten runs, the "
    "error of predicted gains is at most 1.1% (benchmarks/diagnosis.py).",
    stay=1.01,
)


def gain_without(lost: float, took: float) -> float:
    """Return the speedup if the time `lost` were saved: the time that steps took over that time without the loss."""
    return took / max(took - lost, 1e-9)


@dataclass(frozen=True)
class Slowdown:
    """A slowdown: some ranks take longer than the others, or all ranks take longer than before.

    The ranks and `since` identify a slowdown from one judgement to the next.
    """

    ranks: tuple[int, ...]
    """The slow ranks; all ranks if the scope is "all"."""
    scope: Scope
    """"host": all ranks of one or more hosts. "rotating": one rank after another."""
    phases_ms: Mapping[str, float] = field(hash=False)
    """Excess of a slow step in ms in each phase over the other ranks; for scope "all", in each phase and "transfer"
    over the past."""
    pattern: PatternName
    since: int
    """Number of the first slow step."""
    since_within: tuple[int, int]
    """95% interval of `since`. Both ends are equal if the step is certain."""
    excess_ms: float
    """Excess of a slow step in ms in own time; for scope "all", in the length of the step."""
    cost_ms: float
    """Time in ms that the run has lost until step `as_of`."""
    as_of: int
    """Number of the latest step when this description was made."""
    gain: float
    """Speedup since step `since` if this and all other present slowdowns of ranks were fixed."""
    gain_alone: float
    """Speedup since step `since` if only this slowdown were fixed."""
    until: int | None = None
    """Number of the last slow step; None while the slowdown lasts."""
    every: float | None = None
    """Period in steps (pattern "steps") or seconds (pattern "seconds"); for scope "rotating", steps per turn."""
    share: float = 1.0
    """Share of slow steps among the steps from `since` on."""
    changed: Changed = "these"
    """Ranks that changed at `since`. "these": these ranks became slower. "others": the other ranks became faster."""
    stretches: tuple[tuple[int, int], ...] = ()
    """First and last step of the latest stretches of a recurring slowdown, without the present one."""
    increase: float = 0.0
    """Excess in `phase` as a multiple of the time that the phase took before (scope "all")."""
    began_us: tuple[int, int] = (0, 0)
    """Moments at which the first and the last step of `since_within` began, in µs, by the clock of `World.end_us`."""
    hidden_since: int | None = None
    """First step at which noise is too large to tell whether the slowdown continues; None: no such step."""
    work: str = ""
    """"tokens" or "samples" if their uneven distribution within each step causes the slowdown (scope "rotating")."""

    @cached_property
    def phase(self) -> str:
        """Return the phase with the largest excess."""
        return max(self.phases_ms, key=lambda name: self.phases_ms[name])

    @property
    def is_of_ranks(self) -> bool:
        """Return whether some ranks are slow compared with the others."""
        return self.scope not in {"all", "rotating"}

    @property
    def is_exact(self) -> bool:
        """Return whether the first slow step is certain."""
        return self.since_within[0] == self.since_within[1]
