"""Runs small programs that reproduce what people report, and prints what ddpmon's first screen and report say of each.

    python benchmarks/reports.py FOLDER                          # every script of the folder, one after the other
    python benchmarks/reports.py FOLDER --case 08,12             # those whose names begin so
    python benchmarks/reports.py FOLDER --case 12 --plain        # before that without ddpmon, as their authors saw them

A script's first two lines give its symptom and, after `# Run:`, the command that starts it, on torchrun; without one it
is started on two ranks. The command's shell may do something before torchrun. Scripts run in a copy of the folder, with
a DDPMON_HOME of their own. A run that has not ended after --limit seconds is stopped, and what was on the screen before
is printed. The screen is printed each time its state or its findings change, the report's first lines at the end.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from ddpmon import runs
from ddpmon.launch import stop
from ddpmon.messages import Snapshot
from ddpmon.source import snapshot_now

PROGRAMS = Path(sys.executable).parent
LIMIT_S = 90.0
POLL_INTERVAL_S = 1.0
STOPPING_S = 40.0
"""How long a run may take to end after it was asked to."""
REPORT_LINES = 24
OUTPUT_LINES = 12
TORCHRUN = re.compile(r"\btorchrun\s+(?:--standalone\s+)?")
LAUNCHER_SAYS = re.compile(r"^[WE]\d{4} .*torch/distributed/elastic", re.MULTILINE)
"""The first of the lines in which torchrun tells that it ends its ranks."""
WITH_DDPMON = "ddpmon run --headless --every 5 "
WITHOUT = "torchrun --standalone "
DEFAULT_COMMAND = "torchrun --nproc-per-node 2 {}"
WIDTH = 120


@dataclass(frozen=True)
class Case:
    """A script, what its first lines say of it, and the shell command that runs it."""

    script: Path
    symptom: str
    command: str

    @classmethod
    def read(cls, script: Path) -> Case:
        lines = [line.removeprefix("#").strip() for line in script.read_text().splitlines()[:2] if line.startswith("#")]
        commands = [line.removeprefix("Run:") for line in lines if line.startswith("Run:")]
        command, *symptom = re.split(r"\s+Symptom:\s*", commands[0]) if commands else [DEFAULT_COMMAND]
        return cls(script, " ".join([*lines[:1], *symptom]), command.strip().format(script.name))

    def shell_command(self, launcher: str) -> str:
        """The command with another launcher in torchrun's place."""
        return TORCHRUN.sub(launcher, self.command, count=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder of scripts")
    parser.add_argument("--case", default="", metavar="A,B", help="only scripts whose names begin with A or B")
    parser.add_argument("--plain", action="store_true", help="also run each without ddpmon, and print its last lines")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="stop a run after so many seconds")
    arguments = parser.parse_args()
    wanted = tuple(filter(None, arguments.case.split(",")))
    scripts = [path for path in sorted(arguments.folder.glob("*.py")) if path.name.startswith(wanted or "")]
    if not scripts:
        sys.exit(f"no script in {arguments.folder} is of --case {arguments.case or 'any'}")
    for case in map(Case.read, scripts):
        with tempfile.TemporaryDirectory(prefix="dm-", dir="/tmp") as folder:
            copy = Path(folder) / "cases"
            shutil.copytree(arguments.folder, copy)
            print(f"\n{'=' * WIDTH}\n{case.script.name}: {case.symptom}\n$ {case.command}", flush=True)
            if arguments.plain:
                run_plain(case, copy, arguments.limit)
            run_watched(case, copy, Path(folder) / "home", arguments.limit)


def start(case: Case, launcher: str, folder: Path, output: Path) -> subprocess.Popen[bytes]:
    """Start the case's command in a shell and a session of its own."""
    environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    with output.open("wb") as out:
        return subprocess.Popen(
            ["sh", "-c", case.shell_command(launcher)], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip


def end(process: subprocess.Popen[bytes], by: signal.Signals) -> None:
    """End the shell and whatever it left in the background."""
    try:
        os.killpg(process.pid, by)
        process.wait(STOPPING_S)
    except ProcessLookupError:
        pass
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_plain(case: Case, folder: Path, limit_s: float) -> None:
    """Run the case without ddpmon and print its last lines."""
    output = folder.parent / "plain.log"
    began = time.monotonic()
    process = start(case, WITHOUT, folder, output)
    try:
        how = f"exit code {process.wait(limit_s)}"
    except subprocess.TimeoutExpired:
        how = "stopped, it had not ended"
    finally:
        end(process, signal.SIGTERM)
    print(f"\nwithout ddpmon: {how} after {time.monotonic() - began:.0f} s; its last lines:")
    lines = LAUNCHER_SAYS.split(output.read_text(errors="replace"), maxsplit=1)[0].splitlines()
    print(*(f"  {line}" for line in lines[-OUTPUT_LINES:]), sep="\n")
    for left in {*folder.iterdir()} - {folder / path.name for path in case.script.parent.iterdir()}:
        shutil.rmtree(left) if left.is_dir() else left.unlink()  # as before the first run


def run_watched(case: Case, folder: Path, home: Path, limit_s: float) -> None:
    """Run the case under ddpmon and print each different screen, then the report."""
    os.environ["DDPMON_HOME"] = str(home)
    began = time.monotonic()
    output = folder.parent / "watched.log"
    process = start(case, WITH_DDPMON, folder, output)
    shown = ""
    run: runs.Run | None = None
    try:
        while process.poll() is None and time.monotonic() - began < limit_s:
            time.sleep(POLL_INTERVAL_S)
            if run := next(iter(runs.all_runs()), None):
                shown = show(snapshot_now(run), time.monotonic() - began, shown)
        how = f"exit code {process.returncode}"
        if run and process.returncode is None:
            how = "stopped, it had not ended"
            stop.request(run)
            process.wait(STOPPING_S)
    finally:
        if run:
            stop.request(run, now=True)
        end(process, signal.SIGTERM)
    if run is None:
        print(output.read_text(errors="replace"))
        return
    took_s = time.monotonic() - began
    show(snapshot_now(runs.load(run.id)), took_s, shown)
    print(f"\nwith ddpmon: {how} after {took_s:.0f} s; the report begins:")
    report = subprocess.run([PROGRAMS / "ddpmon", "report", run.id], capture_output=True, text=True, check=False)
    print(*(f"  {line}" for line in (report.stdout + report.stderr).splitlines()[:REPORT_LINES]), sep="\n", flush=True)


def show(snapshot: Snapshot | None, at_s: float, shown: str) -> str:
    """Print verdict and findings where they differ from what was shown in more than figures; return what is shown."""
    if snapshot is None:
        return shown
    findings = [one for one in snapshot.findings if one.lasts or snapshot.state != "running"]
    facts = re.sub(r"[\d.]+", "", repr([snapshot.state, snapshot.verdict, *sorted(one.text for one in findings)]))
    if facts == shown:
        return shown
    print(f"\nscreen after {at_s:.0f} s, step {snapshot.step}: {snapshot.state.upper()}")
    print(textwrap.fill(snapshot.verdict, WIDTH, initial_indent="  verdict: ", subsequent_indent="    "))
    for one in findings:
        lines = [f"{one.severity} {one.kind}: {one.text}", *([f"  next: {one.advice}"] if one.advice else [])]
        for line in lines:
            print(textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent="    "), flush=True)
    return facts


if __name__ == "__main__":
    main()
