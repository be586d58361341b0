"""Noise as real machines have it, to be multiplied with or added to own times."""

import numpy as np

from tests.worlds import OWN, own_times

STEP_MS = sum(OWN) + 6


def wandering(steps, ranks, *, share, lasts, seed):
    """[S, R, 1] factors around 1 that stay alike for `lasts` steps (a first-order autoregression)."""
    rng = np.random.default_rng(seed)
    keep = np.exp(-1 / lasts)
    values = np.empty((steps, ranks))
    values[0] = rng.normal(size=ranks)
    for step in range(1, steps):
        values[step] = keep * values[step - 1] + np.sqrt(1 - keep**2) * rng.normal(size=ranks)
    return np.maximum(0.5, 1 + share * values)[..., None]


def spikes(steps, ranks, *, often, ms, seed):
    """[S, R] ms of single long steps, as a collector of garbage makes them."""
    rng = np.random.default_rng(seed)
    return (rng.random((steps, ranks)) < often) * rng.exponential(ms, (steps, ranks))


def heavy_tails(steps, ranks, *, seed):
    """[S, R] ms with Pareto tails, as a scheduler's hiccups."""
    return np.minimum(300.0, np.random.default_rng(seed).pareto(1.5, (steps, ranks)))


def crowded(own, *, seed):
    """[S, R, 5] ms: each phase stretched, and some by the scheduler's slices, where other programs want the cores."""
    rng = np.random.default_rng(seed)
    return own + rng.gamma(1.0, own) + (rng.random(own.shape) < 0.3) * rng.gamma(2.0, 6.0, own.shape)


def bursts(steps, ranks, *, share, lasts, seed):
    """[S, R, 1] factors from 1 on: skewed, and high for some steps in a row, as where other programs share cores."""
    rng = np.random.default_rng(seed)
    crowd = wandering(steps, ranks, share=1.0, lasts=lasts, seed=seed)[..., 0] - 1
    return (1 + share * np.maximum(0.0, crowd) * rng.exponential(1.0, (steps, ranks)))[..., None]


def clean(kind, steps, ranks, seed):
    """[S, R, 5] ms of ranks of which nobody is slow, with noise of a kind."""
    own = own_times(steps, ranks, noise=0.03, seed=seed)
    if kind == "garbage":
        own[..., 2] += spikes(steps, ranks, often=0.03, ms=60, seed=seed)
    if kind == "hiccups":
        own[..., 2] += heavy_tails(steps, ranks, seed=seed)
    return own
