"""Comparison of two runs: the faster one, the ratio with its interval, and the cause of the difference.

The lengths of steps are compared once each run has settled. If a step of one run does more work than the other's
(samples, tokens), work per second is compared instead. The interval covers the variation of steps within each run. The
variation between runs of the same script (other machine, busy neighbours) shows only in further runs.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isinf, log, log1p

import numpy as np

from ddpmon.analysis.kinds import kind_of
from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.statistics.resampling import INTERVAL_SHARE, Ratio, Resampled, resampled, resampled_ratio
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import Finding

EXCLUDED_FIRST_STEPS = 5
"""Number of first steps that are always left out, because buffers, kernels and DDP's buckets are set up in them."""
MIN_COMPARED_STEPS = 20
"""Minimum number of compared steps, from which the interval of the median is computed by resampling blocks of steps."""
MOST_STEPS = 20_000
"""Maximum number of steps that are compared: the last ones. With more steps, the interval would be narrower than the
difference between two runs of the same script."""
MOST_INTERVAL_STEPS = 2_000
"""Maximum number of steps for the interval of one run's median step, which takes 50 ms of CPU time."""
RUN_DIFFERENCE = Threshold(
    0.01,
    of="difference between two runs in step time, work per step or mean loss, as a share",
    why="A judgement call: two runs of the same script differ by this much. If two runs differ by less, ddpmon "
    "calls them equally fast.",
)
DRIFT = Threshold(
    0.1,
    of="difference between the median steps of the first and the second half of a run, as a share",
    why="A judgement call: if the halves differ more, one median describes neither of them, and ddpmon adds a note.",
)
COMPARED_LOSS_STEPS = 20
"""Number of last steps, common to both runs, whose mean losses are compared. Losses of single batches vary."""
_BATCH_STEPS = 5
"""Number of steps in a batch, as in MSER-5."""


@dataclass(frozen=True)
class Side:
    """The compared steps of one run. Its work is the work of all ranks together."""

    window: tuple[int, int]
    """First and last step that are compared."""
    steps: int
    left_out: int
    """Number of steps at the beginning that were left out because the run had not settled."""
    ranks: int
    step_ms_p50: float
    step_ms_mean: float
    halves_ms: tuple[float, float]
    """Median step in ms of the first and of the second half."""
    work: dict[str, float]
    """Work of a step in "tokens" and in "samples"; 0: not counted."""
    phases_ms: Floats
    """[7] Mean time in each phase over ranks and steps, in the order of PHASES."""
    path_ms: Floats
    """[7] Mean phases of each step's critical rank: they add up to the step's length."""
    critical_rank: int | None
    """The rank that was last most often; None if no rank waited."""
    critical_share: float | None
    drawn: Resampled

    def per_s(self, unit: str) -> float | None:
        """Return the work per second over the compared steps; None if the work was not counted."""
        return self.work[unit] / self.step_ms_mean * 1e3 if self.work[unit] else None


@dataclass(frozen=True)
class Losses:
    """Mean losses of two runs at the last step, or number of samples, that both have reached."""

    step_a: int
    step_b: int
    a: float
    b: float
    b_is: str
    """Significant difference of B's loss: "higher" (B has learned less so far), "lower" or "alike"."""
    same: str
    """The quantity that is equal in both runs: "step" or "samples"."""


@dataclass(frozen=True)
class Comparison:
    """A comparison of run B with run A. Ratios are of speed: above 1, B is faster."""

    a: Side
    b: Side
    unit: str
    """Unit of the runs' speed: "steps"; "samples" or "tokens" if their steps have different numbers of these."""
    median: Ratio
    mean: Ratio
    losses: Losses | None
    gone: Sequence[Finding]
    new: Sequence[Finding]
    kept: Sequence[tuple[Finding, Finding]]
    """Pairs of the finding in A and the same finding in B."""

    @property
    def by_mean(self) -> bool:
        """Return whether the median does not show the difference, because a few steps have long pauses."""
        median, mean = _effect(self.median), _effect(self.mean)
        return abs(mean) > (2 * abs(median) if median * mean > 0 else 0.0)

    @property
    def speed(self) -> Ratio:
        return self.mean if self.by_mean else self.median

    @property
    def outcome(self) -> str:
        """Return "faster" or "slower" if the change of B is significant, else "same"."""
        effect = _effect(self.speed)
        return "faster" if effect > 0 else "slower" if effect < 0 else "same"

    @property
    def slower_by(self) -> float:
        """Return the least slowdown of B that the 95% intervals still allow, of the median or the mean step.

        0.1 means that B's step is at least 10% longer; 0 means that B may be as fast as A.
        """
        return max(0.0, 1 / self.median.high - 1, 1 / self.mean.high - 1)


