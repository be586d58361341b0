"""Own times of synthetic ranks without any fault: pure noises, mixtures, and work that differs on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from play import Pause

from ddpmon.messages import EVALUATION, OWN_PHASES

Floats = NDArray[np.float64]
Rng = np.random.Generator
SHARES = np.array([0.05, 0.25, 0.40, 0.05, 0.05])
"""Shares of a step that data, forward, backward, optimizer and other take; the rest is transfer."""
TRANSFER_SHARE = 0.2
TRANSFER_NOISE = 0.03
LEAST = 0.3
"""Smallest duration of a phase, as a share of its usual time."""
HOST_RANKS = 8
BATCH = 64
FORWARD, BACKWARD, OTHER = (OWN_PHASES.index(phase) for phase in ("forward", "backward", "other"))


@dataclass
class Work:
    """The work of ranks without a fault. `options` are arguments of `play` besides own and transfer times."""

    own_ms: Floats
    """[S, R, 5] Own time of each phase."""
    transfer_ms: Floats
    """Transfer times: [S], or [S, R] if ranks leave a synchronisation at different times."""
    options: dict[str, Any] = field(default_factory=dict)


Shape = tuple[int, int]
"""Number of steps and of ranks."""
Factor = Callable[[Rng, Shape], Floats]
"""A function that returns factors for own times: [S, R], or [S, R, 5] if each phase has its own."""


@dataclass(frozen=True)
class Noise:
    """Noise in own times: the product of `factors`, relative to each phase's usual time, plus the delays that `add`
    adds."""

    factors: tuple[Factor, ...]
    add: Callable[[Rng, Floats], None] | None = None
    """Adds to own times [S, R, 5] in place, in units of a step."""
    options: Callable[[Rng, Floats], dict[str, Any]] | None = None
    """Returns arguments of `play`; it may change own times in place as `add` does."""
    takes_turns: bool = False
    """True if one rank after another takes longer for a while, so that a finding about ranks taking turns is right."""

    def work(self, rng: Rng, step_ms: float, shape: Shape) -> Work:
        """Draw a run."""
        own = np.ones((*shape, 5)) * SHARES
        for factor in self.factors:
            values = factor(rng, shape)
            own *= values if values.ndim == 3 else values[..., None]
        if self.add is not None:
            self.add(rng, own)
        options = self.options(rng, own) if self.options is not None else {}
        own = np.maximum(own, LEAST * SHARES) * step_ms
        transfer = TRANSFER_SHARE * step_ms * (1 + TRANSFER_NOISE * np.abs(rng.standard_normal(shape[0])))
        return Work(own, transfer, {"samples": BATCH, **options})


def ranks_of_host(ranks: int) -> int:
    """Return how many ranks share a host if there are at least two hosts."""
    return min(HOST_RANKS, max(1, ranks // 2))


def autoregression(rng: Rng, memory_steps: float, steps: int, columns: int) -> Floats:
    """Return normal values [S, columns] whose correlation falls to 1/e within `memory_steps`."""
    keep = np.exp(-1 / memory_steps)
    values = rng.standard_normal((steps, columns))
    values[1:] *= np.sqrt(1 - keep**2)
    for step in range(1, steps):
        values[step] += keep * values[step - 1]
    return values


def white(sigma: float) -> Factor:
    """Return independent noise for each phase, rank and step."""
    return lambda rng, shape: 1 + sigma * rng.standard_normal((*shape, 5))


def white_by_rank(sigma: float) -> Factor:
    """Return independent noise for each rank and step, the same in all phases."""
    return lambda rng, shape: 1 + sigma * rng.standard_normal(shape)


def wandering(sigma: float, memory_steps: float) -> Factor:
    """Return noise in which each rank stays fast or slow for `memory_steps`."""
    return lambda rng, shape: 1 + sigma * autoregression(rng, memory_steps, *shape)


def shared(sigma: float, memory_steps: float) -> Factor:
    """Return noise that all ranks share, and that stays alike for `memory_steps`."""
    return lambda rng, shape: np.repeat(1 + sigma * autoregression(rng, memory_steps, shape[0], 1), shape[1], axis=1)


def by_host(sigma: float, memory_steps: float) -> Factor:
    """Return noise that the ranks of a host share, and that stays alike for `memory_steps`."""

    def factor(rng: Rng, shape: Shape) -> Floats:
        size = ranks_of_host(shape[1])
        values = autoregression(rng, memory_steps, shape[0], -(-shape[1] // size))
        return 1 + sigma * np.repeat(values, size, axis=1)[:, : shape[1]]

    return factor


def differing(sigma: float) -> Factor:
    """Return factors by which ranks differ from one another for the whole run."""
    return lambda rng, shape: np.tile(1 + sigma * np.clip(rng.standard_normal(shape[1]), -2, 2), (shape[0], 1))


def warm_up(times: float) -> Factor:
    """Return factors that make the first steps longer, on each rank by a slightly different amount."""

    def factor(rng: Rng, shape: Shape) -> Floats:
        longer = times * np.exp(-np.arange(shape[0])[:, None] / 3.0) * (1 + 0.2 * rng.standard_normal(shape))
        return 1 + np.maximum(longer, 0.0)

    return factor


def crowded(size: float, memory_steps: float) -> Factor:
    """Return skewed bursts of some steps, as when programs share cores."""

    def factor(rng: Rng, shape: Shape) -> Floats:
        crowd = np.maximum(0.0, autoregression(rng, memory_steps, *shape))
        return 1 + size * crowd * rng.exponential(1.0, shape)

    return factor


def changing_levels(levels: tuple[float, ...]) -> Factor:
    """Return white noise whose size changes for all ranks during the run."""

    def factor(rng: Rng, shape: Shape) -> Floats:
        sizes = np.array(levels)[np.arange(shape[0]) * len(levels) // shape[0]]
        return 1 + sizes[:, None, None] * rng.standard_normal((*shape, 5))

    return factor


def stalls(share: float) -> Callable[[Rng, Floats], None]:
    """Add a stall of about the length of a step to this share of each rank's steps."""

    def add(rng: Rng, own: Floats) -> None:
        own[..., BACKWARD] += (rng.random(own.shape[:2]) < share) * rng.exponential(1.0, own.shape[:2])

    return add


