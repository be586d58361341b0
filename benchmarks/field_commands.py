"""The tools that `field.py` compares: how each is started around a script, and what it printed and stored."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyte
from launching import bare, watched
from ports import free_port

REAPER = Path(__file__).parent / "reaper.py"
POLL_S = 0.1
COLUMNS, LINES = 240, 60
"""Size of the terminal for a tool that draws: wide enough that each of its sentences fits into one line."""

OnScreen = Callable[[list[str]], str]
"""A function that returns the sentences of a screen on the state of the run."""


@dataclass
class Finished:
    """A run that has ended."""

    folder: Path
    lines: list[tuple[float, str]] = field(default_factory=list)
    """Printed lines, each with its time (time.time()); for a tool with a redrawn screen, the whole screen at each
    change."""
    seconds: float = 0.0
    """Seconds from the start of the run until its last process ended."""
    cpu_s: float = 0.0
    """CPU seconds of all processes of the run and the tool in that time."""
    steps_cpu_cores: float = 0.0
    """Average number of cores that these processes used while steps were measured."""


class Tool:
    """The base class of the tools, which is bare torchrun."""

    name = "bare torchrun"
    in_place = False
    """True if the script can switch the tool on and off, and so measure it in place."""
    draws = False
    """True if the tool shows its sentences on a screen that it redraws."""

    def command(self, nproc: int, script: Path) -> list[str]:
        return bare(nproc, script)

    def environment(self, folder: Path) -> dict[str, str]:
        return {}

    def accompany(self, ranks: list[psutil.Process], folder: Path) -> list[subprocess.Popen[bytes]]:
        """Start the tool's processes that run beside the ranks, and return them."""
        return []

    def verdict(self, finished: Finished) -> str:
        """Return the tool's closing sentences; "" if there are none."""
        return ""

    def is_said(self, line: str) -> bool:
        """Return whether a printed line is a sentence of the tool on the state of the run."""
        return False

    def on_screen(self, display: list[str]) -> str:
        """Return the sentences on the tool's screen about the state of the run; "" if there are none."""
        return ""

    def bytes_left(self, folder: Path) -> int:
        """Return how many bytes the tool left on the disk."""
        return 0


class Ddpmon(Tool):
    name = "ddpmon"
    in_place = True

    def command(self, nproc: int, script: Path) -> list[str]:
        return watched(nproc, script)

    def environment(self, folder: Path) -> dict[str, str]:
        return {"DDPMON_HOME": str(folder / "home")}

    def verdict(self, finished: Finished) -> str:
        (made,) = (finished.folder / "home" / "runs").iterdir()
        report = json.loads((made / "report.json").read_text())
        texts = [finding["text"] for finding in report["findings"] if finding["severity"] != "info"]
        events = [event[1] for _, line in finished.lines if (event := re.match(r"[\d:]+ +!+ (?!done)(.*)", line))]
        # A hang that the run recovered from is not a finding of a run that ended well, but was an event.
        return "; ".join(dict.fromkeys([*texts, *events])) or report["verdict"]

    def is_said(self, line: str) -> bool:
        return bool(re.match(r"[\d:]+ ", line))

    def bytes_left(self, folder: Path) -> int:
        return _size(folder / "home" / "runs")


