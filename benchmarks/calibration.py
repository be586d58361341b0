"""How true and how calm what is told is in noise: made-up runs, judged as they unfold, as a hub judges.

    python benchmarks/calibration.py                                    a table in some minutes: 8 ranks, steps of 46 ms
    python benchmarks/calibration.py --ranks 1024 --count 1
    python benchmarks/calibration.py --noise "wandering 5%" --faults late --sizes 0.1 0.25 --count 20 --seed 1000
    python benchmarks/calibration.py --faults none --hours 5 --jobs 2   hours of each noise without a fault

Each run unfolds through the hub's own window, findings, events and sentence, twice a second of the run (--every: so
many steps). Thresholds were chosen on seeds below 1000; figures are reported of seeds from 1000 on (--seed 1000), each
version's of seeds that none before it was reported of.

hours: of training. false/h: events above info an hour that name a rank to which no fault was given, or tell again what
was told; below: what they are fewer than with 95% certainty (of none, three in all: the rule of three). turns/h: events
that ranks take turns. worth: runs in which the fault costs 2% or more, without which it is not to be told.
named: those of them in which kind, rank and nobody else is named at their end. told after: steps
from the fault's first one until it is told, median and largest. onset: how far since_step is off, median and 95% of
runs; its largest move once it was told. gain: predicted over simulated, 90% of runs. flaps: events that a rank keeps up
again while it does not. head: changes of the sentence on screen but for its figures, a run.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from math import ceil, exp, factorial, inf

import numpy as np
from calibration_worlds import EXPECTED, FIRST, NOISES, Fault, host_ranks, run

from ddpmon.analysis.events import News
from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.findings import findings
from ddpmon.analysis.kinds.own_time import WORTH
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.steps.summary import past_warm_up, summarise
from ddpmon.analysis.steps.window import Window
from ddpmon.analysis.steps.world import World
from ddpmon.analysis.verdict import running
from ddpmon.messages import Finding
from ddpmon.store.intake import WINDOW_S, WINDOW_STEPS

JUDGED_S = 0.5
FIGURES = re.compile(r"[\d.,+%-]+")
PHASES = ("backward", "data", "other", "forward", "optimizer")


@dataclass
class Told:
    """What was told of one run."""

    seconds: float = 0.0
    events: list[tuple[int, str, str]] = field(default_factory=list)
    """Step, severity, sentence."""
    named: list[tuple[int, str, tuple[int, ...], int | None]] = field(default_factory=list)
    """At every moment: step, kind, ranks and since_step of each warning."""
    last: list[Finding] = field(default_factory=list)
    heads: int = 0


def judged(world: World, every: int) -> Told:
    """A run, as the hub would have told it."""
    size = host_ranks(len(world.ranks))
    where = [Conditions(rank, f"host{rank // size}") for rank in world.ranks]
    evidence = Evidence(world_size=len(world.ranks), conditions=where)
    window, told, before, head, news = Window(WINDOW_STEPS), Told(), [], "", News()
    told.seconds = float(world.step_ms.sum()) / 1e3
    for first in range(0, len(world), every):
        window.append(world.between(first, first + every))
        now = window.world(WINDOW_S)
        found = findings(now, evidence, before, window.world())
        step = int(now.step[-1])
        seconds = inf if first + every >= len(world) else float(now.end_us[-1]) / 1e6
        told.events += [(step, event.severity, event.text) for event in news.of(before, found, step, seconds)]
        warned = [f for f in found if f.severity != "info" and f.until_step is None]
        told.named += [(step, f.kind, tuple(f.ranks), f.since_step) for f in warned]
        sentence = FIGURES.sub("#", running(found, summarise(past_warm_up(now))).text)
        told.heads += sentence != head
        before, head = found, sentence
    told.last = before
    return told


@dataclass
class Score:
    """Of runs of one kind."""

    seconds: float = 0.0
    false: int = 0
    turns: int = 0
    accused: int = 0
    """Runs with something false."""
    worth: list[bool] = field(default_factory=list)
    named: list[bool] = field(default_factory=list)
    """Of those in which the fault is worth telling."""
    after: list[int] = field(default_factory=list)
    onset: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)
    gain: list[float] = field(default_factory=list)
    flaps: int = 0
    heads: list[int] = field(default_factory=list)

    def add(self, told: Told, ill: World, well: World, fault: Fault, memory: float) -> None:
        self.seconds += told.seconds
        self.heads.append(told.heads)
        false, turns = false_events(told, fault, memory)
        self.false += false
        self.turns += turns
        self.accused += false > 0
        if fault.kind != "none":
            self._of_fault(told, ill, well, fault, memory)

    def join(self, other: Score) -> None:
        """Take in another one's runs."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def _of_fault(self, told: Told, ill: World, well: World, fault: Fault, memory: float) -> None:
        kind, since = EXPECTED[fault.kind], FIRST + fault.begin
        end = min(FIRST + fault.end, int(ill.step[-1]) + 1)
        right = [
            (step, at) for step, name, ranks, at in told.named
            if name == kind and since <= step < end + 5 and (not fault.ranks or ranks[0] in fault.ranks)
        ]  # fmt: skip
        lasts = {(f.kind, *f.ranks) for f in told.last if f.severity != "info" and f.until_step is None}
        if memory > 1 and fault.kind != "moving":  # ranks take turns as well
            lasts = {one for one in lasts if one[0] != EXPECTED["moving"]}
        if fault.kind == "moving":
            lasts = {(f[0],) for f in lasts}
        if fault.kind == "host":
            lasts = {(f[0], f[1]) for f in lasts}
        meant = {(kind, rank) for rank in fault.ranks} if fault.ranks else {(kind,)}
        if fault.kind in {"host", "several"}:
            meant = {(kind, *fault.ranks[: 1 if fault.kind == "host" else None])}
        costs = float(ill.step_ms[fault.begin : fault.end].sum() / well.step_ms[fault.begin : fault.end].sum())
        self.worth.append(WORTH.reached(costs))
        if self.worth[-1]:
            self.named.append(lasts == meant if fault.end > len(ill) else bool(right) and not lasts)
        if right:
            self.after.append(right[0][0] - since + 1)
            begun = [at for _, at in right if at is not None]
            self.onset.append(abs(begun[-1] - since))
            self.moved.append(max(begun) - min(begun))
        ends = [step for step, _, text in told.events if re.search("keeps? up again", text)]
        self.flaps += sum(since + 10 < step < end for step in ends)
        for finding in told.last:
            if finding.kind == kind and "gain" in finding.evidence and finding.until_step is None:
                # What is predicted is of the steps in the window since it began.
                first = max(fault.begin, len(ill) - WINDOW_STEPS)
                real = ill.step_ms[first:].sum() / well.step_ms[first:].sum()
                gain = finding.evidence.get("gain_together") or finding.evidence["gain"]
                self.gain.append(abs(float(gain) / real - 1))

    def row(self) -> str:
        hours = self.seconds / 3600
        head = f"{len(self.heads):4}  {hours:5.2f}  {self.accused:4}  {self.false / hours:7.2f}"
        head += f"  {fewer_than(self.false) / hours:6.2f}  {self.turns / hours:7.2f}"
        head += f"  {np.mean(self.heads):5.1f}"
        if not self.worth:
            return head
        named = f"{np.mean(self.named):5.0%}" if self.named else "    -"
        head += f"  {np.mean(self.worth):5.0%}  {named}"
        if not self.after:
            return head
        off = np.quantile(self.onset, [0.5, 0.95])
        gain = f"{np.quantile(self.gain, 0.9):6.1%}" if self.gain else "     -"
        return (
            f"{head}  {np.median(self.after):5.0f} {max(self.after):5}"
            f"  {off[0]:5.0f} {off[1]:5.0f} {max(self.moved):5}  {gain}  {self.flaps:4}"
        )


