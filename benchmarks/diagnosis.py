"""Measure how well ddpmon names faults: real torchrun runs on gloo under `ddpmon run --headless`, each with one fault.

    python benchmarks/diagnosis.py           all kinds, phases, sizes and step lengths, and 30 clean runs (an hour)
    python benchmarks/diagnosis.py --quick   one of each kind, in about three minutes
    python benchmarks/diagnosis.py --kinds moving periodic   only runs of these kinds; none: the clean ones
    python benchmarks/diagnosis.py --step-ms 25   only runs with steps of this length
    python benchmarks/diagnosis.py --drawn 20 --seed 100   runs drawn at random: fault, size, phase, ranks, moment

For each run it prints whether kind, rank and phase in the report are right; after how many steps and seconds the fault
was named, including the hub's own delay; findings above `info` that should not be there; and the gain that the report
predicts beside the real one: the median step with the fault over that without it. For a rank that hangs or is killed,
it prints the seconds from its last step until it was named.
Thresholds may be tuned on runs with seeds below 100. Runs with seeds from 100 on are only reported, each once.
"""

from __future__ import annotations

import itertools
import random
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from launching import finish, load, options, own_home, watched

from ddpmon import runs
from ddpmon.analysis.steps.world import World
from ddpmon.recording.recorded import recorded_report
from ddpmon.recording.recording import Recording
from ddpmon.recording.restoring import REPORT_RECORDS, restored_store

SCRIPT = Path(__file__).parent / "diagnosis_steps.py"
TELLING = 900, 300
"""Number of 25 ms steps in a run, and number of these before the fault, that suffice to measure the real gain. With
only fifty steps before the fault, the standard error of the gain is 2%, most of the error of predictions."""
EXPECTED = {
    "persistent": "straggler",
    "moving": "moving_straggler",
    "periodic": "periodic_straggler",
    "transient": "straggler",
    "uneven": "load_imbalance",
    "irregular": "straggler",
    "ramp": "straggler",
    "bursts": "late_in_bursts",
    "faster": "straggler",
    "changes": "straggler",
    "all": "run_slowed",
    "hang": "hang",
    "dead": "rank_failed",
}
OF_ALL = {"moving", "all"}
"""Kinds of faults that affect more than one rank."""
ENDS = {"hang", "dead"}
"""Kinds of faults after which no more steps are made."""
NOT_OF_RANKS = {"cpu_starved", "telemetry_lost"}
"""Kinds of findings that are true of a machine that is too busy; they are counted separately."""


@dataclass(frozen=True)
class Case:
    kind: str = "none"
    ranks: tuple[int, ...] = (1,)
    phase: str = "backward"
    size: float = 0.25
    step_ms: float = 40.0
    norm: bool = False
    steps: int = 150
    begin: int = 60
    end: int = 0
    every: int = 10
    accumulate: int = 1
    nproc: int = 4

    def arguments(self) -> list[str]:
        options = ["--kind", self.kind, "--ranks", ",".join(map(str, self.ranks)), "--phase", self.phase]
        options += ["--size", str(self.size), "--step-ms", str(self.step_ms), "--steps", str(self.steps)]
        options += ["--begin", str(self.begin), "--end", str(self.end), "--every", str(self.every)]
        options += ["--accumulate", str(self.accumulate)]
        return options + ["--norm"] * self.norm

    def __str__(self) -> str:
        who = "" if self.kind in {"none", "moving"} else ",".join(map(str, self.ranks))
        what = "" if self.kind in {"none", "uneven", *ENDS} else self.phase
        size = "" if self.kind in {"none", *ENDS} else f"{self.size:.0%}"
        start = f"{self.kind:10} {who:4} {what:9} {size:>4} {self.step_ms:4.0f}{' bn' if self.norm else '   '}"
        return f"{start} of {self.nproc}{f' x{self.accumulate}' if self.accumulate > 1 else '   '}"


