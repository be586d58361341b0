"""The life of a run: waiting → running ⇄ slow, stalled → stopping → done | failed | stopped | detached | lost."""

from __future__ import annotations

from dataclasses import dataclass

from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import END_STATES, STARTING_WORKERS, Step

STALLED_S = Threshold(
    10.0,
    of="seconds without a finished step on any rank",
    why="A judgement call: a busy disk or a checkpoint takes a few seconds. Users want to learn of a hang within 15 s.",
)
STALLED_STEPS = Threshold(
    8,
    of="time without a finished step on any rank, as a multiple of the median step",
    why="A judgement call for steps longer than a second: unless the run pauses, no step takes that long.",
)
PAUSE = Threshold(
    1.5,
    of="time without a finished step on any rank, as a multiple of the longest step or pause of this run",
    why="A judgement call: evaluations and checkpoints recur, and take longer when the disk fills up or a cache is"
    " cold.",
)
STARTING_S = Threshold(
    60.0,
    of="seconds for which ddpmon waits while DataLoader workers start, imports run, or caches fill up",
    why="A judgement call: a start may import from a slow network disk or read an index, which looks like a "
    "hang or a memory leak.",
)
WARM_UP_STEPS = 10
"""The first steps compile, tune and fill caches: how long they take justifies nothing after them."""


@dataclass(frozen=True)
class Signs:
    """Facts that decide the state, at one moment."""

    run_state: str
    """"running", "done", "failed", "stopped", "detached", "lost" or "unknown", as run.json has it."""
    steps: int = 0
    """Steps that any rank finished in this attempt."""
    idle_s: float = 0.0
    """Time since a rank last finished a step."""
    step_s: float | None = None
    """Median length of a step."""
    pause_s: float = 0.0
    """The longest step that justifies another: see LongestPauses."""
    starts_workers: bool = False
    """A rank waits for the first batch of new DataLoader workers."""
    start_still_s: float | None = None
    """Time for which the first step has stood still; None while it may come: see starts."""
    all_left: bool = False
    """Every rank said goodbye: the launcher is about to end."""
    winding_down: bool = False
    """The ranks were asked to end."""
    slow: bool = False
    """A finding that is no mere information costs time."""


class LongestPauses:
    """The longest steps of a run: an evaluation or a checkpoint makes a step long, and may come again."""

    def __init__(self) -> None:
        self.worker_start_s = 0.0
        """The longest start of DataLoader workers: one before the first step justifies those of later epochs."""
        self._warming_up_s = 0.0
        self._training_s = 0.0

    def add(self, step: Step) -> None:
        """Add a step, and the starts of workers in it."""
        self.add_length(step.step, step.length_us / 1e6)
        for pause in step.pauses:
            if pause.kind == STARTING_WORKERS:
                self.worker_start_s = max(self.worker_start_s, (pause.end_us - pause.start_us) / 1e6)

    def add_length(self, step: int, length_s: float) -> None:
        """Add the length of a step. step: counts from 1."""
        if step <= WARM_UP_STEPS:
            self._warming_up_s = max(self._warming_up_s, length_s)
        else:
            self._training_s = max(self._training_s, length_s)

    def longest_s(self, steps: int) -> float:
        """Return the longest step that the run may take again after so many steps."""
        return max(self._training_s, self._warming_up_s if steps < WARM_UP_STEPS else 0.0)


def state(signs: Signs) -> str:
    """Return one of messages.STATES."""
    if signs.run_state in END_STATES:
        return signs.run_state
    if signs.winding_down:
        return "stopping"
    if not signs.steps:
        return "waiting" if signs.start_still_s is None or signs.all_left else "stalled"
    limit_s = stalled_after_s(signs.step_s, signs.pause_s, starts_workers=signs.starts_workers)
    if not signs.all_left and signs.idle_s > limit_s:
        return "stalled"
    return "slow" if signs.slow else "running"


def stalled_after_s(step_s: float | None, pause_s: float = 0.0, *, starts_workers: bool = False) -> float:
    """Return how long no rank may finish a step before the run counts as stalled: as long as the run ever justified.

    step_s: median length of a step. pause_s: the longest step there was. While steps take less than a second and no
    pause took more than 10 s, that is at most 15 s, but for starts of DataLoader workers.
    """
    least_s = STARTING_S.enter if starts_workers else STALLED_S.enter
    return max(least_s, STALLED_STEPS.enter * (step_s or 0.0), PAUSE.enter * pause_s)