class TraceML(Tool):
    name = "TraceML 0.5.0"
    in_place = True

    def __init__(self, packages: Path, live: bool = False) -> None:
        self._packages = packages
        self.draws = live
        """True for `--mode cli` instead of the default, a summary at the end."""

    def command(self, nproc: int, script: Path) -> list[str]:
        program = "import sys; sys.path.insert(0, sys.argv.pop(1)); from traceml_ai.launcher.cli import main; main()"
        return [
            *(sys.executable, "-c", program, str(self._packages)),
            *("run", str(script), "--nproc-per-node", str(nproc), *(("--mode", "cli") if self.draws else ())),
            *("--master-port", str(free_port()), "--aggregator-port", str(free_port()), "--args", "--traceml"),
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
        return bool(re.search(r"(Verdict|Why|Next|Issue): ", line))

    def on_screen(self, display: list[str]) -> str:
        parts = [match[1] for line in display if (match := re.search(r"│ ((?:Issue|Why|Next): .*?) *│", line))]
        return " / ".join(parts)

    def bytes_left(self, folder: Path) -> int:
        return _size(folder / "logs")


class PySpy(Tool):
    name = "py-spy top 0.4.3"

    def __init__(self, packages: Path) -> None:
        self._program = str(packages / "bin" / "py-spy")

    def accompany(self, ranks: list[psutil.Process], folder: Path) -> list[subprocess.Popen[bytes]]:
        return [self._top(rank.pid) for rank in ranks]

    def _top(self, pid: int) -> subprocess.Popen[bytes]:
        """Start py-spy in a terminal of its own, whose other end is read so that it never blocks."""
        ours, theirs = open_terminal()
        environment = os.environ | {"TERM": "xterm-256color"}
        top = subprocess.Popen(
            [self._program, "top", "--pid", str(pid)], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
        os.close(theirs)
        threading.Thread(target=lambda: [None for _ in _chunks(ours)], daemon=True).start()
        return top


def of_costs(packages: Path) -> list[Tool]:
    """Return bare torchrun, ddpmon, TraceML and py-spy; the last two are in the folder `packages`."""
    return [Tool(), Ddpmon(), TraceML(packages), PySpy(packages)]


def of_verdicts(packages: Path) -> list[Tool]:
    """Return the tools that give a verdict, in the mode in which they give it first."""
    return [Ddpmon(), TraceML(packages, live=True)]


def run(tool: Tool, nproc: int, script: Path, arguments: list[str], folder: Path) -> Finished:
    """Run a script under a tool to its end."""
    finished = Finished(folder)
    terminal = {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)} if tool.draws else {}
    ours, theirs = open_terminal() if tool.draws else os.pipe()
    cpu_file = folder / "cpu"
    started = subprocess.Popen(
        [sys.executable, str(REAPER), str(cpu_file), *tool.command(nproc, script), *arguments],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | terminal | tool.environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    reader = threading.Thread(target=_watch if tool.draws else _read, args=(ours, finished, tool.on_screen))
    reader.start()
    began = time.monotonic()
    beside: list[subprocess.Popen[bytes]] = []
    before: tuple[float, float] | None = None
    while started.poll() is None:
        if before is None and (folder / "ready").exists():
            beside = tool.accompany(_ranks(started.pid), folder)
            before = time.monotonic(), _cpu_s(started.pid, beside)
        if before and not finished.steps_cpu_cores and (folder / "result").exists():
            length_s = time.monotonic() - before[0]
            finished.steps_cpu_cores = (_cpu_s(started.pid, beside) - before[1]) / length_s
        time.sleep(POLL_S)
    finished.seconds = time.monotonic() - began
    finished.cpu_s = float(cpu_file.read_text())
    for one in beside:
        os.kill(one.pid, signal.SIGTERM)  # Not terminate(): that waits for an ended process, and its CPU time is lost.
        _, one.returncode, usage = os.wait4(one.pid, 0)
        finished.cpu_s += usage.ru_utime + usage.ru_stime
    reader.join()
    return finished


def open_terminal() -> tuple[int, int]:
    """Return both ends of a terminal: this program's and the other's."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    return ours, theirs


def _chunks(end: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # No process has the terminal open any more.
        while chunk := os.read(end, 65536):
            yield chunk
    os.close(end)


def _read(end: int, finished: Finished, _on_screen: OnScreen) -> None:
    decoder, rest = codecs.getincrementaldecoder("utf-8")("replace"), ""
    for chunk in _chunks(end):
        *whole, rest = (rest + decoder.decode(chunk)).split("\n")
        finished.lines += [(time.time(), line.rstrip()) for line in whole]
    if rest:
        finished.lines.append((time.time(), rest.rstrip()))


def _watch(end: int, finished: Finished, on_screen: OnScreen) -> None:
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    for chunk in _chunks(end):
        stream.feed(chunk)
        said = on_screen(screen.display)
        if said and (not finished.lines or finished.lines[-1][1] != said):
            finished.lines.append((time.time(), said))


def _ranks(run: int) -> list[psutil.Process]:
    """Return the processes of a run that train: they have a rank."""
    return [one for one in psutil.Process(run).children(recursive=True) if "LOCAL_RANK" in _environment(one)]


def _environment(process: psutil.Process) -> dict[str, str]:
    with contextlib.suppress(psutil.Error):
        return process.environ()
    return {}


def _cpu_s(run: int, beside: list[subprocess.Popen[bytes]]) -> float:
    """Return the CPU seconds of a run so far, including its ended processes and the processes beside it."""
    reaper = psutil.Process(run)
    spent = 0.0
    for process in [reaper, *reaper.children(recursive=True), *(psutil.Process(one.pid) for one in beside)]:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            spent += times.user + times.system + times.children_user + times.children_system
    return spent


def _size(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
