"""Made-up runs whose truth is known: noise of many kinds, and a fault of a chosen kind and size in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ddpmon.analysis.steps.world import World
from ddpmon.messages import OWN_PHASES

Floats = NDArray[np.float64]

SHARES = np.array([0.05, 0.25, 0.40, 0.05, 0.05])
"""Of a step: data, forward, backward, optimizer, other where nothing is wrong; the rest is transfer."""
TRANSFER = 0.2
FIRST = 2
"""Number of the first step that is seen."""
BATCH = 64
HOST_RANKS = 8


def host_ranks(ranks: int) -> int:
    """How many ranks a host has, in a world of so many: there are two hosts at least."""
    return min(HOST_RANKS, max(1, ranks // 2))


@dataclass(frozen=True)
class Noise:
    """How own times stray. share: of a phase or of the own time; lasts: steps over which it stays alike."""

    kind: str
    share: float
    lasts: float = 0.0

    @property
    def memory(self) -> float:
        """Steps after which one value says nothing of the next: the sum of its correlations, both ways."""
        if self.kind not in {"wandering", "host", "busy"}:
            return 1.0
        keep = np.exp(-1 / self.lasts)
        return float((1 + keep) / (1 - keep))

    @property
    def name(self) -> str:
        return f"{self.kind} {100 * self.share:g}%"


NOISES = {
    noise.name: noise
    for noise in (
        Noise("independent", 0.05),
        Noise("independent", 0.15),
        Noise("independent", 0.30),
        Noise("wandering", 0.05, 32.8),
        Noise("wandering", 0.10, 32.8),
        Noise("stalls", 0.005),
        Noise("hiccups", 0.03),
        Noise("periodic", 0.50),
        Noise("differing", 0.015),
        Noise("warm-up", 4.0),
        Noise("shared", 0.10, 30.0),
        Noise("host", 0.05, 10.0),
        Noise("busy", 0.30, 6.0),
    )
}
"""By name. independent: each phase by itself; wandering: each rank for a while; stalls: in that share of a rank's steps
one of the length of a step; hiccups: the same with Pareto tails in every step; periodic: every 50th step of all ranks;
differing: each rank for good; warm-up: the first steps of all, each rank's in its way; shared: all ranks alike; host:
all ranks of a host alike; busy: skewed, as where programs share cores."""


@dataclass(frozen=True)
class Fault:
    """What is wrong. size: of a step; begin, end: the first step with it and the first without it again, by index."""

    kind: str = "none"
    size: float = 0.0
    ranks: tuple[int, ...] = ()
    phase: str = "backward"
    begin: int = 0
    end: int = 1 << 60

    def adds_ms(self, own: Floats, step_ms: float) -> Floats:
        """[S, R, 5]"""
        added = np.zeros_like(own)
        steps, place = np.arange(len(own)), OWN_PHASES.index(self.phase)
        now = (steps >= self.begin) & (steps < self.end)
        if self.kind == "moving":
            whose = np.random.default_rng(len(own)).integers(0, own.shape[1], len(own))
            added[steps[now], whose[now], place] = self.size * step_ms
        for rank in self.ranks:
            if self.kind == "uneven":
                added[now, rank] = own[now, rank] * self.size
            elif self.kind == "periodic":
                added[now & ((steps - self.begin) % 10 == 0), rank, place] = self.size * step_ms * 10
            elif self.kind in {"late", "several", "transient", "host"}:
                added[now, rank, place] = self.size * step_ms
        return added


EXPECTED = {
    "late": "straggler",
    "several": "several_stragglers",
    "transient": "straggler",
    "host": "slow_host",
    "moving": "moving_straggler",
    "periodic": "periodic_straggler",
    "uneven": "load_imbalance",
}
"""The kind of finding of each kind of fault."""


def run(noise: Noise, fault: Fault, ranks: int, steps: int, step_ms: float, seed: int) -> tuple[World, World]:
    """The same run with its fault and without it."""
    rng = np.random.default_rng(seed)
    own = np.maximum(MAKES[noise.kind](rng, noise, step_ms, (steps, ranks)), 0.3 * SHARES * step_ms)
    transfer = TRANSFER * step_ms * (1 + 0.03 * np.abs(rng.standard_normal(steps)))
    samples = np.full((steps, ranks), BATCH)
    well = world_of(own, transfer, samples)
    if fault.kind == "none":
        return well, well
    if fault.kind == "uneven":
        samples = samples.copy()
        samples[fault.begin : fault.end, list(fault.ranks)] = round(BATCH * (1 + fault.size))
    return world_of(own + fault.adds_ms(own, step_ms), transfer, samples), well


def world_of(own: Floats, transfer: Floats, samples: NDArray[np.int64]) -> World:
    """What `split` makes of records of these steps: all wait for the last, in one gradient synchronisation."""
    phases = np.round(own, 3)
    arrival = phases.sum(axis=2)
    slowest = arrival.max(axis=1)
    length = np.broadcast_to((slowest + transfer)[:, None], arrival.shape)
    wait = slowest[:, None] - arrival
    shape = arrival.shape
    transfers = length - arrival - wait
    none: NDArray[np.int64] = np.zeros(shape, np.int64)
    return World(
        ranks=tuple(range(shape[1])),
        step=np.arange(FIRST, FIRST + shape[0]),
        end_us=(1e6 + np.cumsum(slowest + transfer) * 1e3).astype(np.int64),
        length_ms=length,
        phases_ms=phases,
        own_ms=arrival,
        wait_ms=wait,
        transfer_ms=transfers,
        exposed_ms=wait + transfers,
        exposed_wait_ms=wait,
        late_ms=arrival - np.median(arrival, axis=1, keepdims=True),
        critical=wait.argmin(axis=1),
        gradient_bytes=np.full(shape, 1 << 20),
        samples=samples,
        loss=np.ones(shape),
        has_loss=np.ones(shape, bool),
        tokens=none,
        gc_ms=np.zeros(shape),
    )


def keeps(rng: np.random.Generator, lasts: float, steps: int, columns: int) -> Floats:
    """[S, columns] Normal values of which neighbours are alike: a first-order autoregression."""
    keep = np.exp(-1 / lasts)
    fresh = rng.standard_normal((steps, columns))
    fresh[1:] *= np.sqrt(1 - keep**2)
    for step in range(1, steps):
        fresh[step] += keep * fresh[step - 1]
    return fresh


def _even(rng: np.random.Generator, share: float, step_ms: float, shape: tuple[int, int]) -> Floats:
    return SHARES * step_ms * (1 + share * rng.standard_normal((*shape, 5)))


def _independent(rng: np.random.Generator, noise: Noise, step_ms: float, shape: tuple[int, int]) -> Floats:
    return _even(rng, noise.share, step_ms, shape)


def _wandering(rng: np.random.Generator, noise: Noise, step_ms: float, shape: tuple[int, int]) -> Floats:
    return _even(rng, 0.01, step_ms, shape) * (1 + noise.share * keeps(rng, noise.lasts, *shape))[..., None]


def _stalls(rng: np.random.Generator, noise: Noise, step_ms: float, shape: tuple[int, int]) -> Floats:
    own = _even(rng, 0.03, step_ms, shape)
    own[..., 2] += (rng.random(shape) < noise.share) * rng.exponential(step_ms, shape)
    return own


def _hiccups(rng: np.random.Generator, noise: Noise, step_ms: float, shape: tuple[int, int]) -> Floats:
    own = _even(rng, 0.03, step_ms, shape)
    own[..., 2] += np.minimum(10.0, noise.share * rng.pareto(1.5, shape)) * step_ms
    return own


def _periodic(rng: np.random.Generator, noise: Noise, step_ms: float, shape: tuple[int, int]) -> Floats:
    own = _even(rng, 0.05, step_ms, shape)
    own[::50, :, 4] += noise.share * step_ms * (1 + 0.1 * rng.standard_normal(own[::50, :, 4].shape))
    return own


def _differing(rng: np.random.Generator, noise: Noise, step_ms: float, shape: tuple[int, int]) -> Floats:
    levels = np.clip(rng.standard_normal(shape[1]), -2, 2)
    return _even(rng, 0.03, step_ms, shape) * (1 + noise.share * levels)[:, None]


def _warm_up(rng: np.random.Generator, noise: Noise, step_ms: float, shape: tuple[int, int]) -> Floats:
    own = _even(rng, 0.05, step_ms, shape)
    longer = noise.share * np.exp(-np.arange(shape[0])[:, None] / 3.0) * (1 + 0.2 * rng.standard_normal(shape))
    return own * (1 + np.maximum(longer, 0.0))[..., None]


def _shared(rng: np.random.Generator, noise: Noise, step_ms: float, shape: tuple[int, int]) -> Floats:
    together = keeps(rng, noise.lasts, shape[0], 1)
    return _even(rng, 0.05, step_ms, shape) * (1 + noise.share * together)[..., None]


def _host(rng: np.random.Generator, noise: Noise, step_ms: float, shape: tuple[int, int]) -> Floats:
    size = host_ranks(shape[1])
    together = np.repeat(keeps(rng, noise.lasts, shape[0], -(-shape[1] // size)), size, axis=1)[:, : shape[1]]
    return _even(rng, 0.03, step_ms, shape) * (1 + noise.share * together)[..., None]


def _busy(rng: np.random.Generator, noise: Noise, step_ms: float, shape: tuple[int, int]) -> Floats:
    own = _even(rng, 0.05, step_ms, shape)
    crowd = np.maximum(0.0, keeps(rng, noise.lasts, *shape))
    return own + (noise.share * crowd * rng.exponential(1.0, shape))[..., None] * SHARES * step_ms


MAKES: dict[str, Callable[[np.random.Generator, Noise, float, tuple[int, int]], Floats]] = {
    "independent": _independent,
    "wandering": _wandering,
    "stalls": _stalls,
    "hiccups": _hiccups,
    "periodic": _periodic,
    "differing": _differing,
    "warm-up": _warm_up,
    "shared": _shared,
    "host": _host,
    "busy": _busy,
}
