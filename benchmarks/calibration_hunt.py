"""Hours of every noise without a fault, in steps of 5 ms to 5 s: what is told above info that is not true.

    python benchmarks/calibration_hunt.py RESULTS.jsonl --seed 20000 --hours 24            8 ranks, hours of each noise
    python benchmarks/calibration_hunt.py RESULTS.jsonl --ranks 1024 --steps 200 --shortest-ms 500
    python benchmarks/calibration_hunt.py RESULTS.jsonl --table                            what it has so far

Each run's step length is drawn evenly in its logarithm, and it is judged as a hub judges: twice a second, or after
each step where those are longer. Runs of all noises take turns, and each is a line of RESULTS as soon as it is over:
started again, it goes on where it was. Hours at long steps cost less to judge, and there are more of them; the table
says how many are of steps below 50 and 500 ms.

false: events above info that name a rank, or tell again what was told (`calibration.false_events`); at most: what they
are fewer than in 24 hours with 95% certainty (Poisson).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from calibration import JUDGED_S, false_events, fewer_than, judged
from calibration_worlds import NOISES, Fault, run

SHORTEST_MS, LONGEST_MS = 5.0, 5000.0
BANDS_MS = (50.0, 500.0)


def step_ms_of(seed: int, shortest_ms: float = SHORTEST_MS) -> float:
    """The step length of a run."""
    shortest, longest = np.log([shortest_ms, LONGEST_MS])
    return float(np.exp(np.random.default_rng([seed, 1]).uniform(shortest, longest)))


def result_of(name: str, seed: int, ranks: int, steps: int, shortest_ms: float = SHORTEST_MS) -> dict[str, Any]:
    """A run without a fault, and what was told of it above info."""
    step_ms = step_ms_of(seed, shortest_ms)
    well, _ = run(NOISES[name], Fault(), ranks, steps, step_ms, seed)
    told = judged(well, max(1, round(JUDGED_S * 1e3 / step_ms)))
    false, turns = false_events(told, Fault(), NOISES[name].memory)
    return {
        "noise": name, "ranks": ranks, "seed": seed, "steps": steps, "step_ms": round(step_ms, 3),
        "hours": told.seconds / 3600, "false": false, "turns": turns, "heads": told.heads,
        "told": [event for event in told.events if event[1] != "info"],
    }  # fmt: skip


def results_in(path: Path) -> Iterator[dict[str, Any]]:
    """What is there already; a line that was cut off is none."""
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def hunt(path: Path, args: argparse.Namespace) -> None:
    """Until there are so many hours of each noise."""
    names, ranks, seed, hours = args.noise, args.ranks, args.seed, args.hours
    there = [one for one in results_in(path) if one["ranks"] == ranks and one["seed"] >= seed]
    left = {name: hours - sum(one["hours"] for one in there if one["noise"] == name) for name in names}
    over = {(one["noise"], one["seed"]) for one in there}
    for each in count(seed):
        for name in [name for name in names if left[name] > 0 and (name, each) not in over]:
            one = result_of(name, each, ranks, args.steps, args.shortest_ms)
            left[name] -= one["hours"]
            with path.open("a") as file:
                file.write(json.dumps(one) + "\n")
        if max(left.values()) <= 0:
            return


def table(results: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each noise and number of ranks."""
    yield "| noise | ranks | runs | hours (below 50, 500 ms) | false | at most, in 24 h | ranks take turns |"
    yield "|---|---|---|---|---|---|---|"
    for ranks in sorted({one["ranks"] for one in results}):
        for name in NOISES:
            ones = [one for one in results if one["noise"] == name and one["ranks"] == ranks]
            if not ones:
                continue
            hours = sum(one["hours"] for one in ones)
            short, middle = (sum(one["hours"] for one in ones if one["step_ms"] < band) for band in BANDS_MS)
            false, turns = (sum(one[what] for one in ones) for what in ("false", "turns"))
            most = fewer_than(false) / hours * 24
            yield (
                f"| {name} | {ranks:,} | {len(ones)} | {hours:.1f} ({short:.2f}, {middle:.1f}) | {false}"
                f" | {most:.1f} | {turns} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="a line for each run, added to")
    parser.add_argument("--noise", nargs="+", choices=NOISES, default=list(NOISES))
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1500, help="of a run")
    parser.add_argument("--shortest-ms", type=float, default=SHORTEST_MS, help="of the steps that are drawn")
    parser.add_argument("--hours", type=float, default=24.0, help="of training, of each noise")
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--table", action="store_true", help="print what RESULTS has, and what was false")
    args = parser.parse_args()
    if not args.table:
        hunt(args.results, args)
    results = list(results_in(args.results))
    print(*table(results), sep="\n")
    for one in results:
        if one["false"]:
            print(one["noise"], one["ranks"], one["seed"], f"{one['step_ms']:.0f} ms", *one["told"], sep="\n    ")


if __name__ == "__main__":
    main()
