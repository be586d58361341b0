"""The tools that `field.py` compares: how each is started around a script, and what it said and left of a run."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import json
import os
import pty
import re
import socket
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
from rates import bare as bare_command
from rates import watched as watched_command

MARK = "FIELD_RUN"
"""In the environment of every process of a run, however it was started: its folder."""
POLL_S = 0.5
COLUMNS, LINES = 240, 60
"""Of a terminal that a tool draws on: wide enough for its sentences to stand in one line."""

OnScreen = Callable[[list[str]], str]
"""What the lines of a screen say of how the run does."""


@dataclass
class Finished:
    """A run that is over."""

    folder: Path
    lines: list[tuple[float, str]] = field(default_factory=list)
    """What it printed, with the moment (time.time()); of a tool that draws, what its screen said, each time anew."""
    seconds: float = 0.0
    """How long its measured part was watched."""
    besides_cpu_s: float = 0.0
    """CPU of the processes that are no rank, while it was watched."""


class Tool:
    """Bare torchrun, to begin with."""

    name = "bare torchrun"
    in_place = False
    """Whether the script can switch it on and off, and so measure it in place."""
    draws = False
    """Whether it shows its sentences on a screen that it draws again and again."""

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

    def on_screen(self, display: list[str]) -> str:
        """What it says on its screen of how the run does; "": nothing."""
        return ""

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

    def __init__(self, packages: Path, live: bool = False) -> None:
        self._packages = packages
        self.draws = live
        """`--mode cli` instead of its default, a summary at the end."""

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
        """On a terminal of its own, whose other end is read so that it never waits."""
        ours, theirs = _screen()
        environment = os.environ | {"TERM": "xterm-256color"}
        top = subprocess.Popen(
            [self._program, "top", "--pid", str(pid)], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
        )
        os.close(theirs)
        threading.Thread(target=lambda: [None for _ in _chunks(ours)], daemon=True).start()
        return top


def free_port() -> int:
    """One that nobody listens on: TraceML's own would refuse a second run beside it."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def of_costs(packages: Path) -> list[Tool]:
    """Bare, ddpmon, TraceML and py-spy; the last two are in the folder `packages`."""
    return [Tool(), Ddpmon(), TraceML(packages), PySpy(packages)]


def of_verdicts(packages: Path) -> list[Tool]:
    """Those that give one, in the way in which they say it first."""
    return [Ddpmon(), TraceML(packages, live=True)]


def run(tool: Tool, nproc: int, script: Path, arguments: list[str], folder: Path) -> Finished:
    """Run a script under a tool to its end."""
    finished = Finished(folder)
    terminal = {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)} if tool.draws else {}
    ours, theirs = _screen() if tool.draws else os.pipe()
    started = subprocess.Popen(
        [*tool.command(nproc, script), *arguments],
        cwd=folder,
        env=os.environ | {MARK: str(folder), "OMP_NUM_THREADS": "1"} | terminal | tool.environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    reader = threading.Thread(target=_watch if tool.draws else _read, args=(ours, finished, tool.on_screen))
    reader.start()
    beside: list[subprocess.Popen[bytes]] = []
    first: dict[int, float] = {}
    latest: dict[int, float] = {}
    begun = 0.0
    while started.poll() is None:
        if not begun and (folder / "ready").exists():
            begun = time.monotonic()
            beside = tool.accompany(_ranks(folder), folder)
        if begun and not (folder / "result").exists():
            for process, cpu_s in _cpu_of(folder, {one.pid for one in beside}):
                first.setdefault(process, cpu_s)
                latest[process] = cpu_s
            finished.seconds = time.monotonic() - begun
        time.sleep(POLL_S)
    finished.besides_cpu_s = sum(latest[process] - first[process] for process in latest)
    for one in beside:
        with contextlib.suppress(ProcessLookupError):
            one.terminate()
        one.wait()
    reader.join()
    return finished


def _screen() -> tuple[int, int]:
    """A terminal: our end and the program's."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    return ours, theirs


def _chunks(end: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # a terminal that nobody has open any more
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