def _pareto_hiccups(rng: Rng, own: Floats) -> None:
    own[..., BACKWARD] += np.minimum(10.0, 0.03 * rng.pareto(1.5, own.shape[:2]))


def _every_50th_step(rng: Rng, own: Floats) -> None:
    own[::50, :, OTHER] += 0.5 * (1 + 0.1 * rng.standard_normal(own[::50, :, OTHER].shape))


def _moe_bursts(rng: Rng, own: Floats) -> None:
    """Add 30% for 5 to 20 steps when a rank's experts get more tokens; each rank has this in 3% of its steps."""
    steps, ranks, _ = own.shape
    for rank in range(ranks):
        for begin in np.flatnonzero(rng.random(steps) < 0.03 / 12.5).tolist():
            own[begin : begin + int(rng.integers(5, 21)), rank, FORWARD : BACKWARD + 1] *= 1.3


def _garbage(rng: Rng, own: Floats) -> None:
    """Let each rank collect garbage in 3% of its steps, for 1.3 steps, in any phase according to its length."""
    steps, ranks, phases = own.shape
    for step, rank in np.argwhere(rng.random((steps, ranks)) < 0.03).tolist():
        own[step, rank, rng.choice(phases, p=SHARES / SHARES.sum())] += 1.3 * (1 + 0.1 * rng.standard_normal())


def _lengths_of_samples(rng: Rng, own: Floats) -> dict[str, Any]:
    """Give each sample a length of its own; forward and backward take time in proportion to the tokens of a batch."""
    tokens = rng.lognormal(5.0, 0.6, (*own.shape[:2], 16)).sum(axis=2)
    own[..., FORWARD : BACKWARD + 1] *= (tokens / tokens.mean())[..., None]
    return {"samples": 16, "tokens": np.round(tokens).astype(np.int64)}


