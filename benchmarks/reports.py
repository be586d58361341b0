"""Run small programs that reproduce problems people report, and print ddpmon's first screen and report on each.

    python benchmarks/reports.py FOLDER                          # every script of the folder, one after the other
    python benchmarks/reports.py FOLDER --case 08,12             # those whose names begin so
    python benchmarks/reports.py FOLDER --case 12 --plain        # first without ddpmon, as their authors saw them
    python benchmarks/reports.py benchmarks/reported             # further mistakes that people report
    python benchmarks/reports.py benchmarks/reported --mended    # the same scripts without the mistakes

A script's comments give, after `# Run:`, each command that starts it, with torchrun, and the symptom; a script without
one is started on two ranks. The command may do something else before torchrun. Scripts run in a copy of the folder,
with a DDPMON_HOME of their own. A run that has not ended after --limit seconds is stopped, and its last screen is
printed; a busy machine needs a larger limit. The screen is printed each time its state or its findings change, then the
first lines of the report. A table comes last: the first finding of each case at its end, and the seconds after which a
finding of that kind was first on the screen.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launching import DDPMON, options, own_home, print_head, print_row

from ddpmon import runs
from ddpmon.launch import stop
from ddpmon.messages import Snapshot
from ddpmon.source import snapshot_now

PROGRAMS = Path(sys.executable).parent
LIMIT_S = 90.0
POLL_INTERVAL_S = 1.0
STOPPING_S = 40.0
"""Longest time, in seconds, for a run to end after a stop."""
REPORT_LINES = 24
OUTPUT_LINES = 12
TORCHRUN = re.compile(r"\btorchrun\s+(?:--standalone\s+)?")
LAUNCHER_SAYS = re.compile(r"^[WE]\d{4} .*torch/distributed/elastic", re.MULTILINE)
"""Matches the first of the lines in which torchrun reports that it ends its ranks."""
WITH_DDPMON = "ddpmon run --headless --every 5 "
WITHOUT = "torchrun --standalone "
DEFAULT_COMMAND = "torchrun --nproc-per-node 2 {}"
WIDTH = 120


@dataclass(frozen=True)
class Case:
    """A script, the description in its first lines, and the shell command that runs it."""

    script: Path
    symptom: str
    command: str

    name: str

    @classmethod
    def all_of(cls, script: Path) -> Iterator[Case]:
        """Yield a case for each command in the script's comments."""
        comments = [line.removeprefix("#").strip() for line in script.read_text().splitlines() if line.startswith("#")]
        commands = [line.removeprefix("Run:").strip() for line in comments if line.startswith("Run:")]
        for line in commands or [DEFAULT_COMMAND.format(script.name)]:
            command, *symptom = re.split(r"\s+Symptom:\s*", line)
            several = len(commands) > 1
            about = symptom if several else [*comments[:1], *symptom]
            yield cls(script, " ".join(about), command, command.split()[-1] if several else script.stem)

    def shell_command(self, launcher: str) -> str:
        """Return the command with another launcher in place of torchrun."""
        return TORCHRUN.sub(launcher, self.command, count=1)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path, help="the folder of scripts")
    parser.add_argument("--case", default="", metavar="A,B", help="only scripts whose names begin with A or B")
    parser.add_argument("--plain", action="store_true", help="also run each without ddpmon, and print its last lines")
    parser.add_argument("--mended", action="store_true", help="run them with MENDED=1: nothing is to be found")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="stop a run after so many seconds")
    arguments = parser.parse_args()
    if arguments.mended:
        os.environ["MENDED"] = "1"
    wanted = tuple(filter(None, arguments.case.split(",")))
    every = [case for path in sorted(arguments.folder.glob("*.py")) for case in Case.all_of(path)]
    cases = [case for case in every if case.name.startswith(wanted or "")]
    if not cases:
        sys.exit(f"no script in {arguments.folder} is of --case {arguments.case or 'any'}")
    rows = []
    for case in cases:
        print(f"\n{'=' * WIDTH}\n{case.name}: {case.symptom}\n$ {case.command}", flush=True)
        if arguments.plain:
            with copied(arguments.folder) as copy:
                run_plain(case, copy, arguments.limit)
        with copied(arguments.folder) as copy, own_home():
            rows.append((case.name, *run_watched(case, copy, arguments.limit)))
    print()
    print_head("case", "the first finding at the end", "on the screen after")
    for row in rows:
        print_row(*row)


