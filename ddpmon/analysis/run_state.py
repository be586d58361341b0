"""The state of a run: waiting → running ⇄ slow, stalled → stopping → done | failed | stopped | detached | lost."""

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
"""Number of warm-up steps, which compile, tune and fill caches. Later steps are not expected to take as long."""


@dataclass(frozen=True)
class Signs:
    """The facts at one moment that decide a run's state."""

    run_state: str
    """"running", "done", "failed", "stopped", "detached", "lost" or "unknown", as run.json has it."""
    steps: int = 0
    """Steps that any rank finished in this attempt."""
    idle_s: float = 0.0
    """Seconds since a rank last finished a step."""
    step_s: float | None = None
    """Median length of a step; None while it is unknown."""
    pause_s: float = 0.0
    """Seconds of the longest step or pause that may occur again (see LongestPauses)."""
    starts_workers: bool = False
    """True while a rank waits for the first batch of new DataLoader workers."""
    start_still_s: float | None = None
    """Seconds for which the start has made no progress; None while the first step may still come (see `starts`)."""
    all_left: bool = False
    """True once every rank has reported its exit, so that the launcher is about to end."""
    winding_down: bool = False
    """True once the ranks were asked to end."""
    replays: bool = False
    """True if a rank has captured its training in a CUDA graph, whose steps ddpmon cannot count."""
    slow: bool = False
    """True if a lasting finding costs time, and its severity is not "info"."""

    @property
    def still_s(self) -> float:
        """Return the seconds without progress: since a rank last finished a step, or during the start of the run."""
        return self.idle_s if self.steps else self.start_still_s or 0.0


class LongestPauses:
    """The longest steps of a run: an evaluation or a checkpoint makes a step long, and may occur again."""

    def __init__(self) -> None:
        self.worker_start_s = 0.0
        """The longest start of DataLoader workers in seconds, which each epoch may take again."""
        self._warming_up_s = 0.0
        self._training_s = 0.0

    def add(self, step: Step) -> None:
        """Add a step, and the starts of DataLoader workers in it."""
        self.add_length(step.step, step.length_us / 1e6)
        for pause in step.pauses:
            if pause.kind == STARTING_WORKERS:
                self.worker_start_s = max(self.worker_start_s, (pause.end_us - pause.start_us) / 1e6)

    def add_length(self, step: int, length_s: float) -> None:
        """Add the length of a step; `step` is its number, counted from 1."""
        if step <= WARM_UP_STEPS:
            self._warming_up_s = max(self._warming_up_s, length_s)
        else:
            self._training_s = max(self._training_s, length_s)

    def longest_s(self, steps: int) -> float:
        """Return the longest step that may occur again, after the run has finished `steps` steps."""
        return max(self._training_s, self._warming_up_s if steps < WARM_UP_STEPS else 0.0)


def derive_state(signs: Signs) -> str:
    """Return the state of the run, one of messages.STATES."""
    if signs.run_state in END_STATES:
        return signs.run_state
    if signs.winding_down:
        return "stopping"
    if not signs.steps:
        return "waiting" if signs.start_still_s is None or signs.all_left else "stalled"
    if is_without_steps(signs) and not signs.replays:
        return "stalled"
    return "slow" if signs.slow else "running"


def is_without_steps(signs: Signs) -> bool:
    """Return whether no rank has finished a step for longer than the steps and pauses of this run usually take."""
    limit_s = stalled_after_s(signs.step_s, signs.pause_s, starts_workers=signs.starts_workers)
    return signs.steps > 0 and not signs.all_left and signs.idle_s > limit_s


def stalled_after_s(step_s: float | None, pause_s: float = 0.0, *, starts_workers: bool = False) -> float:
    """Return the seconds without a finished step on any rank after which the run counts as stalled.

    While steps take less than a second and no pause took more than 10 s, the limit is at most 15 s, except while
    DataLoader workers start.

    Args:
        step_s: Median length of a step in seconds; None if unknown.
        pause_s: The longest step or pause of the run so far, in seconds.
        starts_workers: True while DataLoader workers start, which may take STARTING_S.

    """
    least_s = STARTING_S.enter if starts_workers else STALLED_S.enter
    return max(least_s, STALLED_STEPS.enter * (step_s or 0.0), PAUSE.enter * pause_s)