@dataclass(frozen=True)
class Outcome:
    """The result of one case. `right` is None for a clean run, `named` is in seconds and steps, `predicted` and `real`
    are gains.
    """

    right: bool | None
    named: tuple[float, int] | None
    false: list[str]
    busy: list[str]
    predicted: float | None = None
    real: float | None = None


def run(case: Case) -> Outcome:
    """Run a case, and judge ddpmon's findings."""
    with own_home():
        codes = range(1, 256) if case.kind == "dead" else [0]
        finish([*watched(case.nproc, SCRIPT), *case.arguments()], expected=codes)
        made = runs.find(None)
        with Recording(made) as recording:
            store = restored_store(recording, REPORT_RECORDS)
            events = [(recording.clock, event) for event in store.events]
        return judge(case, recorded_report(made), store.world, events)


def judge(case: Case, report: dict, world: World, events: list) -> Outcome:
    findings = [f for f in report["findings"] if f["severity"] != "info"]
    busy = sorted({f["kind"] for f in findings if f["kind"] in NOT_OF_RANKS})
    findings = [f for f in findings if f["kind"] not in NOT_OF_RANKS]
    if case.kind == "none":
        return Outcome(None, None, [f["text"] for f in findings], busy)
    kind = EXPECTED[case.kind]
    if case.kind == "hang":  # The rank continued afterwards, and the report of a run that ended well has no hang.
        words = f"rank {case.ranks[0]} does not reach"
        right = any(words in event.text and SCRIPT.name in event.text for _, event in events)
        return Outcome(right, named(case, world, events, words), [f["text"] for f in findings], busy)
    if case.kind in {"transient", "changes"}:  # Findings that have ended count too.
        findings = [f for f in report["findings"] if f["kind"] == kind]
    if case.kind == "faster":  # One rank got faster; the other one has no fault.
        told = [f for f in report["findings"] if f["kind"] == kind and f["ranks"] != list(case.ranks)]
        right = bool(told) and all(f["evidence"].get("changed") == "others" for f in told)
        return Outcome(right, None, [f["text"] for f in findings], busy)
    kinds = {kind, "several_stragglers"} if len(case.ranks) > 1 else {kind}
    mine = [f for f in findings if f["kind"] in kinds and (case.kind in OF_ALL or f["ranks"][0] in case.ranks)]
    ranks = {rank for f in mine for rank in f["ranks"]}
    right = ranks >= set(case.ranks) if case.kind not in OF_ALL else bool(mine)
    if case.kind == "changes":
        right = right and [(f["phase"], f["until_step"] is None) for f in mine][:1] == [(case.phase, True)]
    elif case.kind not in {"uneven", "dead"}:
        right = right and all(f["phase"] == case.phase for f in mine)
    if case.kind in {"irregular", "ramp"}:
        right = right and all(f["evidence"]["pattern"] == case.kind for f in mine)
    if case.kind == "bursts":
        right = right and all(f["evidence"]["unit"] == "seconds" for f in mine)
        right = right and all(abs(f["evidence"]["every"] - case.every) < 0.5 for f in mine)
    if case.kind == "periodic":
        right = right and all(f["evidence"]["every"] == case.every for f in mine)
    if case.kind == "transient":
        right = right and all(abs(f["until_step"] - case.end) <= 3 for f in mine if f["until_step"])
    false = [f["text"] for f in findings if f not in mine]
    return Outcome(right, named(case, world, events), false, busy, *gains(case, mine, world))


def named(case: Case, world: World, events: list, words: str = "") -> tuple[float, int] | None:
    """Return seconds and steps from the end of the first faulty step to its event; for a fault that ends the steps,
    from the last.
    """
    words = words or {"moving": "another rank", "all": "all ranks"}.get(case.kind, f"rank {case.ranks[0]} ")
    first = int(np.searchsorted(world.step, case.begin)) - (case.kind in ENDS)
    for clock, event in events:
        ends = np.array([clock.unix_at(int(us)) for us in world.end_us])
        if event.at >= ends[first] and words in event.text and event.severity != "info":
            return event.at - ends[first], int(np.searchsorted(ends, event.at)) - first
    return None


