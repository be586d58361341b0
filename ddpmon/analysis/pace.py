"""Compare the speed of a run with that of earlier runs of the same script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ddpmon.analysis.compare import RUN_DIFFERENCE
from ddpmon.analysis.statistics.excess import EXPLAINS
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import PHASES, Phase

UNUSUAL = Threshold(
    0.05,
    of="relative difference between the median step of a run and that of its slowest or fastest earlier run",
    why="A judgement call: ddpmon reports problems that cost 5% of the time or more. Differences between runs of one"
    " script on one machine are mostly smaller.",
)


@dataclass(frozen=True)
class Pace:
    """The speed of a run, and how much work its steps contain."""

    step_ms: float
    """Length of the median step."""
    phases_ms: tuple[float, ...]
    """Time in ms of each phase, in the order of PHASES, on the rank where the phase is longest. For transfer, the rank
    with the shortest time counts, because that rank did not wait for others."""
    samples: float
    """Number of samples of all ranks in a step; 0: not counted."""
    gradient_bytes: float
    interval_ms: tuple[float, float] | None = None
    """95% interval of the median step; None: not computed."""

    @property
    def within_ms(self) -> tuple[float, float]:
        return self.interval_ms or (self.step_ms, self.step_ms)

    def does_the_work_of(self, other: Pace) -> bool:
        """Return whether a step of both runs contains equally many samples, and equally large gradients."""
        pairs = ((self.samples, other.samples), (self.gradient_bytes, other.gradient_bytes))
        return all(abs(one - two) <= RUN_DIFFERENCE.enter * max(one, two) for one, two in pairs)


@dataclass(frozen=True)
class Difference:
    """The difference between a run and its earlier runs."""

    runs: int
    step_ms: float
    """Median, in ms, of the earlier runs' median steps."""
    slower_by: float
    """Relative change: 0.31 means that a step takes 31% longer; below 0, it takes less time."""
    phase: str
    """The phase that explains most of the difference; "": no phase explains enough of the difference."""
    phase_ms: float

    def sentence(self, name: str) -> str:
        """Return a sentence such as: 31% slower than the median of your last 3 runs of train.py (data +20.0 ms)."""
        runs = f"the median of your last {self.runs} runs" if self.runs > 1 else "your last run"
        if not self.slower_by:
            return f"about as fast as {runs} of {name}"
        how = f"{self.slower_by:.0%} slower" if self.slower_by > 0 else f"{1 / (1 + self.slower_by) - 1:.0%} faster"
        part = f" ({self.phase} {self.phase_ms:+.1f} ms)" if self.phase else ""
        return f"{how} than {runs} of {name}{part}"


def difference(now: Pace, earlier: Sequence[Pace]) -> Difference | None:
    """Compare a run with earlier runs, the latest first. Return None if no earlier run did the same work.

    The run is slower only if the 95% interval of its median step is above the intervals of all earlier runs, and faster
    only if it is below all of them. Otherwise chance may explain the difference.
    """
    alike = [pace for pace in earlier if now.does_the_work_of(pace)]
    if not alike:
        return None
    steps = [pace.step_ms for pace in alike]
    usual = median(steps)
    (low, high), lows, highs = now.within_ms, *zip(*(pace.within_ms for pace in alike), strict=True)
    slower = now.step_ms > max(steps) * (1 + UNUSUAL.enter) and low > max(highs)
    faster = now.step_ms * (1 + UNUSUAL.enter) < min(steps) and high < min(lows)
    if not slower and not faster:
        return Difference(len(alike), usual, 0.0, "", 0.0)
    change_ms = now.step_ms - usual
    parts = [
        (phase_ms - median(pace.phases_ms[place] for pace in alike), name)
        for place, (name, phase_ms) in enumerate(zip(PHASES, now.phases_ms, strict=True))
        if place != Phase.WAIT
    ]
    most_ms, name = max(parts, key=lambda part: part[0] * (1 if change_ms > 0 else -1))
    explains = EXPLAINS.is_reached(most_ms / change_ms)
    return Difference(
        len(alike), usual, now.step_ms / usual - 1, name if explains else "", most_ms if explains else 0.0
    )
