"""ddpmon beside what else one would take: TraceML from PyPI, py-spy top on the ranks, and bare torchrun, in one run.

    python benchmarks/field.py                          costs and verdicts, as a table in Markdown (some 20 minutes)
    python benchmarks/field.py --costs                  only what each costs
    python benchmarks/field.py --verdicts --seed 3      only what each says of faults that this seed draws

TraceML and py-spy come from PyPI into a folder that only their runs see; torch and Python are this ddpmon's. TraceML's
runs get the two lines in the script that it asks for, and its default mode, which prints a summary at the end; ddpmon's
get none, and `--headless`. py-spy samples each rank of a bare run, on a terminal of its own.

Verdicts: the same script with the same fault under each tool. A verdict is right if the sentences name the rank (all of
them) and the phase, or say what is wrong where it is no rank's phase; `Scenario.is_right` holds every tool to the same
words. A clean run is right if nothing is blamed. What each said is printed below the table, so that a reader can judge.
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

from field_commands import Tool, run, tools
from field_faults import NPROC, Scenario, drawn
from overhead import SECONDS, added, in_place

STEPS = Path(__file__).parent / "steps.py"
FAULTS = Path(__file__).parent / "diagnosis_steps.py"


@dataclass
class Verdict:
    right: bool
    after_s: float | None
    """From the first faulty step until the first right sentence."""
    said: str


def verdict(tool: Tool, scenario: Scenario, folder: Path) -> Verdict:
    """What a tool says of a run with a fault, and when it first said it."""
    mark = folder / "mark"
    finished = run(tool, NPROC, FAULTS, [*scenario.arguments, "--steps", "160", "--mark", str(mark)], folder)
    began = float(mark.read_text()) if mark.exists() else None
    said = tool.verdict(finished)
    after = None
    if began is not None and scenario.name != "clean":
        for at, line in finished.lines:
            if at >= began and tool.is_said(line) and scenario.is_right(line):
                after = at - began
                break
    return Verdict(scenario.is_right(said) if said else False, after, said)


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
        raise SystemExit(f"{tool.name} left no result (another run on TraceML's ports, 29500 and 29765?):\n{last}")
    steps_per_s, steps, cpu_s = json.loads(result.read_text())
    spent = cpu_s + finished.besides_cpu_s * seconds / finished.seconds
    return steps_per_s, spent * 1000 / (steps_per_s * seconds), tool.bytes_left(folder) / (steps * nproc)


def folders(base: Path) -> Iterator[Path]:
    number = 0
    while True:
        number += 1
        folder = base / f"run{number}"
        folder.mkdir()
        yield folder


def print_costs(chosen: list[Tool], base: Path, nproc: int, rounds: int, seconds: float) -> None:
    fresh = folders(base)
    measured = {tool.name: Costs() for tool in chosen}
    for number in range(rounds):
        for tool in chosen[number % len(chosen) :] + chosen[: number % len(chosen)]:
            one = costs(tool, next(fresh), nproc, seconds)
            mine = measured[tool.name]
            for values, value in zip((mine.steps_per_s, mine.cpu_ms_a_step, mine.bytes_a_step), one, strict=True):
                values.append(value)
    bare = measured[chosen[0].name]
    print(
        f"\n{nproc} ranks, {rounds} rounds of {seconds:.0f} s; medians, (lowest to highest) of the ratio in a round\n"
    )
    columns = (
        "training thread in place, 1 rank",
        "speed against bare",
        "CPU a step, ranks and tool",
        "bytes on disk a rank and step",
    )
    print("| | " + " | ".join(columns) + " |")
    print("|---|---|---|---|---|")
    for tool in chosen:
        mine = measured[tool.name]
        ratios = sorted(a / b for a, b in zip(mine.steps_per_s, bare.steps_per_s, strict=True))
        place = "–"
        if tool.in_place:
            home = next(fresh)
            measure = in_place(tool.command(1, STEPS), 10, 0.0, SECONDS, str(home), tool.environment(home))
            place = str(added(measure, "watched", whole=True))
        print(
            f"| {tool.name} | {place} | {statistics.median(ratios):.3f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) "
            f"| {statistics.median(mine.cpu_ms_a_step):.2f} ms | {statistics.median(mine.bytes_a_step):.0f} |",
            flush=True,
        )


def print_verdicts(chosen: list[Tool], base: Path, seed: int, most: int) -> None:
    fresh = folders(base)
    said: list[str] = []
    print(f"\nverdicts, {NPROC} ranks, steps of 40 ms, seed {seed}: right, and seconds until it was first said\n")
    print("| | " + " | ".join(tool.name for tool in chosen) + " |")
    print("|---|" + "---|" * len(chosen))
    for scenario in drawn(seed)[:most]:
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
    parser.add_argument("--costs", action="store_true")
    parser.add_argument("--verdicts", action="store_true")
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    parser.add_argument("--most", type=int, default=99, help="so many of the scenarios")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nproc", type=int, default=2, help="ranks of the runs whose costs are compared")
    parser.add_argument("--seconds", type=float, default=8.0, help="measured part of each of them")
    args = parser.parse_args()
    everything = not (args.costs or args.verdicts)
    print(f"load of the last minute {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="ddpmon-b") as folder:
        base = Path(folder)
        packages = base / "packages"
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "-q",
                "--target",
                str(packages),
                "traceml-ai==0.5.0",
                "py-spy==0.4.3",
            ],
            check=True,
        )
        bare, ours, theirs, spy = tools(packages)
        if args.costs or everything:
            (base / "costs").mkdir()
            print_costs([bare, ours, theirs, spy], base / "costs", args.nproc, args.rounds, args.seconds)
        if args.verdicts or everything:
            (base / "verdicts").mkdir()
            print_verdicts([ours, theirs], base / "verdicts", args.seed, args.most)


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"\ntook {time.monotonic() - began:.0f} s")
