"""One description of a slowdown."""

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
"""Standard deviations from which on a change is no chance: about those that the detector asks for."""
EVIDENCE = CERTAIN_Z**2 / 2
"""Log likelihood ratio at which a change of level is accepted, up or down: a slowdown ends on evidence as strong as
began it."""
WORTH = Threshold(
    1.02,
    of="time since a slowdown began, divided by the time that the same steps would take without the slowdown",
    why="The value is 2% of the run's time, which is larger than the usual error: in nine of ten runs, the "
    "error of predicted gains is at most 1.1% (benchmarks/diagnosis.py).",
    stay=1.01,
)


@dataclass(frozen=True)
class Slowdown:
    """Some ranks take longer than the others, or all ranks longer than before.

    Ranks and `since` identify it from one judgement to the next.
    """

    ranks: tuple[int, ...]
    """The slow ranks; every rank where the scope is "all"."""
    scope: Scope
    """"host": these are all ranks of one host or of several hosts. "rotating": one after another."""
    phases_ms: Mapping[str, float] = field(hash=False)
    """Excess of a slow step in each phase over the other ranks; for scope "all" over the past, with "transfer"."""
    pattern: PatternName
    since: int
    """Number of the first slow step."""
    since_within: tuple[int, int]
    """95% interval of `since`. Both ends are equal where the step is certain."""
    excess_ms: float
    """Excess of a slow step in own time (scope "all": of the step)."""
    cost_ms: float
    """Time that the run has lost until step `as_of`."""
    as_of: int
    """Number of the latest step that was judged."""
    gain: float
    """Time since `since` over the time without this and all other present slowdowns of ranks."""
    gain_alone: float
    """The same without this slowdown alone."""
    until: int | None = None
    """Number of the last slow step; None while the slowdown lasts."""
    every: float | None = None
    """Period in steps ("steps") or in seconds ("seconds"); for scope "rotating" the steps of a turn."""
    share: float = 1.0
    """Share of the steps from `since` on that are slow."""
    changed: Changed = "these"
    """Ranks that changed at `since`: these became slower, or the others faster."""
    stretches: tuple[tuple[int, int], ...] = ()
    """First and last step of the latest stretches of one that comes again, the present one excepted."""
    increase: float = 0.0
    """Excess in the phase over the time that it took before (scope "all")."""
    began_us: tuple[int, int] = (0, 0)
    """Moments at which the first and the last step of `since_within` began, by the clock of the steps' ends."""
    hidden_since: int | None = None
    """Step from which on noise is too large to tell whether the slowdown goes on."""
    work: str = ""
    """Uneven quantity within each step that causes it (scope "rotating"): "tokens" or "samples"."""

    @cached_property
    def phase(self) -> str:
        """The phase with the largest excess."""
        return max(self.phases_ms, key=lambda name: self.phases_ms[name])

    @property
    def is_of_ranks(self) -> bool:
        """Return whether some ranks are slow against the others."""
        return self.scope not in {"all", "rotating"}

    @property
    def is_exact(self) -> bool:
        """Return whether the first slow step is certain."""
        return self.since_within[0] == self.since_within[1]
