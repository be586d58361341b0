"""Compare ddpmon with alternatives: TraceML from PyPI, py-spy top on the ranks, and bare torchrun, in one run.

    python benchmarks/field.py                                  all parts, as tables in Markdown (some 20 minutes)
    python benchmarks/field.py --parts place --seconds 45       only the cost of each tool to the training thread
    python benchmarks/field.py --parts runs --rounds 3 --kept F  only whole runs, with results of earlier calls in F
    python benchmarks/field.py --parts verdicts --seed 3        only the verdicts on the faults that this seed draws
    python benchmarks/field.py --parts verdicts --only hang crash

TraceML and py-spy are installed from PyPI into a folder that only their runs use; torch and Python are those of this
ddpmon. The scripts of TraceML's runs get the two lines that it asks for; those of ddpmon get none, and ddpmon runs with
`--headless`. py-spy samples each rank of a bare run, in a terminal of its own, and gives no verdict.

Costs are measured in two ways. In place: in one process, blocks of steps with and without the tool alternate, if the
script can switch it off (TraceML's patches stay in torch even then, which flatters it). In whole runs: runs of the
tools alternate, each with the same number of steps and the same work, which a bare run sets once. The results are the
length of a step, and the CPU seconds of all processes, adopted ones too (`reaper.py`), both while steps are measured
and from start to end. TraceML runs in its default mode, a summary at the end.

For verdicts, the same script runs with the same fault under each tool, TraceML in its live mode (`--mode cli`), so that
it can report at once. A sentence is right if it names the rank (or all of them) and the phase, or says what is wrong if
no rank's phase is; `Scenario.is_right` applies the same patterns to every tool. A tool is right if its closing
sentences are right, or any that it showed during the fault; in a clean run, if it never blamed a rank. The sentences
are printed below the table, so that readers can judge.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from field_commands import Finished, Tool, of_costs, of_verdicts, run
from field_faults import NPROC, Scenario, drawn
from launching import load, middle, options, own_home, print_head, print_row
from rank_cost import added
from rank_cost import measured as measured_in_rank

STEPS = Path(__file__).parent / "rank_measures.py"
FAULTS = Path(__file__).parent / "diagnosis_steps.py"
STEPS_A_VERDICT = "400"
"""Steps of a verdict run: the fault lasts more than 14 seconds."""
PARTS = ("place", "runs", "verdicts")
PLACE_MS, RUNS_MS = 10.0, 10.0
"""Length of the steps that are measured in place, and of the steps of a whole run, as a bare run sets its work."""


@dataclass
class Verdict:
    right: bool
    after_s: float | None
    """Seconds from the first faulty step until the first right sentence."""
    said: str


def verdict(tool: Tool, scenario: Scenario, folder: Path) -> Verdict:
    """Return a tool's sentences on a run with a fault, and when it first named the fault."""
    mark = folder / "mark"
    finished = run(tool, NPROC, FAULTS, [*scenario.arguments, "--steps", STEPS_A_VERDICT, "--mark", str(mark)], folder)
    over = time.time()
    closing = tool.verdict(finished)
    began = float(mark.read_text()) if mark.exists() else over
    said = [(at, line) for at, line in finished.lines if tool.is_said(line)]
    if scenario.name == "clean":
        blaming = [line for _, line in said if not scenario.is_right(line)]
        return Verdict(not blaming and scenario.is_right(closing), None, "; ".join(dict.fromkeys([*blaming, closing])))
    right = [(at, line) for at, line in said if at >= began and scenario.is_right(line)]
    if closing and scenario.is_right(closing):
        right.append((over, closing))
    if not right:
        return Verdict(False, None, closing or "; ".join(line for _, line in said[-1:]))
    at, first = right[0]
    return Verdict(True, at - began, first if first in closing else f"{first}; at the end: {closing or '–'}")


@dataclass
class Costs:
    """The costs of one run."""

    tool: str
    step_ms: float
    cpu_ms: float
    """CPU milliseconds of all processes per step."""
    seconds: float
    cpu_s: float
    """CPU seconds of all processes from start to end."""
    bytes: float
    """Bytes on disk per rank and step."""


def measured(tool: Tool, folder: Path, nproc: int, arguments: list[str]) -> tuple[Finished, dict]:
    """Return a run of `rank_measures.py`, and its results."""
    result = folder / "result"
    finished = run(tool, nproc, STEPS, [*arguments, "--result", str(result)], folder)
    if not result.exists():
        last = "\n".join(line for _, line in finished.lines[-20:])
        raise SystemExit(f"{tool.name} left no result:\n{last}")
    return finished, json.loads(result.read_text())


def costs(tool: Tool, folder: Path, nproc: int, rounds: int, steps: int) -> Costs:
    finished, said = measured(tool, folder, nproc, ["speed", "--rounds", str(rounds), "--steps", str(steps)])
    step_ms = said["step_ms"]
    return Costs(
        tool.name,
        step_ms,
        finished.steps_cpu_cores * step_ms,
        finished.seconds,
        finished.cpu_s,
        tool.bytes_left(folder) / (steps * nproc),
    )


