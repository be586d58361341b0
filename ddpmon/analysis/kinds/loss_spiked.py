"""The mean loss jumped to twice what it was and far beyond what it strays, for more than a step or two.

A warning while it is up. Which rank was first: the one whose own loss left its own usual before the mean did.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddpmon.analysis.kinds.kind import Kind, Moment, Words
from ddpmon.analysis.statistics.arrays import Floats
from ddpmon.analysis.statistics.excess import SMOOTHED, steady
from ddpmon.analysis.threshold import Threshold
from ddpmon.analysis.words import fitting
from ddpmon.messages import Finding

TIMES = Threshold(
    2.0,
    of="times what the mean loss was before it jumped, or that of other ranks which a rank's loss is",
    why="A judgement: a loss that doubles has unlearned something; back within 30% of what it was it has come back.",
    stay=1.3,
)
OF_DEVIATION = 1.4826
"""Times a median deviation that a standard deviation is, of normal values."""
JUMP = Threshold(
    12.0,
    of="times what a loss strays by which it jumps, or by which the mean of a rank differs from the others'",
    why="A judgement, far beyond chance: losses have heavy tails, and of few blocks an error is hardly known.",
    keeps=0.7,
)
BEFORE = 30
"""Steps that tell what the loss was before it jumped: a median of fewer follows single batches."""
LATELY = 10
"""The last steps, whose median tells whether the loss has come back: one good batch does not."""
FIRST = 20
"""Steps before the jump of the mean in which one rank may have begun it: a bad batch shows in the others' later."""


def detect(moment: Moment) -> Iterator[Finding]:
    """The last rise in the window."""
    world = moment.world
    if not world.has_loss.all() or not np.isfinite(world.loss).all():
        return
    smooth = steady(world.loss.mean(axis=1))  # one odd batch, or two, is no matter
    at = _jump(smooth)
    if at is None:
        return
    was, stray = _usual(smooth, at)
    up = smooth[at:]
    usual = was + (TIMES.stay - 1) * abs(was) + stray
    calm = np.flatnonzero(up <= usual)
    over = bool(len(calm)) and float(np.median(smooth[-LATELY:])) <= usual
    # The running median rises two steps after the loss does.
    at += SMOOTHED // 2
    first, when = _first(world.loss, at, len(world.ranks))
    until = int(world.step[min(len(world) - 1, at + int(calm[0]))]) if over else None
    highest, step = float(up.max()), int(world.step[when])
    who, ranks = "on all ranks at once", []
    advice = (
        "All ranks at once: it is the weights. A learning rate that is too high there, gradients without clipping,"
        " or a batch some steps before; compare with the learning rate in Ranks."
    )
    if first is not None:
        ranks, who = [world.ranks[first]], f"first on rank {world.ranks[first]}"
        advice = f"Look at what rank {ranks[0]} read at step {step:,}: its loss rose before the others'."
    yield KIND.finding(
        "info" if over else "warn",
        Words(fitting(f"loss rose from {was:.4g} to {highest:.4g} at step {step:,}, {who}"), advice),
        ranks,
        evidence={"loss_before": was, "highest": highest},
        since_step=step,
        until_step=until,
    )


def _usual(smooth: Floats, at: int) -> tuple[float, float]:
    """Median of what was before, and how far the values stray from it."""
    before = smooth[max(0, at - BEFORE) : at]
    was = float(np.median(before))
    return was, OF_DEVIATION * float(np.median(np.abs(before - was)))


def _jump(smooth: Floats) -> int | None:
    """Index of the last jump upwards, in its first step: higher than all of the steps before that tell the usual."""
    now = smooth[BEFORE:]
    highest = np.lib.stride_tricks.sliding_window_view(smooth, BEFORE)[:-1].max(axis=1)
    last = None
    for at in (np.flatnonzero((now > highest) & (now > TIMES.enter * np.abs(smooth[:-BEFORE]))) + BEFORE).tolist():
        was, stray = _usual(smooth, at)
        if smooth[at] > was + max(JUMP.enter * stray, (TIMES.enter - 1) * abs(was)) and (
            last is None or at - last > BEFORE
        ):
            last = at
    return last


def _first(loss: Floats, at: int, ranks: int) -> tuple[int | None, int]:
    """Column of the rank whose loss rose first, None if all did together; and at which index."""
    begin = max(0, at - FIRST)
    before = loss[max(0, begin - BEFORE) : begin] if begin >= LATELY else loss[:at]
    was = np.median(before, axis=0)
    stray = OF_DEVIATION * np.median(np.abs(before - was), axis=0)
    high = loss[begin : at + 1] > was + np.maximum(JUMP.enter * stray, (TIMES.enter - 1) * np.abs(was))
    rows = np.flatnonzero(high.any(axis=1))
    if not len(rows):
        return None, at
    row = int(rows[0])
    columns = np.flatnonzero(high[row])
    if ranks > 1 and len(columns) == 1:
        return int(columns[0]), begin + row
    return None, begin + row


KIND = Kind("loss_spiked", detect=detect, fewest_steps=2 * BEFORE, by_cost=True)
