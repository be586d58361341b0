"""Play synthetic runs through the hub, and compare with the truth what ddpmon showed live, at the end, and reported.

    python benchmarks/scenarios.py --count 2 --seed 1000          every shape and noise: 15 minutes of a core
    python benchmarks/scenarios.py --only "since, 25%" --count 40
    python benchmarks/scenarios.py --only "no fault" --hours 24 --json hours.json     each noise without a fault
    python benchmarks/scenarios.py --only "no fault" --hours 24 --alone --ranks 2 3 8 --jobs 16     an hour of a core
                                                                   for each kind of noise, and 16 cores in 90 minutes

--only selects scenarios whose name contains one of these words; --list prints all names. Seeds below 1000 are for
tuning; figures come from seeds from 1000 on. With --hours and --rounds, step lengths are drawn evenly in their
logarithm between 5 ms and 5 s, and each run has a seed of its own; a round plays each scenario once. With --alone, runs
go through the analysis alone, which judges every 25 steps: no hub, no recording, no report.

Columns: cost: share of the run's time, median. right: ranks, phase and pattern are right at the last moment of the
fault and in the report, no other rank is accused, no wrong cause is named, and no false recovery is reported. told:
steps from the fault's first one until its ranks are named, median and most. since: steps off, median and most. gain:
relative error, 90th percentile. agree: runs in which the last live moment, the ended dashboard and the report agree.
false: events above info that accuse a rank without a fault; in 24 h: of the run's own time; below: upper bound of that
with 95% certainty. lines: all events, whatever they say. stable: share of moments in which the sentence on screen is
the previous one except for its figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import count
from math import exp, factorial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from engine_alone import play_alone
from launching import load, options
from play import Played, play
from scenario_noises import NOISES
from scenario_scores import SINCE_STEPS, Score, quantile, score
from scenario_shapes import FAULTS, QUIET, Draft, Scenario, Truth

REPORTED_FROM = 1000
"""The first seed that is used for reported figures."""
LARGE = 0.25
"""Share of a step by which large faults delay it."""
SHORTEST_MS, LONGEST_MS = 5.0, 5000.0
DAY_H = 24.0
SCENARIOS = FAULTS | QUIET


@dataclass(frozen=True)
class Play:
    """A run to be played; it is sent to a worker process."""

    scenario: Scenario
    seed: int
    draws_length: bool = False
    alone: bool = False
    """True if the run goes through the analysis alone."""

    def score(self) -> Score:
        """Play the run, and compare it with its truth."""
        shown, truth, draft = self.played()
        turns = NOISES[self.scenario.noise].takes_turns
        return score(self.scenario.name, self.seed, shown, truth, draft.well_step_ms(), takes_turns=turns)

    @property
    def step_ms(self) -> float:
        """Return the usual length of a step."""
        if not self.draws_length:
            return self.scenario.step_ms
        rng = np.random.default_rng([self.seed, 1])
        return float(np.exp(rng.uniform(*np.log([SHORTEST_MS, LONGEST_MS]))))

    def played(self) -> tuple[Played, Truth, Draft]:
        """Draw the run and play it."""
        draft = replace(self.scenario, step_ms=self.step_ms).draft(self.seed)
        truth = self.scenario.make(draft) if self.scenario.make else Truth()
        player = play_alone if self.alone else play
        return player(draft.work.own_ms, draft.work.transfer_ms, hosts=draft.hosts, **draft.options), truth, draft


def fewer_than(events: int) -> float:
    """Return the upper 95% bound of the expected number after `events` were counted (Poisson; 3.0 for none)."""
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
    f"{'noise':38} {'runs':>4} {'hours':>6} {'false':>5} {'in 24 h':>8} {'below':>7} {'lines':>5} {'stable':>7}"
    f" {'agree':>6}"
)


def row(name: str, scores: Sequence[Score]) -> str:
    """Return the row of the table for a scenario with a fault."""
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
    """Return the row of the table for a noise without a fault."""
    hours, false = sum(one.hours for one in scores), sum(one.false for one in scores)
    return (
        f"{name.removeprefix('no fault: '):38} {len(scores):4} {hours:6.2f} {false:5} {DAY_H * false / hours:8.2f}"
        f" {DAY_H * fewer_than(false) / hours:7.1f} {sum(one.lines for one in scores):5} {stable(scores):7.1%}"
        f" {sum(not one.agree for one in scores):6}"
    )


def stable(scores: Sequence[Score]) -> float:
    """Return the share of moments at which the sentence on screen is the same as at the previous moment."""
    return 1 - sum(one.changes for one in scores) / max(1, sum(one.moments - 1 for one in scores))


def _pair(values: Sequence[int]) -> str:
    return f"{np.median(values):.0f}, {max(values)}" if values else "-"


def print_sums(scores: Sequence[Score]) -> None:
    """Print the most important figures of all runs."""
    faults, quiet = [one for one in scores if one.fault], [one for one in scores if not one.fault]
    worth = [one for one in faults if one.counts]
    for words, values in (
        ("right, of faults that cost 2% or more", [one.right for one in worth]),
        ("right, of those that delay a step by 25% or more", [one.right for one in worth if one.size >= LARGE]),
        (
            f"since within {SINCE_STEPS} steps or the interval shown, of those named",
            [one.since_off <= SINCE_STEPS for one in worth if one.since_off is not None],
        ),
        ("live, ended dashboard and report agree", [not one.agree for one in scores]),
    ):
        print(f"{words}: {sum(values)} of {len(values)}" + (f", {np.mean(values):.1%}" if values else ""))
    gain = quantile([one.gain_off for one in worth if one.gain_off is not None], 0.9)
    if gain is not None:
        print(f"gain off, 90th percentile: {gain:.1%}")
    print(f"false in runs with a fault: {sum(one.false for one in faults)}")
    if quiet:
        false, hours = sum(one.false for one in quiet), sum(one.hours for one in quiet)
        print(f"without a fault: {false} false in {hours:.2f} hours; the sentence is stable in {stable(quiet):.1%}")


def chosen(args: argparse.Namespace) -> Iterator[Scenario]:
    """Yield the scenarios to play, each with each number of ranks."""
    for ranks in args.ranks or [0]:
        for name, scenario in SCENARIOS.items():
            if not args.only or any(word in name for word in args.only):
                whole = f"{name}, {ranks} ranks" if len(args.ranks) > 1 else name
                size = ranks or scenario.ranks
                yield replace(scenario, name=whole, ranks=size, steps=args.steps or scenario.steps)


def runs_of(scenario: Scenario, args: argparse.Namespace, seeds: Iterable[int]) -> list[Play]:
    """Return the runs of a scenario. With --hours or --rounds, those without a fault take their seeds from `seeds`."""
    if scenario.make is not None or not (args.hours or args.rounds):
        return [Play(scenario, args.seed + n, alone=args.alone) for n in range(args.count)]
    if args.rounds:
        return [Play(scenario, seed, draws_length=True, alone=args.alone) for seed in seeds]
    seeds = iter(seeds)
    plays: list[Play] = []
    while sum(play.step_ms for play in plays) * scenario.steps < args.hours * 3.6e6:
        plays.append(Play(scenario, next(seeds), draws_length=True, alone=args.alone))
    return plays


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="WORDS", help="scenarios whose names contain these")
    parser.add_argument("--list", action="store_true", help="print the names of all scenarios")
    parser.add_argument("--ranks", type=int, nargs="+", default=[], metavar="N", help="instead of each scenario's own")
    parser.add_argument("--steps", type=int, help="instead of each scenario's own")
    parser.add_argument("--count", type=int, default=1, help="runs of each scenario")
    parser.add_argument("--hours", type=float, default=0.0, help="of each noise without a fault, instead of --count")
    parser.add_argument("--rounds", type=int, default=0, help="runs of each noise without a fault, with drawn lengths")
    parser.add_argument("--alone", action="store_true", help="through the analysis alone, not through a hub")
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--jobs", type=int, default=1, help="processes that play at the same time")
    parser.add_argument("--json", type=Path, metavar="OUT", help="a file for all scores")
    parser.add_argument("--verbose", action="store_true", help="print what was false, and verdicts that were not right")
    args = parser.parse_args()
    if args.list:
        print(*SCENARIOS, sep="\n")
        return
    purpose = "reported" if args.seed >= REPORTED_FROM else "for tuning: figures are of seeds from 1000 on"
    print(f"seeds from {args.seed}, {purpose}; {load()}", flush=True)
    scores: list[Score] = []
    head, seeds, scenarios = "", count(args.seed), list(chosen(args))
    last = args.seed + args.rounds * len(scenarios)
    with ProcessPoolExecutor(args.jobs) as pool:
        play_all = pool.map if args.jobs > 1 else map
        queued = [
            (scenario, play_all(Play.score, runs_of(scenario, args, range(first, last, len(scenarios)) or seeds)))
            for first, scenario in enumerate(scenarios, args.seed)
        ]
        for scenario, results in queued:
            mine = list(results)
            if head != (head := HEAD if scenario.make else QUIET_HEAD):
                print(head)
            print((row if scenario.make else quiet_row)(scenario.name, mine), flush=True)
            scores += mine
            for one in mine if args.verbose else ():
                verdicts = [] if one.right else [f"live: {one.last_live}", f"report: {one.reported}"]
                for line in (*one.accusations, *verdicts):
                    print(f"    {one.seed}: {line}")
            if args.json:
                args.json.write_text(json.dumps([asdict(one) for one in scores]))
    print_sums(scores)


if __name__ == "__main__":
    main()
