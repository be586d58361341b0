"""Losses that go wrong: a rank's far from the others', or all of them jumping up, and where that began."""

from __future__ import annotations

import numpy as np

from ddpmon.analysis.arrays import Floats
from ddpmon.analysis.excess import SMOOTHED, steady
from ddpmon.analysis.verdict import rank_list
from ddpmon.analysis.words import fitting
from ddpmon.analysis.world import World
from ddpmon.messages import Finding

LOSS_TIMES = 2.0
SURE = 8.0
ALIKE = 10
"""Steps whose losses are taken as one, because neighbours are alike."""
STAYS = 0.7
"""Share of its threshold that keeps a finding."""

FEWEST_STEPS = 60
BEFORE = 30
"""Steps that tell what the loss was before it jumped."""
JUMP = 12.0
"""Times what it strays."""
FIRST = 20
"""Steps before the jump of the mean in which one rank may have begun it."""
BACK = 1.3
"""Times what it was: the loss has come back."""


def loss_diverged(world: World, known: Finding | None) -> Finding | None:
    """A rank's loss is far from the others' for the whole window."""
    if len(world.ranks) < 2 or not world.has_loss.all() or not np.isfinite(world.loss).all():
        return None
    begins = np.arange(len(world) // ALIKE) * ALIKE
    lengths = np.diff(begins, append=len(world))
    blocks = np.add.reduceat(world.loss, begins, axis=0) / lengths[:, None]
    means = blocks.mean(axis=0)
    error = float(np.median(blocks.std(axis=0, ddof=1))) / np.sqrt(len(blocks))
    scale = STAYS if known else 1.0
    middle = float(np.median(means))
    if len(means) == 2:
        middle = float(means.min())
    away = means - middle
    far = (np.abs(away) > scale * SURE * error) & (np.abs(away) > scale * (LOSS_TIMES - 1) * abs(middle))
    far &= np.abs(away) > 1e-6
    if not far.any() or far.sum() > len(means) / 2:
        return None
    ranks = [world.ranks[column] for column in np.flatnonzero(far).tolist()]
    value = float(means[far][np.abs(away[far]).argmax()])
    many = len(ranks) > 1
    names = rank_list(ranks, len(world.ranks))
    return Finding(
        "loss_diverged",
        "warn",
        fitting(
            f"rank{'s' if many else ''} {names}: loss {value:.4g}, the others' {middle:.4g}", ", for the whole window"
        ),
        ranks,
        None,
        known.since_step if known and known.since_step is not None else int(world.step[0]),
        evidence={"loss": value, "median_loss": middle, "error": error},
        advice=(
            "Replicas have the same weights, so it is the data or the loss: look at which samples and labels"
            f" rank {names} gets, and at how its loss is averaged."
        ),
    )


def loss_spiked(world: World) -> Finding | None:
    """The mean loss jumped to twice what it was and far beyond what it strays, for more than a step or two.

    A warning while it is up. Which rank was first: the one whose own loss left its own usual before the mean did.
    """
    if len(world) < FEWEST_STEPS or not world.has_loss.all() or not np.isfinite(world.loss).all():
        return None
    mean = world.loss.mean(axis=1)
    smooth = steady(mean)  # one odd batch, or two, is no matter
    at = _jump(smooth)
    if at is None:
        return None
    was, stray = _usual(smooth, at)
    up = smooth[at:]
    top = float(up.max())
    calm = np.flatnonzero(up <= BACK * was + stray)
    over = bool(len(calm)) and float(np.median(smooth[-ALIKE:])) <= BACK * was + stray
    # The running median rises two steps after the loss does.
    at += SMOOTHED // 2
    first, when = _first(world.loss, at, len(world.ranks))
    step = int(world.step[when])
    who = "on all ranks at once" if first is None else f"first on rank {world.ranks[first]}"
    return Finding(
        "loss_spiked",
        "info" if over else "warn",
        fitting(f"loss rose from {was:.4g} to {top:.4g} at step {step:,}, {who}"),
        [] if first is None else [world.ranks[first]],
        None,
        step,
        int(world.step[min(len(world) - 1, at + int(calm[0]))]) if over else None,
        evidence={"loss_before": was, "highest": top},
        advice=(
            "All ranks at once: it is the weights. A learning rate that is too high there, gradients without clipping,"
            " or a batch some steps before; compare with the learning rate in Ranks."
            if first is None
            else f"Look at what rank {world.ranks[first]} read at step {step:,}: its loss rose before the others'."
        ),
    )


def _usual(smooth: Floats, at: int) -> tuple[float, float]:
    """Median of what was before, and how far the values stray from it."""
    before = smooth[max(0, at - BEFORE) : at]
    was = float(np.median(before))
    return was, 1.4826 * float(np.median(np.abs(before - was)))


def _jump(smooth: Floats) -> int | None:
    """Index of the last jump upwards, in its first step: higher than all of the steps before that tell the usual."""
    now = smooth[BEFORE:]
    highest = np.lib.stride_tricks.sliding_window_view(smooth, BEFORE)[:-1].max(axis=1)
    found = None
    for at in (np.flatnonzero((now > highest) & (now > LOSS_TIMES * np.abs(smooth[:-BEFORE]))) + BEFORE).tolist():
        was, stray = _usual(smooth, at)
        if smooth[at] > was + max(JUMP * stray, (LOSS_TIMES - 1) * abs(was)) and (found is None or at - found > BEFORE):
            found = at
    return found


def _first(loss: Floats, at: int, ranks: int) -> tuple[int | None, int]:
    """Column of the rank whose loss rose first, None if all did together; and at which index."""
    begin = max(0, at - FIRST)
    before = loss[max(0, begin - BEFORE) : begin] if begin >= ALIKE else loss[:at]
    was = np.median(before, axis=0)
    stray = 1.4826 * np.median(np.abs(before - was), axis=0)
    high = loss[begin : at + 1] > was + np.maximum(JUMP * stray, (LOSS_TIMES - 1) * np.abs(was))
    rows = np.flatnonzero(high.any(axis=1))
    if not len(rows):
        return None, at
    row = int(rows[0])
    columns = np.flatnonzero(high[row])
    if ranks > 1 and len(columns) == 1:
        return int(columns[0]), begin + row
    return None, begin + row
