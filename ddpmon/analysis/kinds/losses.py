"""Findings about wrong losses: NaN or infinite, suddenly high, or unlike those of other ranks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddpmon.analysis.kinds.kind import Kind, Moment
from ddpmon.analysis.statistics.arrays import SIGMAS_PER_MAD, Floats, column_medians, series_median
from ddpmon.analysis.statistics.excess import SMOOTHED, running_median
from ddpmon.analysis.steps.window import MIN_WINDOW_STEPS
from ddpmon.analysis.threshold import Threshold
from ddpmon.messages import Finding

LOSS_JUMP_RATIO = Threshold(
    2.0,
    of="mean loss after a jump divided by the mean loss before; for one rank, its mean loss divided by that "
    "of the other ranks",
    why="A judgement call: if the loss of a model doubles, the model has lost part of what it learnt. If the "
    "loss returns to within 30% of its earlier value, it has recovered.",
    stay=1.3,
)
JUMP = Threshold(
    12.0,
    of="size of a jump, in standard deviations of the loss; for one rank, the distance of its mean loss from "
    "the others, in standard errors",
    why="A judgement call: the value is far higher than normally distributed noise requires. Losses have heavy "
    "tails, and a few blocks of steps give only a rough standard error.",
    stay=8.4,
)
ROUNDING = 1e-6
"""Maximum difference between losses that may be due to rounding. float32 resolves values near 1 to 1e-7."""
PRIOR_LOSS_STEPS = 30
"""Number of steps whose median is the loss before a jump. A median of fewer steps follows single batches."""
LATELY = 10
"""Number of latest steps whose median shows whether the loss is back to normal. One good batch is no proof."""
STEPS_BEFORE_JUMP = 20
"""Number of steps before the jump of the mean loss in which the loss of the first rank may have risen."""
LOSS_BLOCK_STEPS = 10
"""Number of steps whose losses are averaged to one value, because the losses of neighbouring steps are correlated. The
window has at least four such blocks."""


@Kind(
    "critical",
    "loss is {value} on {who} since step {since:,}",
    "{look}",
    remedy="Look at the rank and the step at which the problem began: the batch, a learning rate that is too high, or"
    " half precision.",
)
def loss_not_finite(moment: Moment) -> Iterator[Finding]:
    """The loss of a rank became NaN or infinite. The finding names the first ranks and the first step.

    Gradients that are not finite reach every rank in that step's all-reduce. The losses of the other ranks become NaN
    or infinite one step later.
    """
    losses = sorted(moment.evidence.bad_losses, key=lambda loss: loss.rank)
    if not losses:
        return
    first = min(loss.step for loss in losses)
    began = [loss for loss in losses if loss.step == first]
    look = (
        "Stop the run, and look at the batch and the learning rate of that step. All-reduce spreads gradients that are"
        " not finite to every rank."
    )
    if len(began) == moment.evidence.world_size > 1:
        look = (
            "All ranks are affected: look at the learning rate, the precision (fp16 without loss scaling) and the"
            " model."
        )
    value = " or ".join(sorted({str(loss.value) for loss in began}))
    facts = {"value": value, "first_steps": {str(loss.rank): loss.step for loss in losses}}
    ranks, beside = [loss.rank for loss in began], {"since": first, "look": look}
    yield moment.finding(facts, ranks, beside=beside, since_step=first)


@Kind(
    "warn",
    "{who}:| loss {loss:.4g}, the others' {median_loss:.4g}|, for the whole window",
    "All replicas have the same weights, so the cause is in the data or in the loss. Look at the samples and labels"
    " that {who} get{s}, and at how the script averages {their} loss.",
    gone="losses of all ranks are alike again",
    fewest_steps=MIN_WINDOW_STEPS,
    by_cost=True,
)
def loss_diverged(moment: Moment) -> Iterator[Finding]:
    """A rank's loss is far from the losses of the other ranks during the whole window.

    At most half of all ranks can have this finding. The mean loss of the rank must be at least twice that of the
    others, and differ from it by many standard errors. Replicas have the same weights, and random shards of the data do
    not differ that much.
    """
    world, stays = moment.world, moment.previous_finding is not None
    if len(world.ranks) < 2 or not world.has_finite_losses:
        return
    blocks = world.loss[len(world) % LOSS_BLOCK_STEPS :].reshape(-1, LOSS_BLOCK_STEPS, len(world.ranks)).mean(axis=1)
    means = blocks.mean(axis=0)
    error = series_median(blocks.std(axis=0, ddof=1)) / len(blocks) ** 0.5
    middle = float(means.min()) if len(means) == 2 else series_median(means)
    away = np.abs(means - middle)
    far = (
        (away > JUMP.number_to_reach(stays) * error)
        & (away > (LOSS_JUMP_RATIO.number_to_reach(stays) - 1) * abs(middle))
        & (away > ROUNDING)
    )
    if far.any() and far.sum() <= len(means) / 2:
        ranks, loss = [world.ranks[column] for column in np.flatnonzero(far)], float(means[far][away[far].argmax()])
        facts = {"loss": loss, "median_loss": middle, "error": error}
        yield moment.finding(facts, ranks, since_step=moment.first_step(world))


@Kind(
    "warn",
    "|loss rose from {loss_before:.4g} to {highest:.4g} at step {step:,}, {where}",
    "{look}",
    fewest_steps=2 * PRIOR_LOSS_STEPS,
    by_cost=True,
    remedy="Look at the batches of that step. A lower learning rate or gradient clipping makes such jumps rarer.",
)
def loss_spiked(moment: Moment) -> Iterator[Finding]:
    """The mean loss jumped to twice its value, far beyond its usual spread, for more than a step or two.

    The finding is a warning while the loss is high. It names the first rank whose own loss rose before the mean did.
    """
    world = moment.world
    if not world.has_finite_losses:
        return
    smooth = running_median(world.loss.mean(axis=1))  # A running median ignores one or two unusual batches.
    at = _last_jump(smooth)
    if at is None:
        return
    was, stray = _usual(smooth, at)
    up = smooth[at:]
    usual = was + (LOSS_JUMP_RATIO.stay - 1) * abs(was) + stray
    calm = np.flatnonzero(up <= usual)
    ended = bool(len(calm)) and series_median(smooth[-LATELY:]) <= usual
    # The running median rises two steps after the loss does.
    at += SMOOTHED // 2
    first, when = _first_rank(world.loss, at)
    step, ranks = int(world.step[when]), [] if first is None else [world.ranks[first]]
    look = (
        "The loss rose on all ranks at once, so the cause is in the weights. Look for a learning rate that is too high,"
        " gradients without clipping, or a bad batch some steps before. Ranks shows the learning rate."
    )
    if ranks:
        look = f"Look at the data that rank {ranks[0]} read at step {step:,}, because its loss rose first."
    yield moment.finding(
        {"loss_before": was, "highest": float(up.max())},
        ranks,
        severity="info" if ended else "warn",
        beside={"step": step, "where": f"first on rank {ranks[0]}" if ranks else "on all ranks at once", "look": look},
        since_step=step,
        until_step=int(world.step[min(len(world) - 1, at + int(calm[0]))]) if ended else None,
    )


def _usual(smooth: Floats, at: int) -> tuple[float, float]:
    """Return the median loss before an index, and the standard deviation of the values around it."""
    before = smooth[max(0, at - PRIOR_LOSS_STEPS) : at]
    was = series_median(before)
    return was, SIGMAS_PER_MAD * series_median(np.abs(before - was))


def _last_jump(smooth: Floats) -> int | None:
    """Return the first index of the last upward jump over the PRIOR_LOSS_STEPS losses before it, or None."""
    now = smooth[PRIOR_LOSS_STEPS:]
    highest = np.lib.stride_tricks.sliding_window_view(smooth, PRIOR_LOSS_STEPS)[:-1].max(axis=1)
    last = None
    for at in (
        np.flatnonzero((now > highest) & (now > LOSS_JUMP_RATIO.enter * np.abs(smooth[:-PRIOR_LOSS_STEPS])))
        + PRIOR_LOSS_STEPS
    ).tolist():
        is_new = last is None or at - last > PRIOR_LOSS_STEPS
        if is_new and smooth[at] > _high(*_usual(smooth, at)):
            last = at
    return last


def _high(was: Floats | float, stray: Floats | float) -> Floats:
    """Return the minimum loss that counts as a jump."""
    high: Floats = was + np.maximum(np.maximum(JUMP.enter * stray, (LOSS_JUMP_RATIO.enter - 1) * np.abs(was)), ROUNDING)
    return high


def _first_rank(loss: Floats, at: int) -> tuple[int | None, int]:
    """Return the column of the rank whose loss rose first (None if several did), and the index of the rise."""
    begin = max(0, at - STEPS_BEFORE_JUMP)
    before = loss[max(0, begin - PRIOR_LOSS_STEPS) : begin] if begin >= LATELY else loss[:at]
    was = column_medians(before)
    high = loss[begin : at + 1] > _high(was, SIGMAS_PER_MAD * column_medians(np.abs(before - was)))
    rows = np.flatnonzero(high.any(axis=1))
    if not len(rows):
        return None, at
    columns = np.flatnonzero(high[rows[0]])
    return int(columns[0]) if loss.shape[1] > 1 and len(columns) == 1 else None, begin + int(rows[0])