def gains(case: Case, mine: list, world: World) -> tuple[float | None, float | None]:
    """Return the predicted and the real gain, for faults that slow each step since their beginning equally."""
    if not mine or case.kind not in {"persistent", "moving", "uneven", "all"}:
        return None, None
    faulty = world.step >= case.begin
    length = world.length_ms.max(axis=1)
    clean = ~faulty & (world.step > 10)
    real = float(np.median(length[faulty]) / np.median(length[clean]))
    evidence = mine[0]["evidence"]
    return evidence.get("gain_together", evidence["gain"]), real


def quick() -> list[Case]:
    base = Case()
    return [
        base,
        replace(base, kind="persistent", ranks=(2,), size=0.25),
        replace(base, kind="persistent", ranks=(0,), phase="data", size=0.1, steps=180),
        replace(base, kind="persistent", ranks=(1, 3), phase="forward", size=0.5),
        replace(base, kind="moving", size=0.5),
        replace(base, kind="periodic", ranks=(0,), phase="other", size=1.0, begin=10, every=10),
        replace(base, kind="transient", ranks=(3,), phase="optimizer", size=0.5, begin=60, end=100),
        replace(base, kind="uneven", ranks=(1,), size=0.5),
        replace(base, kind="persistent", ranks=(0,), phase="backward", size=0.25, norm=True),
        replace(base, kind="all", steps=300),
        replace(base, kind="changes", ranks=(3,), size=0.5, begin=150, steps=300),
        replace(base, kind="irregular", ranks=(2,), size=1.5, begin=10, every=10, steps=700),
        replace(base, kind="ramp", ranks=(0,), size=1.0, begin=150, steps=500),
        replace(base, kind="bursts", ranks=(1,), phase="data", size=0.5, begin=1, every=8, steps=1100),
        replace(base, kind="faster", ranks=(1,), size=0.5, begin=150, steps=300, nproc=2),
        replace(base, kind="hang", ranks=(2,), steps=80),
        replace(base, kind="dead", ranks=(3,)),
    ]


def everything() -> list[Case]:
    cases = [Case(step_ms=ms, norm=norm, steps=200) for ms in (20.0, 50.0, 100.0) for norm in (False, True)] * 5
    for ms, phase, size in itertools.product((25.0, 100.0, 200.0), SHARED_PHASES, (0.1, 0.25, 1.0)):
        rank = len(cases) % 4
        steps, begin = (160, 60) if ms > 50 else TELLING
        cases.append(Case("persistent", (rank,), phase, size, ms, bool(len(cases) % 2), steps, begin))
    for ms, size in itertools.product((25.0, 100.0), (0.25, 1.0)):
        base = Case(size=size, step_ms=ms, steps=200)
        long = base if ms > 50 else replace(base, steps=TELLING[0], begin=TELLING[1])
        cases += [
            replace(long, kind="persistent", ranks=(1, 3), phase="forward"),
            replace(base, kind="moving", begin=60),
            replace(base, kind="periodic", ranks=(0,), phase="other", begin=10, every=7),
            replace(base, kind="transient", ranks=(3,), phase="data", end=100),
            replace(long, kind="uneven", ranks=(2,)),
        ]
    for rank in range(4):
        cases += [Case("hang", (rank,), steps=80), Case("dead", (rank,))]
    return cases


