"""Run public training programs bare and under ddpmon: does ddpmon change nothing, and report correctly?

    python benchmarks/field_scripts.py --checkouts DIR                 all of field_scripts.toml, about a minute each
    python benchmarks/field_scripts.py --checkouts DIR --only NAME …   only these
    python benchmarks/field_scripts.py --checkouts DIR --json OUT      the figures, and the data behind them

DIR contains a checkout of each repository under its own name; nothing is fetched. Each program runs three times on two
CPU processes with tiny synthetic data, each time in a copy of its own: bare, watched, and watched while signals stop
one rank's process three quarters of the time. field_witness.py, which does not depend on ddpmon, records inside the
program what it really does; ddpmon's account is read from its report.

The output has: whether printed lines (without times), weights of all ranks and exit code are those of the bare run;
reported steps beside the real number; reported step time and samples/s relative to the witness's; whether the slowed
rank was named (live: only while the run lasted). The witness's steps leave out those in which the script evaluated,
saved or started a DataLoader. Findings above `info` in the clean run, and those instead of the slowed rank, follow.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from field_program import Copy, Program, UnfitError, programs
from field_runs import Run, Slowed, run
from field_truth import (
    busy,
    false_findings,
    is_slower,
    named,
    output_differences,
    step_ms,
    steps_made,
)
from launching import load, options

TABLE = Path(__file__).with_suffix(".toml")
SLOWED = 1


@dataclass
class Outcome:
    """The results of one program; None where a result is not known."""

    name: str
    error: str = ""
    differences: list[str] = field(default_factory=list)
    """Lines of output that only the bare or only the watched run printed."""
    weights: bool = False
    exits: tuple[int, int] = (0, 0)
    steps: int = 0
    steps_made: int = 0
    step_ms: float | None = None
    """Reported step time relative to the true one; `samples` is the same ratio for samples/s."""
    samples: float | None = None
    false: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    named: str = "–"
    unfelt: bool = False
    """True if the fault slowed nothing, for example on a machine too busy to give a rank more than a quarter of a
    core."""
    slowed: list[str] = field(default_factory=list)
    reports: list[dict | None] = field(default_factory=list)


def outcome_of(program: Program, checkouts: Path, ddpmon: Path, *, fault: bool) -> Outcome:
    outcome = Outcome(program.name)
    runs: dict[str, Run] = {}
    for kind in ("bare", "watched", "slowed")[: 3 if fault else 2]:
        with tempfile.TemporaryDirectory(prefix="field-") as root:
            copy = Copy(program, Path(root), str(ddpmon.parent / "python"), checkouts)
            try:
                copy.make()
            except UnfitError as error:
                outcome.error = str(error)
                return outcome
            usual = step_ms(program, runs["bare"]) if kind == "slowed" else None
            runs[kind] = run(copy, ddpmon if kind != "bare" else None, usual and Slowed(SLOWED, usual[0]))
        if kind == "bare" and runs[kind].exit:
            outcome.error = f"bare run: exit {runs[kind].exit}: {runs[kind].last_line}"
            return outcome
    judge(outcome, program, runs)
    return outcome


def judge(outcome: Outcome, program: Program, runs: dict[str, Run]) -> None:
    """Compare ddpmon's account of the watched runs with the bare run and with the witness."""
    bare, watched, slowed = runs["bare"], runs["watched"], runs.get("slowed")
    outcome.differences = output_differences(bare, watched)
    outcome.weights = bool(bare.weights) and bare.weights == watched.weights
    outcome.exits = bare.exit, watched.exit
    outcome.steps_made = steps_made(program, watched)
    if outcome.steps_made != program.steps:
        outcome.error = f"made {outcome.steps_made} steps, described with {program.steps}"
    outcome.reports = [watched.report, slowed.report if slowed else None]
    if watched.report:
        told = watched.report["steps"]
        outcome.steps = told["count"]
        true_ms = step_ms(program, watched)
        if true_ms and told["step_ms"]["p50"]:
            outcome.step_ms = told["step_ms"]["p50"] / true_ms[0]
        if true_ms and told["samples_per_s"]:
            outcome.samples = told["samples_per_s"] / (program.batch * program.ranks / true_ms[1] * 1000)
    outcome.false, outcome.busy = false_findings(watched), busy(watched)
    if slowed:
        outcome.unfelt = not is_slower(step_ms(program, slowed), step_ms(program, watched))
        outcome.named = "–" if outcome.unfelt else named(slowed, SLOWED)
        outcome.slowed = [f["text"] for f in slowed.findings if f["severity"] != "info"]


HEAD = f"{'program':28} out wts exit   steps        ms  smp/s  named"


def line(outcome: Outcome) -> str:
    if outcome.error and not outcome.steps_made:
        return f"{outcome.name:28} {outcome.error}"
    word = {True: "yes", False: "NO"}
    ratio = lambda value: "–" if value is None else f"{value:.2f}"
    before, after = outcome.exits
    exits = str(before) if before == after else f"{before}→{after}"
    told = (
        f"{outcome.name:28} {word[not outcome.differences]:3} {word[outcome.weights]:3} {exits:5}"
        f"  {f'{outcome.steps}/{outcome.steps_made}':9}  {ratio(outcome.step_ms):>4}  {ratio(outcome.samples):>5}"
        f"  {outcome.named}"
    )
    notes = [outcome.error] if outcome.error else []
    notes += [] if outcome.steps else ["not watched at all"]
    notes += [f"false: {text}" for text in outcome.false]
    notes += [f"busy machine: {', '.join(outcome.busy)}"] if outcome.busy else []
    notes += ["the slowed run was not slower"] if outcome.unfelt else []
    if outcome.named in {"NO", "live"}:
        notes += [f"slowed: {text}" for text in outcome.slowed or ["nothing above info"]]
    return "\n".join([told, *(f"    {note}" for note in notes)])


def summary(outcomes: list[Outcome]) -> None:
    ran = [o for o in outcomes if o.steps_made]
    counts = {
        "output as without ddpmon": [not o.differences for o in ran],
        "weights as without ddpmon": [o.weights for o in ran],
        "exit code as without ddpmon": [o.exits[0] == o.exits[1] for o in ran],
        "steps told as made": [o.steps == o.steps_made for o in ran],
        "no finding above info when clean": [not o.false for o in ran],
        "slowed rank named in the report": [o.named == "yes" for o in ran if o.named != "–"],
    }
    for what, each in counts.items():
        print(f"{what}: {sum(map(bool, each))} of {len(each)}")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--checkouts", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="programs whose name has this in it")
    parser.add_argument("--json", type=Path, metavar="OUT")
    parser.add_argument("--ddpmon", type=Path, default=Path(sys.executable).parent / "ddpmon", help="its program")
    parser.add_argument("--no-fault", action="store_true", help="without the slowed run")
    args = parser.parse_args()
    chosen = [p for p in programs(TABLE) if not args.only or any(name in p.name for name in args.only)]
    print(f"{len(chosen)} programs; {load()}\n{HEAD}")
    outcomes = []
    for program in chosen:
        outcomes.append(outcome_of(program, args.checkouts.resolve(), args.ddpmon.absolute(), fault=not args.no_fault))
        print(line(outcomes[-1]), flush=True)
        if args.json:
            args.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    summary(outcomes)


if __name__ == "__main__":
    main()