def _length_buckets(rng: Rng, own: Floats) -> dict[str, Any]:
    """Let all ranks draw batches of similar lengths from one of four buckets in each step."""
    lengths = np.array([128, 256, 384, 512])[rng.integers(0, 4, len(own))]
    tokens = 16 * lengths[:, None] * (1 - 0.1 * rng.random(own.shape[:2]))
    own[..., FORWARD : BACKWARD + 1] *= (tokens / tokens.mean())[..., None]
    return {"samples": 16, "tokens": np.round(tokens).astype(np.int64)}


def _evaluations(_: Rng, own: Floats) -> dict[str, Any]:
    """Let all ranks evaluate every 300 steps."""
    return {"pauses": [Pause(step, 3.0, EVALUATION) for step in range(300, len(own), 300)]}


NOISES: dict[str, Noise] = {
    "independent 5%": Noise((white(0.05),)),
    "independent 15%": Noise((white(0.15),)),
    "independent 30%": Noise((white(0.30),)),
    "wandering 5%": Noise((white(0.01), wandering(0.05, 33)), takes_turns=True),
    "wandering 10%": Noise((white(0.01), wandering(0.10, 33)), takes_turns=True),
    "stalls 0.5%": Noise((white(0.03),), stalls(0.005)),
    "hiccups 3%": Noise((white(0.03),), _pareto_hiccups),
    "garbage 3%": Noise((white(0.05),), _garbage),
    "periodic 50%": Noise((white(0.05),), _every_50th_step),
    "differing 1.5%": Noise((white(0.03), differing(0.015))),
    "warm-up 400%": Noise((white(0.05), warm_up(4.0))),
    "shared 10%": Noise((white(0.05), shared(0.10, 30))),
    "host 5%": Noise((white(0.03), by_host(0.05, 10)), takes_turns=True),
    "busy 30%": Noise((white(0.05), crowded(0.30, 6)), takes_turns=True),
    "15% + wandering 5%": Noise((white(0.15), wandering(0.05, 33)), takes_turns=True),
    "10% + slow wandering 5%": Noise((white(0.10), wandering(0.05, 100)), takes_turns=True),
    "30% + wandering 10%": Noise((white(0.30), wandering(0.10, 33)), takes_turns=True),
    "15% + wandering 5% + stalls": Noise((white(0.15), wandering(0.05, 33)), stalls(0.005), takes_turns=True),
    "15% + wandering 5% + host 5%": Noise(
        (white(0.15), wandering(0.05, 33), by_host(0.05, 10)), stalls(0.005), takes_turns=True
    ),
    "changing level": Noise((changing_levels((0.05, 0.25, 0.05, 0.15)),)),
    "changing level + wandering 5%": Noise((changing_levels((0.03, 0.2, 0.03)), wandering(0.05, 33)), takes_turns=True),
    "lengths of samples": Noise((white(0.03),), options=_lengths_of_samples, takes_turns=True),
    "length buckets": Noise((white(0.03),), options=_length_buckets, takes_turns=True),
    "MoE bursts": Noise((white(0.05),), _moe_bursts, takes_turns=True),
    "evaluations": Noise((white(0.05),), options=_evaluations),
}
"""Noises by name. The first 14 are pure: stalls: half a percent of a rank's steps are longer by about a step; hiccups:
tails of a Pareto distribution in every step; garbage: pauses of a rank in any phase; periodic: every 50th step of all
ranks; differing: each rank for the whole run; warm-up: the first steps; shared: all ranks alike; host: all ranks of a
host alike; busy: skewed bursts of some steps. Then come mixtures, levels that change, and work that differs on
purpose."""
NEEDS_HOSTS = frozenset(name for name in NOISES if "host" in name)
"""Noises that need at least two hosts."""
