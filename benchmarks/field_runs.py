"""Run a program's copy once, bare or under ddpmon, optionally with one rank's process stopped most of the time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from field_program import Copy

LIMIT_S = 300.0
STOPPED = 0.75
"""Share of the time for which a slowed rank's process is stopped, as under a limit of its cgroup."""
SHORTEST_S, LONGEST_S, PERIODS_A_STEP = 0.008, 0.04, 4
"""The rank is stopped and continued several times in each step. These are the shortest and the longest period in
seconds, and the number of periods in a step: with fewer, the stops would fall into other phases from step to step."""


@dataclass(frozen=True)
class Slowed:
    """The rank whose process is stopped most of the time, and how long an undisturbed step of it takes."""

    rank: int
    step_ms: float

    @property
    def period_s(self) -> float:
        """Return the length, in seconds, of one stop and the run after it."""
        return min(max(self.step_ms / 1000 / PERIODS_A_STEP, SHORTEST_S), LONGEST_S)


@dataclass
class Run:
    """The output of a run by stream, and what the witness and ddpmon recorded about it."""

    exit: int
    output: dict[str, list[str]]
    raw: dict[str, str]
    weights: dict[int, str] = field(default_factory=dict)
    stamps: list[list[float]] = field(default_factory=list)
    """Times, in seconds, at which each optimizer step of the lowest rank ended."""
    pauses: list[float] = field(default_factory=list)
    """Times, in seconds, at which that rank began an evaluation, a checkpoint or a DataLoader's iterator."""
    report: dict | None = None
    headless: list[str] = field(default_factory=list)

    @property
    def findings(self) -> list[dict]:
        return self.report["findings"] if self.report else []

    @property
    def last_line(self) -> str:
        lines = [line for text in self.raw.values() for line in text.splitlines() if "Error" in line]
        return lines[0] if lines else ""


def run(copy: Copy, ddpmon: Path | None, slowed: Slowed | None = None) -> Run:
    """Run the copy and return its results.

    Args:
        copy: The copy of the program.
        ddpmon: The path of the ddpmon program; None runs the copy without ddpmon.
        slowed: The rank to slow down; None slows none.
    """
    program = copy.program
    home = copy.root / "home"
    environment = copy.environment(DDPMON_HOME=str(home)) if ddpmon else copy.environment()
    if ddpmon and program.launch == "run":
        command = [str(ddpmon), "run", "--headless", "--every", "1", "--nproc", str(program.ranks)]
        command += [program.entry, *copy.arguments]
    elif ddpmon:
        command = [str(ddpmon), "exec", "--headless", "--every", "1", "--", *copy.arguments]
    elif program.launch == "run":
        command = [copy.python, "-P", "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={program.ranks}", "--redirects=3", f"--log-dir={copy.root / 'logs'}"]
        command += ["--", program.entry, *copy.arguments]
    else:
        command = copy.arguments
    with stopping_again_and_again(copy.witness, slowed):
        code, printed = finished(command, copy.folder, environment, ddpmon)
    raw = written(copy, ddpmon, printed)
    made = Run(code, {name: copy.masked(text) for name, text in raw.items()}, raw)
    noted = [json.loads(path.read_text()) for path in sorted(copy.witness.glob("*.json"))]
    made.weights = {one["rank"]: one["weights"] for one in noted}
    if noted:
        made.stamps, made.pauses = noted[0]["stamps"], noted[0]["pauses"]
    if ddpmon:
        made.headless = printed.splitlines()
        with contextlib.suppress(json.JSONDecodeError):
            made.report = json.loads(asked(ddpmon, environment, "report", "--format", "json"))
    return made


def finished(command: list[str], folder: Path, environment: dict[str, str], ddpmon: Path | None) -> tuple[int, str]:
    """Run a command; return its exit code, which is 124 after the time limit, and its output. None of its processes is
    left.
    """
    with tempfile.TemporaryFile("w+") as out:
        streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
        process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **streams)
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            if ddpmon:
                asked(ddpmon, environment, "stop", "--now")
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = 124
        out.seek(0)
        return code, out.read()


def asked(ddpmon: Path, environment: dict[str, str], *words: str) -> str:
    return subprocess.run([ddpmon, *words], env=environment, capture_output=True, text=True, check=False).stdout


def written(copy: Copy, ddpmon: Path | None, printed: str) -> dict[str, str]:
    """Return the output by rank and stream if torchrun separates them, else the launcher's as a whole."""
    if copy.program.launch == "run":
        logs = copy.root / "home" if ddpmon else copy.root / "logs"
        files = sorted(logs.glob("**/attempt_0/*/std*.log"))
        return {f"{path.parent.name} {path.stem}": path.read_text(errors="replace") for path in files}
    if not ddpmon:
        return {"all": printed}
    logs = [*copy.root.glob("home/**/launcher.log"), *sorted(copy.root.glob("home/**/ranks/exec/attempt_*/*/std*.log"))]
    return {"all": "".join(path.read_text(errors="replace") for path in logs)}


@contextlib.contextmanager
def stopping_again_and_again(witness: Path, slowed: Slowed | None) -> Iterator[None]:
    """Stop and continue a rank again and again from its first step on."""
    over = threading.Event()

    def slow(rank: int, period_s: float) -> None:
        pid_file = witness / f"{rank}.pid"
        while not pid_file.exists():
            if over.wait(0.05):
                return
        pid = int(pid_file.read_text())
        with contextlib.suppress(ProcessLookupError):
            while not over.is_set():
                os.kill(pid, signal.SIGSTOP)
                time.sleep(STOPPED * period_s)
                os.kill(pid, signal.SIGCONT)
                time.sleep((1 - STOPPED) * period_s)

    thread = threading.Thread(target=slow, args=(slowed.rank, slowed.period_s)) if slowed else None
    if thread:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread:
            thread.join()