def folders(base: Path) -> Iterator[Path]:
    base.mkdir()
    number = 0
    while True:
        number += 1
        folder = base / f"run{number}"
        folder.mkdir()
        yield folder


def print_place(chosen: list[Tool], base: Path, seconds: float) -> None:
    fresh = folders(base)
    print(f"\ntraining thread in place, one rank, steps of {PLACE_MS:.0f} ms: CPU that a tool adds to a step\n")
    print_head("", "µs by the whole step", "less what is inside layers, autograd and optimizer", "pairs")
    for tool in chosen:
        if tool.in_place:
            home = next(fresh)
            command, environment = tool.command(1, STEPS), tool.environment(home)
            found = measured_in_rank(command, "in-place", environment, step_ms=PLACE_MS, seconds=seconds)
            cycles = found["cycles"]
            print_row(tool.name, added(cycles, "watched", whole=True), added(cycles, "watched"), len(cycles))


def print_runs(chosen: list[Tool], base: Path, nproc: int, rounds: int, steps: int, kept: Path) -> None:
    """Run each tool once a round, add the results to those of earlier calls, and print them."""
    fresh = folders(base)
    earlier = json.loads(kept.read_text()) if kept.exists() else {}
    runs = [Costs(**one) for one in earlier.get("runs", [])]
    if not earlier:
        _, earlier = measured(chosen[0], next(fresh), nproc, ["speed", "--step-ms", str(RUNS_MS)])
    work = earlier["rounds"]
    for number in range(rounds):
        in_turn = chosen[number % len(chosen) :] + chosen[: number % len(chosen)]
        runs += [costs(tool, next(fresh), nproc, work, steps) for tool in in_turn]
        kept.write_text(json.dumps({"rounds": work, "runs": [asdict(one) for one in runs]}))
    of_each = {tool.name: [one for one in runs if one.tool == tool.name] for tool in chosen}
    bare = of_each[chosen[0].name]
    print(f"\n{nproc} ranks, {steps} steps of the same work, {len(bare)} rounds; medians (lowest to highest)\n")
    print_head(
        "", "a step", "against bare in its round", "CPU a step, all processes", "against bare in its round",
        "start to end", "CPU, start to end", "bytes a rank and step",
    )  # fmt: skip
    for tool in chosen:
        mine = of_each[tool.name]
        print_row(
            tool.name,
            middle([one.step_ms for one in mine], 2, " ms"),
            middle([one.step_ms / base.step_ms for one, base in zip(mine, bare, strict=True)], 3),
            middle([one.cpu_ms for one in mine], 2, " ms"),
            middle([one.cpu_ms / base.cpu_ms for one, base in zip(mine, bare, strict=True)], 3),
            middle([one.seconds for one in mine], 1, " s"),
            middle([one.cpu_s for one in mine], 1, " s"),
            f"{statistics.median(one.bytes for one in mine):.0f}",
        )


def print_verdicts(chosen: list[Tool], base: Path, seed: int, only: list[str]) -> None:
    fresh = folders(base)
    said: list[str] = []
    print(f"\nverdicts, {NPROC} ranks, steps of 40 ms, seed {seed}: right, and seconds until it was first said\n")
    print_head("", *(tool.name for tool in chosen))
    for scenario in drawn(seed):
        if only and not any(scenario.name.startswith(name) for name in only):
            continue
        cells = []
        for tool in chosen:
            one = verdict(tool, scenario, next(fresh))
            after = "" if one.after_s is None or not one.right else f", {one.after_s:.1f} s"
            cells.append(("yes" if one.right else "no" if one.said else "says nothing") + after)
            said.append(f"{scenario.name} ({' '.join(scenario.arguments)}), {tool.name}: {one.said or '–'}")
        print_row(scenario.name, *cells)
    print("\nwhat was said:\n")
    for line in said:
        print(f"- {line}")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what is measured; all of it")
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    parser.add_argument("--only", nargs="+", default=[], help="faults whose names begin so")
    parser.add_argument("--seconds", type=float, default=45.0, help="measured part of each line of `place`")
    parser.add_argument("--rounds", type=int, default=5, help="of whole runs, one of each tool")
    parser.add_argument("--nproc", type=int, default=2, help="ranks of the runs whose costs are compared")
    parser.add_argument("--steps", type=int, default=800, help="measured in each of them")
    parser.add_argument("--kept", type=Path, help="file with the runs of earlier calls; gets those of this one too")
    parser.add_argument("--packages", type=Path, help="where TraceML and py-spy lie already, or shall lie")
    args = parser.parse_args()
    print(load())
    with own_home() as base:
        packages = args.packages or base / "packages"
        install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(packages)]
        if not packages.exists():
            subprocess.run([*install, "traceml-ai==0.5.0", "py-spy==0.4.3"], check=True)
        if "place" in args.parts:
            print_place(of_costs(packages), base / "place", args.seconds)
        if "runs" in args.parts:
            kept = args.kept or base / "kept.json"
            print_runs(of_costs(packages), base / "runs", args.nproc, args.rounds, args.steps, kept)
        if "verdicts" in args.parts:
            print_verdicts(of_verdicts(packages), base / "verdicts", args.seed, args.only)


if __name__ == "__main__":
    main()