def _effect(speed: Ratio) -> float:
    """Return the log of the end of the ratio's interval that is nearest to 1; 0 if the ratio is not significant."""
    if not speed.is_certain or abs(log(speed.value)) <= log1p(RUN_DIFFERENCE.enter):
        return 0.0
    return log(speed.low) if speed.low > 1 else log(speed.high)


def compare_runs(
    a: World, b: World, findings_a: Sequence[Finding] = (), findings_b: Sequence[Finding] = ()
) -> Comparison:
    """Compare two runs, each with at least EXCLUDED_FIRST_STEPS + MIN_COMPARED_STEPS steps."""
    one, other = side(a), side(b)
    unit, work = _work(one, other)
    median = resampled_ratio(one.drawn.median, one.drawn.medians, other.drawn.median, other.drawn.medians)
    mean = resampled_ratio(one.drawn.mean, one.drawn.means, other.drawn.mean, other.drawn.means)
    gone, new, kept = _changes(findings_a, findings_b)
    return Comparison(
        one, other, unit, median.times(work), mean.times(work), _losses(a, b, one, other), gone, new, kept
    )


def side(world: World) -> Side:
    """Return a summary of the steps of a run that are compared."""
    lengths = world.step_ms
    begin = max(0, len(world) - MOST_STEPS)
    begin = max(begin, EXCLUDED_FIRST_STEPS)
    begin += first_settled_step(lengths[begin:])
    part, lengths = world.steps_between(begin, len(world)), np.maximum(lengths[begin:], 1e-3)
    all_ms = np.concatenate([part.phases_ms, part.wait_ms[..., None], part.transfer_ms[..., None]], axis=2)
    last = np.where(part.critical >= 0, part.critical, part.own_ms.argmax(axis=1))
    has_waited = bool((part.critical >= 0).any())
    half = len(part) // 2
    return Side(
        window=(int(part.step[0]), int(part.step[-1])),
        steps=len(part),
        left_out=begin,
        ranks=len(part.ranks),
        step_ms_p50=float(np.median(lengths)),
        step_ms_mean=float(lengths.mean()),
        halves_ms=(float(np.median(lengths[:half])), float(np.median(lengths[half:]))),
        work={name: float(getattr(part, name).sum(axis=1).mean()) for name in ("tokens", "samples")},
        phases_ms=all_ms.mean(axis=(0, 1)),
        path_ms=all_ms[np.arange(len(part)), last].mean(axis=0),
        critical_rank=part.ranks[int(part.critical_share.argmax())] if has_waited else None,
        critical_share=float(part.critical_share.max()) if has_waited else None,
        drawn=resampled(lengths),
    )


def median_interval(world: World) -> tuple[float, float]:
    """Return the 95% interval in ms of a run's median step, over its last steps after it has settled."""
    lengths = np.maximum(world.step_ms[max(EXCLUDED_FIRST_STEPS, len(world) - MOST_INTERVAL_STEPS) :], 1e-3)
    tail = (1 - INTERVAL_SHARE) / 2
    low, high = np.quantile(resampled(lengths[first_settled_step(lengths) :]).medians, [tail, 1 - tail])
    return float(low), float(high)


