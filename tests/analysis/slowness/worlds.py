"""Made-up steps of several ranks whose noise and slowdown are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.slowness.detector import Detector, Signal
from ddpmon.analysis.steps.world import World

STEP_MS = 46.0
SHARES = np.array([0.05, 0.25, 0.40, 0.05, 0.05])
"""The share of each phase in a step; the transfer is the rest."""

Floats = NDArray[np.float64]


def wandering(rng: np.random.Generator, steps: int, columns: int, memory: float) -> Floats:
    """[S, columns] Normal values with a first-order autoregression; memory: sum of its correlations in steps."""
    keep = (memory - 1) / (memory + 1)
    values = rng.standard_normal((steps, columns))
    values[1:] *= np.sqrt(1 - keep**2)
    for step in range(1, steps):
        values[step] += keep * values[step - 1]
    return values


def phases_of(
    seed: int, steps: int, ranks: int = 8, white: float = 0.05, wander: float = 0.0, memory: float = 33.0
) -> Floats:
    """[S, R, 5] Phases in ms. white: noise of a phase, as its share; wander: noise that the phases of a rank share."""
    rng = np.random.default_rng(seed)
    phases = SHARES * STEP_MS * (1 + white * rng.standard_normal((steps, ranks, 5)))
    if wander:
        phases *= 1 + wander * wandering(rng, steps, ranks, memory)[..., None]
    return np.maximum(phases, 0.01)


def world_of(
    phases_ms: Floats, step: Sequence[int] | None = None, samples: NDArray[np.int64] | None = None, seed: int = 0
) -> World:
    """The steps of these phases: all ranks wait for the slowest, and transfer for a fifth of a step."""
    steps, ranks, _ = phases_ms.shape
    own = phases_ms.sum(axis=2)
    noise = np.random.default_rng(seed).standard_normal((steps, 1))
    transfer = np.broadcast_to(0.2 * STEP_MS * (1 + 0.03 * noise), own.shape)
    wait = own.max(axis=1, keepdims=True) - own
    length = own + wait + transfer
    counts, none = np.zeros((steps, ranks), np.int64), np.zeros((steps, ranks))
    return World(
        ranks=tuple(range(ranks)),
        step=np.arange(steps) if step is None else np.array(step),
        end_us=np.cumsum(length[:, 0] * 1e3).astype(np.int64),
        length_ms=length,
        phases_ms=phases_ms,
        own_ms=own,
        wait_ms=wait,
        transfer_ms=transfer,
        exposed_ms=wait + transfer,
        exposed_wait_ms=wait,
        late_ms=none,
        critical=wait.argmin(axis=1),
        gradient_bytes=counts,
        samples=counts if samples is None else samples,
        loss=none,
        has_loss=none > 0,
        tokens=counts,
        gc_ms=none,
        learning_rate=none,
    )


def signals_of(world: World, pieces: int = 11) -> dict[Signal, int]:
    """Return each signal that was found, and the steps after which it was; the stream comes in pieces of so many."""
    detector, found = Detector(world.ranks), {}
    for first in range(0, len(world), pieces):
        detector.append(world.between(first, first + pieces))
        for signal in detector.signals():
            found.setdefault(signal, first + pieces)
    return found
