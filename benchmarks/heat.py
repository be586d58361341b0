"""Measure how quiet the heat map is where nothing is wrong, and how much of a late rank it shows without findings.

    python benchmarks/heat.py                       2 to 1,024 ranks, 1, 8, 64 and 512 steps a column; some minutes
    python benchmarks/heat.py --ranks 64 --worlds 20

Made-up worlds of 4,096 steps whose own times stray: independently from step to step, wandering (a first-order
autoregression that keeps 0.97 of itself, a memory of 33 steps), both at once, with heavy tails (Pareto's, of exponent
1.5), with stalls of four times a step, or by ranks that differ for good. Of each, once as it is and once with a rank
(or a host of eight) that is late by a tenth or a quarter, since the start or since step 700:

- clean: share of the cells that are lit though nothing is wrong, and share of the worlds in which any is;
- +10%, +25%: share of the late rank's cells that are lit, since the start / of those from step 700 on (where these are
  kept: the last 256 columns); host: of a host that is 10% late since the start;
- besides: share of all other cells that are lit then;
- fixed: share of the clean world's cells that 5% over the others lights, with `%`;
- ms: to judge one metric, CPU time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict

import numpy as np

from ddpmon.analysis.over_time.cells import BINS
from ddpmon.analysis.over_time.heat import LATE, Heat, least_cell
from ddpmon.analysis.steps.world import ARRAYS, World
from ddpmon.messages import HEAT_STEPS, NOTABLE

STEPS, SINCE = 4096, 700
OWN_MS = np.array((2.0, 8.0, 15.0, 1.0, 1.0))
KEEPS = 0.97
STALL = 4.0
PER_HOST = 8
MIXED = 0.05
"""Standard deviation of the wandering part of mixed noise, as a share of a rank's own time."""
NOISES = (
    *(("independent", share) for share in (0.05, 0.15, 0.30)),
    *(("wandering", share) for share in (0.05, 0.10)),
    ("mixture", 0.15),
    ("heavy tails", 0.05),
    *(("stalls", often) for often in (0.002, 0.03)),
    ("differing", 0.015),
)
COLUMNS = ("clean", "in worlds", "+10%", "+25%", "host", "besides", "fixed", "ms")


def factors(kind: str, share: float, ranks: int, rng: np.random.Generator) -> np.ndarray:
    """[S, R] What the own time of a step is multiplied with."""
    normal = rng.standard_normal((STEPS, ranks))
    if kind == "heavy tails":
        return 1 + share * np.minimum(rng.pareto(1.5, (STEPS, ranks)), 100)
    if kind == "stalls":
        return (1 + 0.05 * normal) * np.where(rng.random((STEPS, ranks)) < share, STALL, 1.0)
    if kind == "differing":
        return (1 + 0.03 * normal) * (1 + share * rng.standard_normal(ranks))
    wandering = rng.standard_normal((STEPS, ranks))
    for step in range(1, STEPS):
        wandering[step] = KEEPS * wandering[step - 1] + (1 - KEEPS**2) ** 0.5 * wandering[step]
    if kind == "wandering":
        return np.maximum(0.3, 1 + share * wandering)
    return np.maximum(0.3, 1 + share * normal + MIXED * wandering * (kind == "mixture"))


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


def measure(kind: str, share: float, ranks: int, worlds: int) -> dict[int, dict[str, list[float]]]:
    """Return a value for each world, by steps per column and by name."""
    result = {steps: defaultdict[str, list[float]](list) for steps in HEAT_STEPS}
    rank = ranks // 2
    host = np.arange(rank - rank % PER_HOST, rank - rank % PER_HOST + PER_HOST)
    faults = [(f"+{late - 1:.0%}{since}", [rank], late, since) for late in (1.1, 1.25) for since in (0, SINCE)]
    faults += [("host", host, 1.1, 0)] if ranks > 2 * PER_HOST else []
    for seed in range(worlds):
        times = factors(kind, share, ranks, np.random.default_rng(2000 + seed))
        clean = heat_of(times)
        for steps, values in result.items():
            began = time.process_time()
            cells = clean.judged("own", steps, BINS).cells
            values["ms"].append((time.process_time() - began) * 1e3)
            values["clean"].append(float((cells >= LATE).mean()))
            grid = clean.grid("own", steps, BINS)
            values["fixed"].append(float((grid.cells >= least_cell(grid, NOTABLE)).mean()))
        for name, who, late, since in faults:
            made = times.copy()
            made[since:, who] *= late
            heat = heat_of(made)
            for steps, values in result.items():
                grid = heat.judged("own", steps, BINS)
                lit = grid.cells >= LATE
                values[name].append(float(lit[who, max(0, -(-since // steps) - grid.first_bin) :].mean()))
                values["besides"].append(float(np.delete(lit, who, axis=0).mean()))
    return result


def percent(shares: list[float]) -> str:
    return f"{statistics.fmean(shares):.2%}" if shares else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 64, 1024])
    parser.add_argument("--noise", nargs="+", help="only these kinds")
    parser.add_argument("--worlds", type=int, default=10, help="of each kind; of 1,024 ranks a fifth as many")
    args = parser.parse_args()
    print(f"ranks  noise              steps/column  {'  '.join(f'{name:>13}' for name in COLUMNS)}")
    for ranks in args.ranks:
        for kind, share in NOISES:
            if args.noise and kind not in args.noise:
                continue
            worlds = args.worlds if ranks < 1024 else max(1, args.worlds // 5)
            for steps, values in measure(kind, share, ranks, worlds).items():
                late = [
                    "/".join(f"{statistics.fmean(values[f'+{size}%{since}']):.0%}" for since in (0, SINCE))
                    for size in (10, 25)
                ]
                shown = [percent(values["clean"]), percent([float(each > 0) for each in values["clean"]]), *late]
                shown += [percent(values[name]) for name in ("host", "besides", "fixed")]
                shown.append(f"{statistics.median(values['ms']):.1f}")
                print(
                    f"{ranks:5}  {kind:12} {share:5.1%}  {steps:12}  {'  '.join(f'{x:>13}' for x in shown)}", flush=True
                )


if __name__ == "__main__":
    main()
