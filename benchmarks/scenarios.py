"""Play made-up runs through the hub, and compare with the truth what ddpmon showed live, at the end, and reported.

    python benchmarks/scenarios.py --count 2 --seed 1000          every shape and noise: 15 minutes of a core
    python benchmarks/scenarios.py --only "since, 25%" --count 40
    python benchmarks/scenarios.py --only "two ranks" --size 0.06 --noise "wandering 5%" --ranks 64
    python benchmarks/scenarios.py --only "no fault" --hours 24 --json hours.json     of each noise without a fault
    python benchmarks/scenarios.py --only "no fault" --hours 24 --alone --ranks 4     the same in an hour of a core

--only chooses scenarios whose name contains one of these words; --list prints all names. Seeds below 1000 are for
tuning, figures are of seeds from 1000 on. With --json a run that is there already is not played again. With --hours
step lengths are drawn evenly in their logarithm between 5 ms and 5 s. With --alone runs go through the analysis alone,
which judges every 25 steps: no hub, no recording, no report.

cost: share of the run's time, median. right: who, phase and pattern at the last moment of the fault and in the report,
nobody else, no cause that is none, no recovery that is none. told: steps from the fault's first one until its ranks
are named, median and most. since: steps off, median and most. gain: off from the real one, 90th percentile. agree:
runs in which the last live moment, the ended dashboard and the report tell the same. false: events above info that
accuse somebody to whom nothing was done; in 24 h: of the run's own time; below: what that is below with 95% certainty.
stable: moments in which the sentence on screen is that of the moment before, but for its figures.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from inspect import signature
from itertools import count
from math import exp, factorial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from engine_alone import play_alone
from play import Played, play
from scenario_noises import NOISES
from scenario_scores import SINCE_STEPS, Score, quantile, score
from scenario_shapes import FAULTS, QUIET, Draft, Scenario, Truth

REPORTED_FROM = 1000
"""The first seed that figures are reported of."""
LARGE = 0.25
"""Share of a step by which large faults delay it."""
SHORTEST_MS, LONGEST_MS = 5.0, 5000.0
DAY_H = 24.0
SCENARIOS = FAULTS | QUIET


@dataclass(frozen=True)
class Play:
    """A run to be played, as it travels to a process."""

    scenario: Scenario
    seed: int
    draws_length: bool = False
    alone: bool = False
    """True: through the analysis alone."""

    def score(self) -> Score:
        """Play it, and compare it with its truth."""
        shown, truth, draft = self.played()
        turns = NOISES[self.scenario.noise].takes_turns
        return score(self.scenario.name, self.seed, shown, truth, draft.well_step_ms(), takes_turns=turns)

    def played(self) -> tuple[Played, Truth, Draft]:
        """Draw it and play it."""
        scenario = self.scenario
        if self.draws_length:
            rng = np.random.default_rng([self.seed, 1])
            length = float(np.exp(rng.uniform(*np.log([SHORTEST_MS, LONGEST_MS]))))
            scenario = replace(scenario, step_ms=length)
        draft = scenario.draft(self.seed)
        truth = scenario.make(draft) if scenario.make else Truth()
        player = play_alone if self.alone else play
        return player(draft.work.own_ms, draft.work.transfer_ms, hosts=draft.hosts, **draft.options), truth, draft


def score_of(play: Play) -> Score:
    """Return the score of a run; `pool.map` needs a function."""
    return play.score()


def fewer_than(events: int) -> float:
    """Return what the expected number is below with 95% certainty where so many came (Poisson; of none: 3.0)."""
    low, high = 0.0, 3.0 * events + 5.0
    for _ in range(50):
        middle = (low + high) / 2
        chance = sum(middle**k / factorial(k) for k in range(events + 1)) * exp(-middle)
        low, high = (middle, high) if chance > 0.05 else (low, middle)
    return high


HEAD = (
    f"{'scenario':38} {'runs':>4} {'cost':>5} {'right':>6} {'who':>4} {'phase':>5} {'patt.':>5} {'told':>10}"
    f" {'since':>11} {'gain':>6} {'agree':>6} {'false':>5}"
)
QUIET_HEAD = (
    f"{'noise':38} {'runs':>4} {'hours':>6} {'false':>5} {'in 24 h':>8} {'below':>7} {'turns':>5} {'stable':>7}"
    f" {'agree':>6}"
)


def row(name: str, scores: Sequence[Score]) -> str:
    """The line of a fault."""
    told = [one.told_after for one in scores if one.told_after is not None]
    since = [one.since_off for one in scores if one.since_off is not None]
    gain = quantile([one.gain_off for one in scores if one.gain_off is not None], 0.9)
    shares = [sum(getattr(one, part) for one in scores) for part in ("right", "who", "phase", "pattern")]
    return (
        f"{name:38} {len(scores):4} {np.median([one.cost_share for one in scores]):5.1%} {shares[0]:6} {shares[1]:4}"
        f" {shares[2]:5} {shares[3]:5} {_pair(told):>10} {_pair(since):>11} {'-' if gain is None else f'{gain:.1%}':>6}"
        f" {sum(not one.agree for one in scores):6} {sum(one.false for one in scores):5}"
    )


def quiet_row(name: str, scores: Sequence[Score]) -> str:
    """The line of a noise without a fault."""
    hours, false = sum(one.hours for one in scores), sum(one.false for one in scores)
    changes, moments = sum(one.changes for one in scores), sum(one.moments - 1 for one in scores)
    return (
        f"{name.removeprefix('no fault: '):38} {len(scores):4} {hours:6.2f} {false:5} {DAY_H * false / hours:8.2f}"
        f" {DAY_H * fewer_than(false) / hours:7.1f} {sum(one.turns for one in scores):5}"
        f" {1 - changes / max(1, moments):7.1%} {sum(not one.agree for one in scores):6}"
    )


def _pair(values: Sequence[int]) -> str:
    return f"{np.median(values):.0f}, {max(values)}" if values else "-"


def sums(scores: Sequence[Score]) -> dict[str, Any]:
    """The figures that matter, of all runs."""
    faults = [one for one in scores if one.fault]
    worth = [one for one in faults if one.counts]
    large = [one for one in worth if one.size >= LARGE]
    since = [one.since_off for one in worth if one.since_off is not None]
    quiet = [one for one in scores if not one.fault]
    hours, moments = sum(one.hours for one in quiet), sum(one.moments - 1 for one in quiet)
    return {
        "right": _share(one.right for one in worth),
        "right_large": _share(one.right for one in large),
        "since_within": _share(off <= SINCE_STEPS for off in since),
        "gain_off_p90": quantile([one.gain_off for one in worth if one.gain_off is not None], 0.9),
        "agree": _share(not one.agree for one in scores),
        "quiet_hours": hours,
        "false": sum(one.false for one in quiet),
        "false_with_a_fault": sum(one.false for one in faults),
        "stable": 1 - sum(one.changes for one in quiet) / moments if moments else None,
    }


def _share(values: Iterable[bool]) -> list[int]:
    """Return how many of how many."""
    listed = list(values)
    return [sum(listed), len(listed)]


def print_sums(totals: dict[str, Any]) -> None:
    """In words."""
    for words, name in (
        ("right, of faults that cost 2% or more", "right"),
        ("right, of those that delay a step by 25% or more", "right_large"),
        (f"since within {SINCE_STEPS} steps or the interval shown, of those named", "since_within"),
        ("live, ended dashboard and report agree", "agree"),
    ):
        some, of = totals[name]
        print(f"{words}: {some} of {of}" + (f", {some / of:.1%}" if of else ""))
    if totals["gain_off_p90"] is not None:
        print(f"gain off, 90th percentile: {totals['gain_off_p90']:.1%}")
    print(f"false in runs with a fault: {totals['false_with_a_fault']}")
    if totals["quiet_hours"]:
        print(f"without a fault: {totals['false']} false in {totals['quiet_hours']:.2f} hours,"
              f" the sentence is stable in {totals['stable']:.1%} of the moments")  # fmt: skip


def chosen(args: argparse.Namespace) -> Iterator[Scenario]:
    """Scenarios as they are to be played."""
    for name, scenario in SCENARIOS.items():
        if args.only and not any(word in name for word in args.only):
            continue
        make = scenario.make
        if args.size and make:
            if "size" not in signature(make).parameters:
                raise SystemExit(f'"{name}" has no --size: choose others with --only')
            make = partial(make, size=args.size)
        yield replace(
            scenario,
            make=make,
            noise=(args.noise if scenario.make else None) or scenario.noise,
            ranks=args.ranks or scenario.ranks,
            steps=args.steps or scenario.steps,
            step_ms=args.step_ms or scenario.step_ms,
        )


def main(arguments: Sequence[str] | None = None) -> list[Score]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="WORDS", help="scenarios whose names contain these")
    parser.add_argument("--list", action="store_true", help="print the names of all scenarios")
    parser.add_argument("--noise", choices=NOISES, help="of runs with a fault, instead of each scenario's own")
    parser.add_argument("--ranks", type=int, help="instead of each scenario's own")
    parser.add_argument("--size", type=float, help="of a delay, in shares of a step, instead of each scenario's own")
    parser.add_argument("--steps", type=int, help="of a run, instead of each scenario's own")
    parser.add_argument("--step-ms", type=float, help="instead of each scenario's own")
    parser.add_argument("--count", type=int, default=1, help="runs of each scenario")
    parser.add_argument("--hours", type=float, default=0.0, help="of each noise without a fault, instead of --count")
    parser.add_argument("--alone", action="store_true", help="through the analysis alone, not through a hub")
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--jobs", type=int, default=1, help="processes that play at the same time")
    parser.add_argument("--json", type=Path, metavar="OUT", help="all scores; what is in it is not played again")
    parser.add_argument("--verbose", action="store_true", help="print what was false, and verdicts that were not right")
    args = parser.parse_args(arguments)
    if args.list:
        print(*SCENARIOS, sep="\n")
        return []
    began = time.monotonic()
    purpose = "reported" if args.seed >= REPORTED_FROM else "for tuning: figures are of seeds from 1000 on"
    print(f"seeds from {args.seed}, {purpose}; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    known = (
        [Score(**one) for one in json.loads(args.json.read_text())["runs"]] if args.json and args.json.exists() else []
    )
    scores: list[Score] = []
    head = ""
    with ProcessPoolExecutor(args.jobs) as pool:
        for scenario in chosen(args):
            mine = [one for one in known if one.name == scenario.name and one.seed >= args.seed]
            mine += played_of(scenario, args, mine, pool)
            if head != (head := HEAD if scenario.make else QUIET_HEAD):
                print(head)
            print((row if scenario.make else quiet_row)(scenario.name, mine), flush=True)
            scores += mine
            for one in mine if args.verbose else ():
                lines = [
                    *one.accusations,
                    *([] if one.right else [f"live: {one.last_live}", f"report: {one.reported}"]),
                ]
                print("".join(f"    {one.seed}: {line}\n" for line in lines), end="")
            if args.json:
                written = {"seed": args.seed, "count": args.count, "hours": args.hours, "purpose": purpose}
                written |= {"sums": sums(scores), "runs": [asdict(one) for one in scores]}
                args.json.write_text(json.dumps(written))
    print_sums(sums(scores))
    print(f"{time.monotonic() - began:.0f} s; load {os.getloadavg()[0]:.1f}")
    return scores


def played_of(
    scenario: Scenario, args: argparse.Namespace, there: Sequence[Score], pool: ProcessPoolExecutor
) -> list[Score]:
    """Play what is missing of a scenario."""
    known = {one.seed for one in there}
    if not (args.hours and scenario.make is None):
        seeds = range(args.seed, args.seed + args.count)
        plays = [Play(scenario, seed, alone=args.alone) for seed in seeds if seed not in known]
        return list(pool.map(score_of, plays) if args.jobs > 1 else map(score_of, plays))
    scores: list[Score] = []
    left = args.hours - sum(one.hours for one in there)
    fresh = (seed for seed in count(args.seed) if seed not in known)
    while left > 0:
        some = [Play(scenario, next(fresh), draws_length=True, alone=args.alone) for _ in range(args.jobs)]
        scores += pool.map(score_of, some) if args.jobs > 1 else map(score_of, some)
        left = args.hours - sum(one.hours for one in (*there, *scores))
    return scores


if __name__ == "__main__":
    main()
