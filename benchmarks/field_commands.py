"""The tools that `field.py` compares: how each is started around a script, and what it said and left of a run."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rates import bare as bare_command
from rates import watched as watched_command

MARK = "FIELD_RUN"
"""In the environment of every process of a run, however it was started: its folder."""
POLL_S = 0.5


@dataclass
class Finished:
    """A run that is over."""

    folder: Path
    lines: list[tuple[float, str]] = field(default_factory=list)
    """What it printed, with the moment (time.time())."""
    seconds: float = 0.0
    """How long it was watched, from the first step on."""
    besides_cpu_s: float = 0.0
    """CPU of the processes that are no rank, while it was watched."""


class Tool:
    """Bare torchrun, to begin with."""

    name = "bare torchrun"
    in_place = False
    """Whether the script can switch it on and off, and so measure it in place."""

    def command(self, nproc: int, script: Path) -> list[str]:
        return bare_command(nproc, script)

    def environment(self, folder: Path) -> dict[str, str]:
        return {}

    def accompany(self, ranks: list[psutil.Process], folder: Path) -> list[subprocess.Popen[bytes]]:
        """What is started beside the ranks."""
        return []

    def verdict(self, finished: Finished) -> str:
        """The sentences that it closes with; "": none."""
        return ""

    def is_said(self, line: str) -> bool:
        """Whether a line that was printed is a sentence of the tool's on how the run does."""
        return False

    def bytes_left(self, folder: Path) -> int:
        """What it wrote to disk."""
        return 0


class Ddpmon(Tool):
    name = "ddpmon"
    in_place = True

    def command(self, nproc: int, script: Path) -> list[str]:
        return watched_command(nproc, script)

    def environment(self, folder: Path) -> dict[str, str]:
        return {"DDPMON_HOME": str(folder / "home")}

    def verdict(self, finished: Finished) -> str:
        (made,) = (finished.folder / "home" / "runs").iterdir()
        report = json.loads((made / "report.json").read_text())
        texts = [finding["text"] for finding in report["findings"] if finding["severity"] != "info"]
        events = [event[1] for _, line in finished.lines if (event := re.match(r"[\d:]+ +!+ (?!done)(.*)", line))]
        # A hang that came on again is no finding of a run that went well: it was an event.
        return "; ".join(dict.fromkeys([*texts, *events])) or report["verdict"]

    def is_said(self, line: str) -> bool:
        return bool(re.match(r"[\d:]+ ", line))

    def bytes_left(self, folder: Path) -> int:
        return _size(folder / "home" / "runs")


class TraceML(Tool):
    name = "TraceML 0.5.0"
    in_place = True

    def __init__(self, packages: Path) -> None:
        self._packages = packages

    def command(self, nproc: int, script: Path) -> list[str]:
        program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from traceml_ai.launcher.cli import main; main()"
        return [
            *(sys.executable, "-c", program, str(self._packages)),
            *("run", str(script), "--nproc-per-node", str(nproc), "--args", "--traceml"),
        ]

    def environment(self, folder: Path) -> dict[str, str]:
        return {"PYTHONPATH": str(self._packages)}

    def verdict(self, finished: Finished) -> str:
        for summary in (finished.folder / "logs").glob("*/final_summary.txt"):
            text = summary.read_text()
            found = [re.search(rf"{word}: *(.*?) *\|?$", text, re.MULTILINE) for word in ("Verdict", "Why", "Next")]
            return " / ".join(match[1] for match in found if match)
        return ""

    def is_said(self, line: str) -> bool:
        return bool(re.search(r"(Verdict|Why|Next): ", line))

    def bytes_left(self, folder: Path) -> int:
        return _size(folder / "logs")


class PySpy(Tool):
    name = "py-spy top 0.4.3"

    def __init__(self, packages: Path) -> None:
        self._program = str(packages / "bin" / "py-spy")

    def accompany(self, ranks: list[psutil.Process], folder: Path) -> list[subprocess.Popen[bytes]]:
        return [self._top(rank.pid) for rank in ranks]

    def _top(self, pid: int) -> subprocess.Popen[bytes]:
        """On a terminal of its own, whose other end is read so that it never waits."""
        ours, theirs = pty.openpty()
        environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "160", "LINES": "50"}
        top = subprocess.Popen(
            [self._program, "top", "--pid", str(pid)], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
        os.close(theirs)
        threading.Thread(target=_drain, args=(ours,), daemon=True).start()
        return top


def tools(packages: Path) -> tuple[Tool, Tool, Tool, Tool]:
    """Bare, ddpmon, TraceML and py-spy; the last two are in the folder `packages`."""
    return Tool(), Ddpmon(), TraceML(packages), PySpy(packages)


def run(tool: Tool, nproc: int, script: Path, arguments: list[str], folder: Path) -> Finished:
    """Run a script under a tool to its end."""
    finished = Finished(folder)
    started = subprocess.Popen(
        [*tool.command(nproc, script), *arguments],
        cwd=folder,
        env=os.environ | {MARK: str(folder), "OMP_NUM_THREADS": "1"} | tool.environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    reader = threading.Thread(target=_read, args=(started, finished))
    reader.start()
    beside: list[subprocess.Popen[bytes]] = []
    first: dict[int, float] = {}
    latest: dict[int, float] = {}
    begun = 0.0
    while started.poll() is None:
        if not begun and (folder / "ready").exists():
            begun = time.monotonic()
            beside = tool.accompany(_ranks(folder), folder)
        if begun:
            for process, cpu_s in _cpu_of(folder, {one.pid for one in beside}):
                first.setdefault(process, cpu_s)
                latest[process] = cpu_s
        time.sleep(POLL_S)
    finished.seconds = time.monotonic() - begun if begun else 0.0
    finished.besides_cpu_s = sum(latest[process] - first[process] for process in latest)
    for one in beside:
        with contextlib.suppress(ProcessLookupError):
            one.terminate()
        one.wait()
    reader.join()
    return finished


def _read(started: subprocess.Popen[str], finished: Finished) -> None:
    assert started.stdout is not None
    for line in started.stdout:
        finished.lines.append((time.time(), line.rstrip()))


def _drain(terminal: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(terminal, 65536):
            pass
    os.close(terminal)


def _processes(folder: Path) -> list[psutil.Process]:
    """Of a run, by its mark: supervisors and aggregators are children of nobody's."""
    mine = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == str(folder):
                mine.append(process)
    return mine


def _ranks(folder: Path) -> list[psutil.Process]:
    """Processes that train: they have a rank, and no parent that has one."""
    return [one for one in _processes(folder) if "LOCAL_RANK" in one.environ()]


def _cpu_of(folder: Path, beside: set[int]) -> list[tuple[int, float]]:
    """CPU seconds of each process that is no rank: what ranks take they measure themselves."""
    spent = []
    processes = [one for one in _processes(folder) if "LOCAL_RANK" not in _environment(one)]
    processes += [psutil.Process(pid) for pid in beside if psutil.pid_exists(pid)]
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            spent.append((process.pid, times.user + times.system))
    return spent


def _environment(process: psutil.Process) -> dict[str, str]:
    with contextlib.suppress(psutil.Error):
        return process.environ()
    return {}


def _size(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
