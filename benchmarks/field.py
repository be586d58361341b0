"""ddpmon beside what else one would take: TraceML from PyPI, py-spy top on the ranks, and bare torchrun, in one run.

    python benchmarks/field.py                                  all of it, as tables in Markdown (some 20 minutes)
    python benchmarks/field.py --parts place runs               only what each costs; see --rounds
    python benchmarks/field.py --parts verdicts --seed 3        only what each says of the faults that this seed draws
    python benchmarks/field.py --parts verdicts --only hang crash

TraceML and py-spy come from PyPI into a folder that only their runs see; torch and Python are this ddpmon's. TraceML's
runs get the two lines in the script that it asks for; ddpmon's get none, and `--headless`. py-spy samples each rank of
a bare run, on a terminal of its own, and gives no verdict.

Costs: of the training thread in place, in one process in which blocks of steps with and without the tool take turns,
where the script can switch it (TraceML's patches stay in torch, though off, which flatters it); of everything else in
runs in turn: CPU of all ranks and of every process that the tool started, while steps are measured. TraceML runs in its
default mode, a summary at the end.

Verdicts: the same script with the same fault under each tool, TraceML in its live mode (`--mode cli`), so that it may
say what it sees at once. A sentence is right if it names the rank (all of them) and the phase, or says what is wrong
where it is no rank's phase; `Scenario.is_right` holds every tool to the same words. A tool is right if its closing
sentences are, or any that it showed while the fault lasted; of a clean run, if it never blamed anybody. What each said
is printed below the table, so that a reader can judge.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from field_commands import Tool, of_costs, of_verdicts, run
from field_faults import NPROC, Scenario, drawn
from overhead import SECONDS, added, in_place

STEPS = Path(__file__).parent / "steps.py"
FAULTS = Path(__file__).parent / "diagnosis_steps.py"
STEPS_A_VERDICT = "400"
"""More than 14 seconds with the fault."""
PARTS = ("place", "runs", "verdicts")


@dataclass
class Verdict:
    right: bool
    after_s: float | None
    """From the first faulty step until the first right sentence."""
    said: str


def verdict(tool: Tool, scenario: Scenario, folder: Path) -> Verdict:
    """What a tool says of a run with a fault, and when it first said it."""
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
    """Of runs in turn; `steps` are of the whole run."""

    steps_per_s: list[float] = field(default_factory=list)
    cpu_ms_a_step: list[float] = field(default_factory=list)
    bytes_a_step: list[float] = field(default_factory=list)


def costs(tool: Tool, folder: Path, nproc: int, seconds: float) -> tuple[float, float, float]:
    """Steps a second, CPU milliseconds a step of all its processes, and bytes left on disk a rank and step."""
    result = folder / "result"
    arguments = ["--step-ms", "10", "--seconds", str(seconds), "--result", str(result)]
    finished = run(tool, nproc, STEPS, arguments, folder)
    if not result.exists():
        last = "\n".join(line for _, line in finished.lines[-20:])
        raise SystemExit(f"{tool.name} left no result:\n{last}")
    steps_per_s, steps, cpu_s = json.loads(result.read_text())
    length_s = steps / steps_per_s
    spent = cpu_s + finished.besides_cpu_s * length_s / finished.seconds  # what is seen of it ends up to POLL_S earlier
    return steps_per_s, spent * 1000 / steps, tool.bytes_left(folder) / (steps * nproc)


def folders(base: Path) -> Iterator[Path]:
    base.mkdir()
    number = 0
    while True:
        number += 1
        folder = base / f"run{number}"
        folder.mkdir()
        yield folder


def print_place(chosen: list[Tool], base: Path) -> None:
    fresh = folders(base)
    print("\ntraining thread in place, one rank: CPU that a tool adds to a step, by the whole step\n")
    print("| | short steps | steps of 5 ms |\n|---|---|---|")
    for tool in chosen:
        if tool.in_place:
            cells = []
            for step_ms in (0.0, 5.0):
                home = next(fresh)
                measured = in_place(tool.command(1, STEPS), 10, step_ms, SECONDS, str(home), tool.environment(home))
                cells.append(str(added(measured, "watched", whole=True)))
            print(f"| {tool.name} | {' | '.join(cells)} |", flush=True)


def print_runs(chosen: list[Tool], base: Path, nproc: int, rounds: int, seconds: float) -> None:
    fresh = folders(base)
    measured = {tool.name: Costs() for tool in chosen}
    for number in range(rounds):
        for tool in chosen[number % len(chosen) :] + chosen[: number % len(chosen)]:
            one = costs(tool, next(fresh), nproc, seconds)
            mine = measured[tool.name]
            for values, value in zip((mine.steps_per_s, mine.cpu_ms_a_step, mine.bytes_a_step), one, strict=True):
                values.append(value)
    bare = measured[chosen[0].name]
    print(f"\n{nproc} ranks, steps of 10 ms, {rounds} rounds of {seconds:.0f} s; medians, (lowest to highest)\n")
    columns = (
        "speed against bare in its round",
        "CPU a step, ranks and tool",
        "of that added",
        "bytes a rank and step",
    )
    print("| | " + " | ".join(columns) + " |")
    print("|---|---|---|---|---|")
    for tool in chosen:
        mine = measured[tool.name]
        ratios = [a / b for a, b in zip(mine.steps_per_s, bare.steps_per_s, strict=True)]
        more = [a - b for a, b in zip(mine.cpu_ms_a_step, bare.cpu_ms_a_step, strict=True)]
        print(
            f"| {tool.name} | {_middle(ratios, 3)} | {_middle(mine.cpu_ms_a_step, 2)} ms "
            f"| {_middle(more, 2)} ms | {statistics.median(mine.bytes_a_step):.0f} |",
            flush=True,
        )


def _middle(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def print_verdicts(chosen: list[Tool], base: Path, seed: int, only: list[str]) -> None:
    fresh = folders(base)
    said: list[str] = []
    print(f"\nverdicts, {NPROC} ranks, steps of 40 ms, seed {seed}: right, and seconds until it was first said\n")
    print("| | " + " | ".join(tool.name for tool in chosen) + " |")
    print("|---|" + "---|" * len(chosen))
    for scenario in drawn(seed):
        if only and not any(scenario.name.startswith(name) for name in only):
            continue
        cells = []
        for tool in chosen:
            one = verdict(tool, scenario, next(fresh))
            after = "" if one.after_s is None or not one.right else f", {one.after_s:.1f} s"
            cells.append(("yes" if one.right else "no" if one.said else "says nothing") + after)
            said.append(f"{scenario.name} ({' '.join(scenario.arguments)}), {tool.name}: {one.said or '–'}")
        print(f"| {scenario.name} | " + " | ".join(cells) + " |", flush=True)
    print("\nwhat was said:\n")
    for line in said:
        print(f"- {line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what is measured; all of it")
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    parser.add_argument("--only", nargs="+", default=[], help="faults whose names begin so")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nproc", type=int, default=2, help="ranks of the runs whose costs are compared")
    parser.add_argument("--seconds", type=float, default=8.0, help="measured part of each of them")
    parser.add_argument("--packages", type=Path, help="where TraceML and py-spy lie already, or shall lie")
    args = parser.parse_args()
    print(f"load of the last minute {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="ddpmon-b") as folder:
        base = Path(folder)
        packages = args.packages or base / "packages"
        install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(packages)]
        if not packages.exists():
            subprocess.run([*install, "traceml-ai==0.5.0", "py-spy==0.4.3"], check=True)
        if "place" in args.parts:
            print_place(of_costs(packages), base / "place")
        if "runs" in args.parts:
            print_runs(of_costs(packages), base / "runs", args.nproc, args.rounds, args.seconds)
        if "verdicts" in args.parts:
            print_verdicts(of_verdicts(packages), base / "verdicts", args.seed, args.only)


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"\ntook {time.monotonic() - began:.0f} s")