def drawn(count: int, seed: int) -> list[Case]:
    """Draw cases of any kind that does not end the steps, a sixth of them clean, each some 15 s long."""
    chance, cases = random.Random(seed), []
    for _ in range(count):
        nproc, step_ms = chance.randint(2, 6), round(20 * 10 ** chance.random())
        steps = max(150, 15_000 // step_ms)
        begin = chance.randint(30, steps // 2)
        case = Case(
            kind=chance.choice(("none", "persistent", "moving", "periodic", "transient", "uneven")),
            ranks=(chance.randrange(nproc),),
            phase=chance.choice(SHARED_PHASES),
            size=chance.choice((0.1, 0.15, 0.25, 0.5, 1.0)),
            step_ms=step_ms, norm=chance.random() < 0.5, steps=steps, begin=begin, every=chance.randint(5, 12),
            accumulate=chance.choice((1, 1, 2, 4)), nproc=nproc,
        )  # fmt: skip
        if case.kind == "transient":
            case = replace(case, end=begin + chance.randint(steps // 5, steps // 3))
        elif case.kind == "periodic":  # On average, a step is slowed as much as by a fault in each step.
            case = replace(case, begin=10, size=case.size * case.every)
        cases.append(case)
    return cases


SHARED_PHASES = ("data", "forward", "backward", "optimizer", "other")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--nproc", type=int, help="but for runs drawn at random, which have 2 to 6")
    parser.add_argument("--drawn", type=int, metavar="N", help="so many runs drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument("--kinds", nargs="+", choices=["none", *EXPECTED], help="only these")
    parser.add_argument("--step-ms", nargs="+", type=float, metavar="MS", help="only steps of these lengths")
    args = parser.parse_args()
    if args.drawn:
        cases = drawn(args.drawn, args.seed)
    else:
        cases = [replace(case, nproc=args.nproc or case.nproc) for case in (quick() if args.quick else everything())]
    cases = [case for case in cases if not args.kinds or case.kind in args.kinds]
    cases = [case for case in cases if not args.step_ms or case.step_ms in args.step_ms]
    print(load())
    head = (
        f"{'kind':10} {'rank':4} {'phase':9} {'size':>4} {'ms':>4}    of      right  named after        gain told/real"
    )
    print(f"{head}  false")
    outcomes = []
    for case in cases:
        outcome = run(case)
        outcomes.append((case, outcome))
        print(line(case, outcome), flush=True)
    summary(outcomes)
    print(load())


def line(case: Case, outcome: Outcome) -> str:
    right = {None: "-", True: "yes", False: "NO"}[outcome.right]
    after = pace(outcome.named)
    gain = f"{outcome.predicted:.2f}/{outcome.real:.2f}" if outcome.predicted and outcome.real else ""
    busy = f"  ({', '.join(outcome.busy)})" if outcome.busy else ""
    return f"{case!s}  {right:5}  {after:17}  {gain:>14}  {'; '.join(outcome.false) or 0}{busy}"


def pace(after: tuple[float, int] | None) -> str:
    return f"{after[1]:4} steps {after[0]:4.1f} s" if after else ""


def summary(outcomes: list[tuple[Case, Outcome]]) -> None:
    slow = [(c, o) for c, o in outcomes if c.kind not in {"none", *ENDS}]
    for name, chosen in (
        ("25% and more", [o for c, o in slow if c.size >= 0.25]),
        ("10%", [o for c, o in slow if c.size < 0.25]),
        ("hangs", [o for c, o in outcomes if c.kind == "hang"]),
        ("killed ranks", [o for c, o in outcomes if c.kind == "dead"]),
    ):
        if chosen:
            seconds = sorted(o.named[0] for o in chosen if o.named)
            spread = f"; named after {statistics.median(seconds):.1f} s, at most {seconds[-1]:.1f} s" if seconds else ""
            print(f"right at {name}: {sum(bool(o.right) for o in chosen)} of {len(chosen)}{spread}")
    clean = [o for c, o in outcomes if c.kind == "none"]
    print(f"clean runs with a finding above info: {sum(bool(o.false) for o in clean)} of {len(clean)}")
    for name, chosen in (
        ("100 ms and more", [o for c, o in outcomes if c.step_ms >= 100]),
        ("below 100 ms", [o for c, o in outcomes if c.step_ms < 100]),
    ):
        errors = [abs(o.predicted / o.real - 1) for o in chosen if o.predicted and o.real]
        if errors:
            p90 = float(np.quantile(errors, 0.9))
            print(f"gain error at {name}: median {statistics.median(errors):.1%}, p90 {p90:.1%} of {len(errors)}")


if __name__ == "__main__":
    main()