def first_settled_step(lengths: Floats) -> int:
    """Return the index of the first step after a beginning that differs from the rest.

    The beginning is at most half of the steps, and MIN_COMPARED_STEPS are left.

    White's MSER-5 rule (1997) considers all beginnings. It leaves out the beginning with which the standard error of
    the rest is smallest. Here the rule uses medians of five steps, and applies only if it at least halves the squared
    error. A change of the level in the first half (a fault that began or ended there) also counts as a beginning.
    """
    batches = len(lengths) // _BATCH_STEPS
    most = min(batches // 2, (len(lengths) - MIN_COMPARED_STEPS) // _BATCH_STEPS)
    if most < 1:
        return 0
    medians = np.median(lengths[: batches * _BATCH_STEPS].reshape(batches, _BATCH_STEPS), axis=1)[::-1]
    medians = medians - medians.mean()
    left = np.arange(1, batches + 1)
    spread = np.cumsum(medians**2) / left - (np.cumsum(medians) / left) ** 2
    errors = (spread / left)[::-1][: most + 1]
    best = int(errors.argmin())
    return best * _BATCH_STEPS if errors[best] <= errors[0] / 2 else 0


def _work(a: Side, b: Side) -> tuple[str, float]:
    """Return the unit of a step's work, and B's work per step as a multiple of A's."""
    both = [(unit, b.work[unit] / a.work[unit]) for unit in a.work if a.work[unit] > 0 and b.work[unit] > 0]
    return both[0] if both and abs(both[0][1] - 1) > RUN_DIFFERENCE.enter else ("steps", 1.0)


def _changes(
    before: Sequence[Finding], now: Sequence[Finding]
) -> tuple[list[Finding], list[Finding], list[tuple[Finding, Finding]]]:
    """Return findings only in `before`, only in `now`, and in both, costliest first. Ignore severity "info"."""
    was, there = _by_subject(before), _by_subject(now)
    gone = [finding for key, finding in was.items() if key not in there]
    new = [finding for key, finding in there.items() if key not in was]
    kept = [(finding, there[key]) for key, finding in was.items() if key in there]
    return sorted(gone, key=_cost), sorted(new, key=_cost), sorted(kept, key=lambda pair: _cost(pair[1]))


def _by_subject(findings: Sequence[Finding]) -> dict[Hashable, Finding]:
    """Return findings by their subject: a kind of problem of the world, or of one rank and phase."""
    return {kind_of(f).difference(f): f for f in reversed(findings) if f.severity != "info"}


def _cost(finding: Finding) -> float:
    return -(finding.cost_ms or 0.0)


def _losses(a: World, b: World, one: Side, other: Side) -> Losses | None:
    """Compare losses; return None if one run has none, or if the runs have no stretch in common."""
    samples_a, samples_b = one.work["samples"], other.work["samples"]
    by_samples = samples_a > 0 and samples_b > 0 and abs(samples_b / samples_a - 1) > RUN_DIFFERENCE.enter
    steps_a, loss_a = _loss_by_step(a)
    steps_b, loss_b = _loss_by_step(b)
    if not len(steps_a) or not len(steps_b):
        return None
    per_a, per_b = (samples_a, samples_b) if by_samples else (1.0, 1.0)
    end = min(steps_a[-1] * per_a, steps_b[-1] * per_b)
    upto_a, upto_b = (int(np.searchsorted(s, end / p + 1e-6)) for s, p in ((steps_a, per_a), (steps_b, per_b)))
    if min(upto_a, upto_b) < 1:
        return None
    begin = min(
        steps_a[max(0, upto_a - COMPARED_LOSS_STEPS)] * per_a, steps_b[max(0, upto_b - COMPARED_LOSS_STEPS)] * per_b
    )
    last_a = loss_a[:upto_a][steps_a[:upto_a] * per_a >= begin - 1e-6]
    last_b = loss_b[:upto_b][steps_b[:upto_b] * per_b >= begin - 1e-6]
    if min(len(last_a), len(last_b)) < 2:
        return None
    error = float(np.sqrt(last_a.var(ddof=1) / len(last_a) + last_b.var(ddof=1) / len(last_b)))
    mean_a, mean_b = float(last_a.mean()), float(last_b.mean())
    before, now = (mean if isfinite(mean) else inf for mean in (mean_a, mean_b))
    over = now - before
    bound = 0.0 if isinf(over) else max(3 * error, RUN_DIFFERENCE.enter * abs(mean_a))
    return Losses(
        int(steps_a[upto_a - 1]),
        int(steps_b[upto_b - 1]),
        mean_a,
        mean_b,
        "higher" if over > bound else "lower" if over < -bound else "alike",
        same="samples" if by_samples else "step",
    )


def _loss_by_step(world: World) -> tuple[Floats, Floats]:
    """Return the steps in which any rank has a loss, and the mean loss over the ranks with a loss."""
    ranks_with_loss = world.has_loss.sum(axis=1)
    rows = ranks_with_loss > 0
    sums = np.where(world.has_loss, world.loss, 0.0).sum(axis=1)
    return world.step[rows].astype(np.float64), sums[rows] / ranks_with_loss[rows]