HEAD = (
    f"{'noise':16} {'fault':14} {'runs':>4}  {'hours':>5}  {'bad':>4}  {'false/h':>7}  {'below':>6}  {'turns/h':>7}"
    f" {'head':>6}  {'worth':>5}  {'named':>5}  {'told after':>11}  {'onset, moved':>17}  {'gain':>6}  {'flaps':>4}"
)


def fewer_than(events: int) -> float:
    """What the expected number of events is below with 95% certainty, where so many came (Poisson; of none: 3.0)."""
    low, high = 0.0, 3.0 * events + 5.0
    for _ in range(50):
        middle = (low + high) / 2
        chance = sum(middle**k / factorial(k) for k in range(events + 1)) * exp(-middle)
        low, high = (middle, high) if chance > 0.05 else (low, middle)
    return high


def false_events(told: Told, fault: Fault, memory: float) -> tuple[int, int]:
    """Events above info that are not true or were told before; and how often that ranks take turns.

    They do where noise stays alike for some steps: it may be told once.
    """
    false = turns = 0
    seen = set()
    for step, severity, text in told.events:
        if severity == "info":
            continue
        said = FIGURES.sub("#", text.split(":")[0])
        who = re.match(r"(ranks? |host)(\d[\d -]*)", text)
        if who is not None and who[1] == "host":
            right = fault.kind == "host" and text.startswith(f"host{fault.ranks[0] // len(fault.ranks)} ")
            false += not right or step < FIRST + fault.begin or (said, who[0]) in seen
        elif who is None:
            turns += 1
            false += said in seen or (memory <= 1 and fault.kind != "moving")
        else:
            right = ranks_of(who[2]) <= set(fault.ranks) and step >= FIRST + fault.begin
            false += not right or (said, who[0]) in seen
        seen |= {said} if who is None else {(said, who[0])}
    return false, turns