@contextlib.contextmanager
def copied(cases: Path) -> Iterator[Path]:
    """Yield a copy of the folder of cases, in which a script may write."""
    with tempfile.TemporaryDirectory(prefix="dm-") as folder:
        yield shutil.copytree(cases, Path(folder) / "cases")


def start(case: Case, launcher: str, folder: Path, output: Path) -> subprocess.Popen[bytes]:
    """Start the case's command in a shell and a session of its own."""
    environment = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    with output.open("wb") as out:
        return subprocess.Popen(
            ["sh", "-c", case.shell_command(launcher)], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip


def end(process: subprocess.Popen[bytes], by: signal.Signals) -> None:
    """End the shell and every process that it left in the background."""
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


def run_watched(case: Case, folder: Path, limit_s: float) -> tuple[str, str]:
    """Run the case under ddpmon and print each different screen, then the report.

    Returns:
        The text of the first finding at the end, and the seconds after which one of its kind was first on the screen.
    """
    began = time.monotonic()
    output = folder.parent / "watched.log"
    process = start(case, WITH_DDPMON, folder, output)
    screens = Screens()
    run: runs.Run | None = None
    try:
        while process.poll() is None and time.monotonic() - began < limit_s:
            time.sleep(POLL_INTERVAL_S)
            if run := next(iter(runs.all_runs()), None):
                screens.show(snapshot_now(run), time.monotonic() - began)
        how = f"exit code {process.returncode}"
        if run and process.returncode is None:
            how = "stopped, it had not ended"
            stop.request_stop(run)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOPPING_S)
    finally:
        if run:
            stop.request_stop(run, now=True)
        end(process, signal.SIGTERM)
    if run is None:
        print(output.read_text(errors="replace"))
        return "", ""
    took_s = time.monotonic() - began
    screens.show(snapshot_now(runs.load(run.id)), took_s)
    print(f"\nwith ddpmon: {how} after {took_s:.0f} s; the report begins:")
    report = subprocess.run([*DDPMON, "report", run.id], capture_output=True, text=True, check=False)
    print(*(f"  {line}" for line in (report.stdout + report.stderr).splitlines()[:REPORT_LINES]), sep="\n", flush=True)
    return screens.first_finding()


class Screens:
    """Prints the contents of the first screen each time more than its figures change."""

    def __init__(self) -> None:
        self._shown = ""
        self._snapshot: Snapshot | None = None
        self._first_at: dict[str, float] = {}
        """Seconds after which each kind of finding was first on the screen."""

    def show(self, snapshot: Snapshot | None, at_s: float) -> None:
        """Print verdict and findings of a snapshot."""
        if snapshot is None:
            return
        self._snapshot = snapshot
        for one in snapshot.findings:
            self._first_at.setdefault(one.kind, at_s)
        findings = [one for one in snapshot.findings if one.is_lasting or snapshot.state != "running"]
        facts = re.sub(r"[\d.]+", "", repr([snapshot.state, snapshot.verdict, *sorted(one.text for one in findings)]))
        if facts == self._shown:
            return
        self._shown = facts
        print(f"\nscreen after {at_s:.0f} s, step {snapshot.step}: {snapshot.state.upper()}")
        print(textwrap.fill(snapshot.verdict, WIDTH, initial_indent="  verdict: ", subsequent_indent="    "))
        for one in findings:
            for line in [f"{one.severity} {one.kind}: {one.text}", *([f"  next: {one.advice}"] if one.advice else [])]:
                print(textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent="    "), flush=True)

    def first_finding(self) -> tuple[str, str]:
        """Return the text of the first finding of the last screen, and when one of its kind was first shown."""
        findings = self._snapshot.findings if self._snapshot else []
        first = next(iter(findings), None)
        return (first.text, f"{self._first_at[first.kind]:.0f} s") if first else ("nothing", "")


if __name__ == "__main__":
    main()
