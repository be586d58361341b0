"""How quiet the heat map is where nothing is wrong, and how much of a late rank it shows.

    python benchmarks/heat.py                       4 to 1,024 ranks, 1 and 8 steps a column; some minutes
    python benchmarks/heat.py --ranks 64 --worlds 20

Made-up worlds of 2,048 steps whose own times stray: independently from step to step, wandering (a first-order
autoregression that keeps 0.97 of itself), with heavy tails (Pareto's, of exponent 1.5), or with stalls of four times a
step. Of each, once as it is and once with a rank (or a host of eight) that is late by a tenth from the middle on:

- clean: share of the cells that are lit though nothing is wrong, and share of the worlds in which any is;
- late rank, slow host: share of its cells since then that are lit;
- besides: share of all other cells that are lit then;
- fixed: share of the clean world's cells that 5% over the median lights, with `%`;
- ms: to say it of the newest columns, CPU time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass

import numpy as np

from ddpmon.analysis.over_time.heat import BEYOND, Heat, code
from ddpmon.analysis.steps.world import ARRAYS, World
from ddpmon.messages import HEAT_STEPS, NOTABLE

STEPS, COLUMNS = 2048, 64
LATE, SINCE = 1.1, STEPS // 2
OWN_MS = np.array((2.0, 8.0, 15.0, 1.0, 1.0))
KEEPS = 0.97
STALL = 4.0
PER_HOST = 8
NOISES = (
    *(("independent", share) for share in (0.05, 0.15, 0.30)),
    *(("wandering", share) for share in (0.05, 0.10)),
    ("heavy tails", 0.05),
    *(("stalls", often) for often in (0.002, 0.03)),
)


def factors(kind: str, share: float, ranks: int, rng: np.random.Generator) -> np.ndarray:
    """[S, R] What the own time of a step is multiplied with."""
    normal = rng.standard_normal((STEPS, ranks))
    if kind == "wandering":
        for step in range(1, STEPS):
            normal[step] = KEEPS * normal[step - 1] + (1 - KEEPS**2) ** 0.5 * normal[step]
    elif kind == "heavy tails":
        return 1 + share * np.minimum(rng.pareto(1.5, (STEPS, ranks)), 100)
    elif kind == "stalls":
        return (1 + 0.05 * normal) * np.where(rng.random((STEPS, ranks)) < share, STALL, 1.0)
    return np.maximum(0.3, 1 + share * normal)


def heat_of(times: np.ndarray) -> Heat:
    """The hub's memory of such a world. times: [S, R] factors."""
    phases = times[..., None] * OWN_MS
    own = phases.sum(axis=2)
    zeros = np.zeros_like(own)
    length = np.broadcast_to(own.max(axis=1, keepdims=True) + 6.0, own.shape)
    numbers = np.arange(1, STEPS + 1)
    known = {
        "step": numbers, "end_us": numbers * 60_000, "length_ms": length, "phases_ms": phases, "own_ms": own,
        "wait_ms": length - own, "critical": own.argmax(axis=1), "has_loss": zeros > 0,
    }  # fmt: skip
    heat = Heat()
    heat.append(World(tuple(range(own.shape[1])), **{name: known.get(name, zeros) for name in ARRAYS}))
    return heat


@dataclass
class Lit:
    """Shares of a kind of world, one value for each of its worlds."""

    clean: list[float]
    late: list[float]
    host: list[float]
    besides: list[float]
    fixed: list[float]
    took_ms: list[float]


def lit(heat: Heat, steps: int, of_steps: Lit) -> np.ndarray:
    """[R, columns] Cells that are beyond chance."""
    began = time.process_time()
    grid = heat.beyond_chance("own", steps, COLUMNS)
    of_steps.took_ms.append((time.process_time() - began) * 1e3)
    return grid.cells >= BEYOND


def measure(kind: str, share: float, ranks: int, worlds: int) -> dict[int, Lit]:
    """By steps a column."""
    by_steps = {steps: Lit([], [], [], [], [], []) for steps in HEAT_STEPS[:2]}
    rank = ranks // 2
    host = np.arange(rank - rank % PER_HOST, rank - rank % PER_HOST + PER_HOST)
    for seed in range(worlds):
        times = factors(kind, share, ranks, np.random.default_rng(1000 + seed))
        clean = heat_of(times)
        for steps, of_steps in by_steps.items():
            of_steps.clean.append(float(lit(clean, steps, of_steps).mean()))
            grid = clean.grid("own", steps, COLUMNS)
            of_steps.fixed.append(float((grid.cells >= code(grid, NOTABLE)).mean()))
        for who in ([rank], host) if ranks > 2 * PER_HOST else ([rank],):
            made = times.copy()
            made[SINCE:, who] *= LATE
            heat = heat_of(made)
            for steps, of_steps in by_steps.items():
                cells = lit(heat, steps, of_steps)
                (of_steps.late if len(who) == 1 else of_steps.host).append(float(cells[who].mean()))
                of_steps.besides.append(float(np.delete(cells, who, axis=0).mean()))
    return by_steps


def percent(shares: list[float]) -> str:
    return f"{statistics.fmean(shares):.2%}" if shares else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8, 64, 1024])
    parser.add_argument("--worlds", type=int, default=10, help="of each kind; of 1,024 ranks a fifth as many")
    args = parser.parse_args()
    names = ("clean", "in worlds", "late rank", "slow host", "besides", "fixed", "ms")
    print(f"ranks  noise             steps/column  {'  '.join(f'{name:>9}' for name in names)}")
    for ranks in args.ranks:
        for kind, share in NOISES:
            worlds = args.worlds if ranks < 1024 else max(1, args.worlds // 5)
            for steps, of_steps in measure(kind, share, ranks, worlds).items():
                lights = [float(each > 0) for each in of_steps.clean]
                shares = (of_steps.clean, lights, of_steps.late, of_steps.host, of_steps.besides, of_steps.fixed)
                row = "  ".join(f"{percent(each):>9}" for each in shares)
                took = statistics.median(of_steps.took_ms)
                print(f"{ranks:5}  {kind:11} {share:5.1%}  {steps:12}  {row}  {took:9.1f}", flush=True)


if __name__ == "__main__":
    main()