def ranks_of(words: str) -> set[int]:
    """Of "1 3-4 6"."""
    spans = [[int(end) for end in word.split("-")] for word in words.split()]
    return {rank for span in spans for rank in range(span[0], span[-1] + 1)}


def fault_of(kind: str, size: float, seed: int, args: argparse.Namespace) -> Fault:
    if kind == "none":
        return Fault()
    rank = seed * 7 % args.ranks
    there = host_ranks(args.ranks)
    host = range(rank // there * there, min(args.ranks, rank // there * there + there))
    some = range(rank, rank + 3 * max(3, args.ranks // 16), 3)
    ranks = {
        "moving": (),
        "two": (rank, (rank + 3) % args.ranks),
        "pair": sorted((rank, (rank + 3) % args.ranks)),
        "half": range(rank % 2, args.ranks, 2),
        "several": sorted(each % args.ranks for each in some),
        "host": host,
    }.get(kind, (rank,))
    begin = 0 if kind == "half" else args.begin if args.begin < args.steps else args.steps // 2
    ends = {"transient": begin + max(60, (args.steps - begin) // 3)}
    name = {"two": "late", "pair": "several", "half": "several"}.get(kind, kind)
    return Fault(name, size, tuple(ranks), PHASES[seed % 5], begin, ends.get(kind, 1 << 60))


@dataclass(frozen=True)
class One:
    """A run to be made, as it travels to a process."""

    noise: str
    kind: str
    size: float
    seed: int
    args: argparse.Namespace


def score_of(one: One) -> tuple[Score, str]:
    """Of one run, and what was told of it."""
    noise, args = NOISES[one.noise], one.args
    fault = fault_of(one.kind, one.size, one.seed, args)
    ill, well = run(noise, fault, args.ranks, args.steps, args.step_ms, one.seed)
    told = judged(ill, args.every or max(1, round(JUDGED_S * 1e3 / args.step_ms)))
    score = Score()
    score.add(told, ill, well, fault, noise.memory)
    return score, "".join(f"    {one.seed}: step {step:5} {how:5} {text}\n" for step, how, text in told.events)


def joined(scored: Iterable[tuple[Score, str]], verbose: bool) -> Score:
    total = Score()
    for score, text in scored:
        total.join(score)
        if verbose:
            print(text, end="", flush=True)
    return total


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--noise", nargs="+", choices=NOISES, default=list(NOISES))
    parser.add_argument(
        "--faults", nargs="+", default=["none", "late"],
        choices=("none", "late", "two", "pair", "several", "half", "host", "transient", "moving", "periodic", "uneven"),
    )  # fmt: skip
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.1, 0.25], help="of a step")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--step-ms", type=float, default=46.0)
    parser.add_argument("--begin", type=int, default=700, help="the fault's first step")
    parser.add_argument("--every", type=int, default=0, help="steps from one judgement to the next")
    parser.add_argument("--count", type=int, default=4, help="runs of each kind")
    parser.add_argument("--hours", type=float, default=0.0, help="of training without a fault, in place of --count")
    parser.add_argument("--jobs", type=int, default=1, help="processes that make runs at the same time")
    parser.add_argument("--seed", type=int, default=0, help="of the first")
    parser.add_argument("--verbose", action="store_true", help="print what was told")
    args = parser.parse_args(arguments)
    began = time.monotonic()
    if args.hours:
        args.count = ceil(args.hours * 3.6e6 / args.step_ms / args.steps)
    print(f"{args.ranks} ranks, {args.steps:,} steps of {args.step_ms:g} ms; seeds {args.seed} to"
          f" {args.seed + args.count - 1}\n{HEAD}", flush=True)  # fmt: skip
    with ProcessPoolExecutor(args.jobs) as pool:
        for name in args.noise:
            for kind in args.faults:
                for size in args.sizes if kind != "none" else [0.0]:
                    seeds = range(args.seed, args.seed + args.count)
                    ones = [One(name, kind, size, seed, args) for seed in seeds]
                    total = joined(pool.map(score_of, ones) if args.jobs > 1 else map(score_of, ones), args.verbose)
                    what = f"{kind} {size:.0%}" if size else "none"
                    print(f"{name:16} {what:14} {total.row()}", flush=True)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
