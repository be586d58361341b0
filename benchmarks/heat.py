"""Measure how few cells the heat map lights when nothing is wrong, and how much of a late rank it shows.

    python benchmarks/heat.py                       64 ranks; 1, 8 and 64 steps a column; a minute
    python benchmarks/heat.py --ranks 2 1024 --worlds 20

The synthetic worlds have 4,096 steps whose own times vary: independently from step to step, or also wandering. Each is
measured as it is, and with a rank that is late by a tenth or a quarter from the start:

- clean: share of cells that are lit though nothing is wrong;
- fixed: share of the clean world's cells that a fixed limit of 5% over the others would light, in `%`;
- +10%, +25%: share of the late rank's cells that are lit, and of all other cells at the same time.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from launching import options, print_head, print_row
from scenario_noises import Floats, Noise, wandering, white_by_rank

from ddpmon.analysis.over_time.cells import BINS_PER_RESOLUTION
from ddpmon.analysis.over_time.heat import LATE, Heat, least_cell
from ddpmon.messages import NOTABLE

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.worlds import world_with

STEPS, STEP_MS = 4096, 33.0
COLUMN_STEPS = (1, 8, 64)
NOISES = {
    "white 15%": Noise((white_by_rank(0.15),)),
    "white 15%, wandering 5%": Noise((white_by_rank(0.15), wandering(0.05, 33))),
}
LATE_BY = (0.10, 0.25)


def heat_of(own_ms: Floats) -> Heat:
    """Return the hub's heat map of a world with own times [S, R, 5] in ms."""
    heat = Heat()
    heat.append(world_with(own_ms, first=1))
    return heat


def measure(noise: Noise, ranks: int, worlds: int) -> dict[int, dict[str, list[float]]]:
    """Return a share for each world, by steps per column and by name."""
    result = {steps: defaultdict[str, list[float]](list) for steps in COLUMN_STEPS}
    rank = ranks // 2
    for seed in range(worlds):
        own_ms = noise.work(np.random.default_rng(2000 + seed), STEP_MS, (STEPS, ranks)).own_ms
        clean = heat_of(own_ms)
        for steps, shares in result.items():
            cells = clean.judged_grid("own", steps, BINS_PER_RESOLUTION).cells
            shares["clean"].append(float((cells >= LATE).mean()))
            grid = clean.metric_grid("own", steps, BINS_PER_RESOLUTION)
            shares["fixed"].append(float((grid.cells >= least_cell(grid, NOTABLE)).mean()))
        for late_by in LATE_BY:
            late = own_ms.copy()
            late[:, rank] *= 1 + late_by
            heat = heat_of(late)
            for steps, shares in result.items():
                lit = heat.judged_grid("own", steps, BINS_PER_RESOLUTION).cells >= LATE
                shares[f"+{late_by:.0%}"].append(float(lit[rank].mean()))
                shares[f"others at +{late_by:.0%}"].append(float(np.delete(lit, rank, axis=0).mean()))
    return result


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64])
    parser.add_argument("--worlds", type=int, default=3, help="of each kind")
    args = parser.parse_args()
    names = ["clean", "fixed", *(f"{who}+{late_by:.0%}" for late_by in LATE_BY for who in ("", "others at "))]
    print_head("ranks", "noise", "steps a column", *names)
    for ranks in args.ranks:
        for name, noise in NOISES.items():
            for steps, shares in measure(noise, ranks, args.worlds).items():
                print_row(ranks, name, steps, *(f"{np.mean(shares[column]):.1%}" for column in names))


if __name__ == "__main__":
    main()
