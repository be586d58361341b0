"""Public training programs as people wrote them, bare and under ddpmon: does it change nothing and tell the truth?

    python benchmarks/field_scripts.py --checkouts DIR                 all of field_scripts.toml, about a minute each
    python benchmarks/field_scripts.py --checkouts DIR --only NAME …   only these
    python benchmarks/field_scripts.py --checkouts DIR --json OUT      the figures, and what is behind them

DIR holds a checkout of each repository under its own name; nothing is fetched. Each program runs on two CPU processes
with tiny synthetic data three times, each time in a copy of its own: bare, watched, and watched while one rank's
process is stopped three quarters of the time by signals. What it really did is noted inside it by field_witness.py,
which knows nothing of ddpmon; what ddpmon tells is read from `report --format json` and `export --format csv`.

Printed: whether output (without times), weights of all ranks and exit code are those of the bare run; steps told of
those made; printed losses that the export has; step time and samples/s told over the witness's; whether the slowed rank
was named (live: only while it ran). The witness's steps leave out those during which the script evaluated, saved or
began with a DataLoader. Below: phases that no step is told to have; pauses that were taken for part of a step;
findings above `info` in the clean run; what was said instead of the slowed rank.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from field_program import Copy, Program, UnfitError, programs
from field_runs import Run, Slowed, run
from field_truth import (
    busy,
    false_findings,
    gaps_ms,
    is_slower,
    loss_agreement,
    named,
    pauses,
    same_output,
    step_ms,
    steps_made,
)

TABLE = Path(__file__).with_suffix(".toml")
SLOWED = 1


@dataclass
class Outcome:
    """The results of one program; None where a result is not known."""

    name: str
    error: str = ""
    output: bool | None = None
    weights: bool | None = None
    exits: tuple[int, int] = (0, 0)
    ranks: int = 0
    steps: int = 0
    steps_made: int = 0
    losses: str = ""
    step_ms: float | None = None
    """Told over true, as is the next."""
    samples: float | None = None
    pauses: str = ""
    no_phase: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    named: str = "–"
    unfelt: bool = False
    """The fault slowed nothing: a machine too busy to give a rank more than a quarter of a core, for one."""
    slowed: list[str] = field(default_factory=list)
    details: dict = field(default_factory=dict)


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
            outcome.details = {"tail": runs[kind].tail}
            return outcome
    judge(outcome, program, runs)
    return outcome


def judge(outcome: Outcome, program: Program, runs: dict[str, Run]) -> None:
    bare, watched, slowed = runs["bare"], runs["watched"], runs.get("slowed")
    differences = same_output(bare, watched)
    outcome.output = not differences
    outcome.weights = bool(bare.weights) and bare.weights == watched.weights
    outcome.exits = bare.exit, watched.exit
    outcome.steps_made = steps_made(program, watched)
    outcome.details = {"output differs": differences[:40], "headless": watched.headless}
    outcome.details |= {"bare ms": step_ms(program, bare), "gaps ms": gaps_ms(watched)}
    outcome.details["ranks' weights are one"] = len(set(watched.weights.values())) == 1
    if outcome.steps_made != program.steps:
        outcome.error = f"made {outcome.steps_made} steps, described with {program.steps}"
    report = watched.report
    if report:
        outcome.ranks = sum(rank["steps"] > 0 for rank in report["ranks"])
        outcome.steps = report["steps"]["count"]
        outcome.losses = loss_agreement(program, watched)
        true_ms, told_ms = step_ms(program, watched), report["steps"]["step_ms"]["p50"]
        if true_ms and told_ms:
            outcome.step_ms = told_ms / true_ms[0]
        if true_ms and (rate := report["steps"]["samples_per_s"]):
            outcome.samples = rate / (program.batch * program.ranks / true_ms[1] * 1000)
        outcome.pauses = pauses(watched)
        phases = [rank["phases_ms"] for rank in report["ranks"] if rank["steps"]]
        outcome.no_phase = [p for p in ("forward", "backward", "optimizer") if not any(rank[p] for rank in phases)]
        outcome.details |= {"true ms": true_ms, "report": report}
    outcome.false, outcome.busy = false_findings(watched), busy(watched)
    if slowed:
        slowed_ms = step_ms(program, slowed)
        outcome.unfelt = not is_slower(slowed_ms, step_ms(program, watched))
        outcome.named = "–" if outcome.unfelt else named(slowed, SLOWED)
        outcome.slowed = [f["text"] for f in slowed.findings if f["severity"] != "info"]
        outcome.details |= {"slowed report": slowed.report, "slowed headless": slowed.headless}
        outcome.details |= {"slowed ms": slowed_ms, "bursts": slowed.bursts}


HEAD = f"{'program':28} out wts exit  ranks  steps      losses        ms    smp/s  named"


def line(outcome: Outcome) -> str:
    if outcome.error and not outcome.steps_made:
        return f"{outcome.name:28} {outcome.error}"
    word = {None: "–", True: "yes", False: "NO"}
    ratio = lambda value: "–" if value is None else f"{value:.2f}"
    codes = outcome.exits
    exits = str(codes[0]) if codes[0] == codes[1] else f"{codes[0]}→{codes[1]}"
    told = (
        f"{outcome.name:28} {word[outcome.output]:3} {word[outcome.weights]:3} {exits:5} {outcome.ranks:5}"
        f"  {f'{outcome.steps}/{outcome.steps_made}':9}  {outcome.losses:12}  {ratio(outcome.step_ms):>4}"
        f"  {ratio(outcome.samples):>5}  {outcome.named}"
    )
    notes = [outcome.error] if outcome.error else []
    if outcome.steps:
        notes += [f"no {phase} at all" for phase in outcome.no_phase]
    else:
        notes.append("not watched at all")
    notes += [outcome.pauses] if outcome.pauses else []
    notes += [f"false: {text}" for text in outcome.false]
    notes += [f"busy machine: {', '.join(outcome.busy)}"] if outcome.busy else []
    notes += ["the slowed run was not slower"] if outcome.unfelt else []
    if outcome.named in {"NO", "live"}:
        notes += [f"slowed: {text}" for text in outcome.slowed or ["nothing above info"]]
    return "\n".join([told, *(f"    {note}" for note in notes)])


def summary(outcomes: list[Outcome]) -> None:
    ran = [o for o in outcomes if o.steps_made]
    counts = {
        "output as without ddpmon": [o.output for o in ran],
        "weights as without ddpmon": [o.weights for o in ran],
        "exit code as without ddpmon": [o.exits[0] == o.exits[1] for o in ran],
        "steps told as made": [o.steps == o.steps_made for o in ran],
        "no finding above info when clean": [not o.false for o in ran],
        "slowed rank named in the report": [o.named == "yes" for o in ran if o.named != "–"],
    }
    for what, each in counts.items():
        print(f"{what}: {sum(map(bool, each))} of {len(each)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkouts", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="programs whose name has this in it")
    parser.add_argument("--json", type=Path, metavar="OUT")
    parser.add_argument("--ddpmon", type=Path, default=Path(sys.executable).parent / "ddpmon", help="its program")
    parser.add_argument("--no-fault", action="store_true", help="without the slowed run")
    args = parser.parse_args()
    chosen = [p for p in programs(TABLE) if not args.only or any(name in p.name for name in args.only)]
    print(f"{len(chosen)} programs on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the first\n{HEAD}")
    began, outcomes = time.monotonic(), []
    for program in chosen:
        outcomes.append(outcome_of(program, args.checkouts.resolve(), args.ddpmon.absolute(), fault=not args.no_fault))
        print(line(outcomes[-1]), flush=True)
        if args.json:
            args.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1))
    summary(outcomes)
    print(f"{time.monotonic() - began:.0f} s; load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
