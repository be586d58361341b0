"""Reads from a run's logs how its processes ended, in earlier attempts too: torchrun's table, last words."""

from __future__ import annotations

import itertools
import os
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from ddpmon import runs
from ddpmon.analysis.processes import failures
from ddpmon.analysis.processes.explanation import crash_line
from ddpmon.analysis.processes.launcher import FALL, Ended, read_falls, read_spawned, read_table
from ddpmon.exception_text import BELOW_CPP, EXCEPTION, in_one_line
from ddpmon.messages import Attempt, Failure
from ddpmon.messages.folder import EXEC
from ddpmon.messages.nodes import End
from ddpmon.redaction import redact_text
from ddpmon.runs import Run
from ddpmon.runs.rotated import tail
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry

TAIL_BYTES = 262_144
EARLIER_ATTEMPTS = 8
"""The latest of them whose last lines are read."""
_LAUNCHER_SAYS = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d")
"""The beginning of a line that torchrun itself prints."""
_RANK_SAYS = re.compile(r"(?:\[rank\d+\]:\s*)+")
"""Prefix that torch puts before each line of a rank's exception."""
_EXCEPTION_OF = re.compile(r"\[rank\d+\]: ")
"""The same of an exception alone: what its C++ code logs follows the mark without a space."""
_WHAT = "what():"
"""The beginning of the line that names a C++ exception nobody caught, as NCCL's watchdog throws; frames follow it."""
_DEVICE_ASSERT = "device-side assert triggered"
"""Message of CUDA about a kernel that found its input wrong; each thread of the kernel printed the condition that
failed."""
_CONDITION = re.compile(r"^(?P<file>\S+?):(?P<line>\d+): .*thread: \[.*\] Assertion `(?P<condition>.+)` failed\.?$")
_IGNORED = "Exception ignored in"
"""The beginning of a traceback that ends nothing: Python prints it of an object that is thrown away."""
_INNER = "inner exception"
"""In an exception that leaves its cause to the one it was raised from, as torch's RendezvousConnectionError does."""
_HARMLESS = re.compile(
    r"\[?[IW]\d{4} \d\d:\d\d:\d\d|(?:\S+:\d+: )?\w*Warning: |.*\b\d{1,3}%\|"
    r"|\W{0,2}(?:\d[\d:.,TZ/ -]+\W{1,4}(?:[\w.]+\W{1,4})?)?(?:WARNING|INFO|DEBUG)\b"
)
"""The beginning of a line that no process ends of: a warning (torch's, Python's, a logger's) or a progress bar."""
_CRASHED = re.compile(
    r"Fatal Python error: |(?:Current t|T)hread 0x[0-9a-f]+ |File \"[^\"]*\", line \d+ in |<no Python frame>"
    "|Extension modules: "
)
"""The beginning of a line that faulthandler prints of a crash: `crash_line` reads it."""
_BANNER = re.compile(r"(\*{20,})\n.*\n\1$", re.MULTILINE)
"""A line between two rules, as torchrun warns at every start with several ranks that OMP_NUM_THREADS is not set."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class Ending:
    """Ends of the run's processes, as far as its logs tell."""

    rows: Sequence[Ended] = ()
    last_lines: dict[int, str] | None = None
    """The last line of stderr, by rank."""
    launcher_line: str = ""
    """The last line that the command itself said."""
    common_line: str = ""
    """The last line of ranks that share one log, before torchrun's report of their failure."""
    falls: Mapping[int, Ended] = field(default_factory=dict)
    """Whom torchrun saw fail first in each attempt, by pid."""
    earlier_lines: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """The last lines of stderr in attempts before the last one, by restart count and by the number of the folder."""

    def earlier_line(self, process: RankProcess) -> str:
        """The last line of a rank of an earlier attempt, which torchrun names by its local rank."""
        numbers = dict.fromkeys((process.hello.local_rank, process.rank))
        return next((line for n in numbers if (line := self.earlier_lines.get((process.hello.restart, n)))), "")


def whole_ending(run: Run, registry: Registry) -> Ending:
    """Return what the logs here say, and what hubs of other nodes reported of theirs."""
    by_local = {process.hello.local_rank: rank for rank, process in registry.seats.items() if not process.hello.through}
    own = read_ending(run, by_local)
    elsewhere = {rank: (process, end) for rank, process in registry.seats.items() if (end := process.end) is not None}
    rows = [row for rank, (process, end) in elsewhere.items() if (row := ended_as(process, end))]
    lines = {rank: end.last_line for rank, (_, end) in elsewhere.items() if end.last_line}
    return replace(
        own,
        rows=[*(row for row in own.rows if row.rank not in elsewhere), *rows],
        last_lines={**(own.last_lines or {}), **lines},
    )


def ended_as(process: RankProcess, end: End) -> Ended | None:
    """A process of another node as a row of torchrun's failure table there; None: it is in none."""
    if end.exitcode is None:
        return None
    return Ended(process.rank, process.hello.local_rank, process.hello.pid, end.exitcode, end.first)


def ends_here(run: Run, registry: Registry) -> dict[int, End]:
    """Return how processes of this machine ended badly, by pid, as far as the logs say: for the hub of another one."""
    ending = whole_ending(run, registry)
    rows = {row.pid: row for row in (*ending.falls.values(), *ending.rows)}
    ends = {}
    for process in registry.everyone.values():
        row = rows.get(process.hello.pid)
        line = (ending.last_lines or {}).get(process.rank, "") if registry.is_seated(process) else ""
        if not process.hello.through and (row or (line and not process.left)):
            ends[process.hello.pid] = End(row.exitcode if row else None, line, bool(row and row.root))
    return ends


def read_ending(run: Run, by_local: Mapping[int, int] = MappingProxyType({})) -> Ending:
    """Return what the logs say so far; empty if they say nothing. by_local: ranks by local rank, where they differ."""
    logs = runs.run_dir(run.id) / "logs"
    launcher = tail(logs / "launcher.log", TAIL_BYTES)
    table = read_table(launcher)
    rows = table or [replace(row, rank=by_local.get(row.local_rank, row.rank)) for row in read_spawned(launcher)]
    ranks = {**by_local, **{row.local_rank: row.rank for row in table}}
    by_rank = {}
    *earlier, newest = _attempts(logs / "ranks") or [(0, [])]
    for path in newest[1]:
        output = tail(path / "stderr.log", TAIL_BYTES)
        number = int(path.name)  # torchrun names the folders by local rank
        rank = number if path.parent.parent.name == EXEC else ranks.get(number, number)
        if line := last_line(output):
            by_rank[rank] = line
        if line := crash_line(output):
            rows = [replace(row, line=line) if row.rank == rank else row for row in rows]
    falls = read_falls(launcher)
    return Ending(
        rows,
        by_rank,
        last_line(tail(last_written(logs), TAIL_BYTES)),
        last_line(_of_ranks(launcher)) if table else "",
        falls,
        {
            (restart, int(path.name)): line
            for restart, paths in earlier[-EARLIER_ATTEMPTS:]
            for path in paths
            if (line := last_line(tail(path / "stderr.log", TAIL_BYTES)))
        },
    )


def last_written(logs: Path, rank: int | None = None) -> Path:
    """launcher.log, or of ranks that a launcher of the script's own started the stderr that was written to after it.

    rank: this one's alone.
    """
    launcher = logs / "launcher.log"
    pattern = f"{EXEC}/attempt_*/{'*' if rank is None else rank}/stderr.log"
    stderr_logs = [path for path in (logs / "ranks").glob(pattern) if path.stat().st_size]
    return max([launcher, *stderr_logs], key=lambda path: path.stat().st_mtime_ns if path.exists() else 0)


def _of_ranks(launcher: str) -> str:
    """The output of ranks that share one log: what comes before torchrun's report of their failure."""
    lines = launcher.splitlines()
    end = next((place for place, line in enumerate(lines) if FALL.search(line)), 0)
    return "\n".join(line for line in lines[:end] if not _LAUNCHER_SAYS.match(line))


def last_line(text: str) -> str:
    """The last line that may say why; of an exception its whole message in one line, before whatever follows it.

    Secrets in it are hidden.
    """
    lines = _worth_reading(text)
    if not lines:
        return ""
    last_lines = lines[-20:]
    exceptions = [place for place, (line, _) in enumerate(last_lines) if EXCEPTION.match(line)]
    errors = [place for place, (line, _) in enumerate(last_lines) if line.startswith(_WHAT)]
    place = (exceptions or errors or [len(last_lines) - 1])[-1]  # an exception may end the process as a C++ one
    last = in_one_line(_message(last_lines[place:])).removeprefix(_WHAT).lstrip() or last_lines[-1][0]
    if _INNER in last:
        last = next((line for line, _ in reversed(lines) if EXCEPTION.match(line) and _INNER not in line), last)
    if _DEVICE_ASSERT in last and (failed := next(filter(None, (_CONDITION.match(line) for line, _ in lines)), None)):
        last += f": `{failed['condition']}` is false, {Path(failed['file']).name}:{failed['line']}"
    return redact_text(last)


def _worth_reading(text: str) -> list[tuple[str, bool]]:
    """Lines of a rank's output that may say why it ended, each with whether torch marked it as a rank's exception."""
    lines: list[tuple[str, bool]] = []
    is_harmless = is_ignored = False
    for raw in _BANNER.sub("", _ESCAPES.sub("", text)).splitlines():
        line = _RANK_SAYS.sub("", raw.strip())
        # below a warning of Python's stands the line of code that gave it
        is_harmless = bool(_HARMLESS.match(line)) or (is_harmless and raw.startswith("  "))
        ends_ignored = is_ignored and bool(EXCEPTION.match(line))
        is_ignored = line.startswith(_IGNORED) or (is_ignored and line.startswith("Traceback") | raw.startswith("  "))
        is_noise = is_harmless or is_ignored or ends_ignored or bool(BELOW_CPP.match(line) or _CRASHED.match(line))
        if line and not is_noise and not set(line) <= set("=-~^* "):
            lines.append((line, bool(_EXCEPTION_OF.match(raw))))
    return lines


def _message(lines: Sequence[tuple[str, bool]]) -> list[str]:
    """The lines of an exception's message, which begins with the first one: where torch marks them, all are known."""
    (first, is_marked), *others = lines
    return [first, *(line for line, _ in itertools.takewhile(lambda one: one[1], others))] if is_marked else [first]


def _attempts(ranks: Path) -> list[tuple[int, list[Path]]]:
    """Restart count and folders of the ranks in each attempt, the last one last: <log dir>/<run>/attempt_N/<rank>."""
    attempts = sorted(ranks.glob("*/attempt_*"), key=lambda path: (os.stat(path).st_mtime_ns, path.name))
    return [
        (int(number), sorted(path for path in folder.iterdir() if path.name.isdecimal()))
        for folder in attempts
        if (number := folder.name.removeprefix("attempt_")).isdecimal()
    ]


def earlier_attempts(
    registry: Registry,
    ending: Ending,
    failures_of: Callable[[int], list[Failure]],
    gone_of: Callable[[list[RankProcess]], Sequence[failures.Gone]],
) -> list[Attempt]:
    """Return the attempts before the present one, the oldest first. The run's end adds what the logs say of them.

    Args:
        registry: The run's processes.
        ending: What the logs say so far.
        failures_of: Returns the exceptions of an attempt.
        gone_of: Returns which processes have ended without reporting an exception.

    """
    ranks: dict[int, list[RankProcess]] = {}
    for process in registry.everyone.values():
        if 0 <= process.attempt < registry.attempt:
            ranks.setdefault(process.attempt, []).append(process)
    attempts = []
    for number, processes in sorted(ranks.items()):
        failed = failures_of(number)
        fallen = _fallen(ending, processes)
        gone = gone_of(processes) if fallen or failed else ()  # else torchrun ended them, as when a node comes
        attempts.append(_attempt(number, processes, ending, fallen, failed, gone))
    return attempts


def _fallen(ending: Ending, processes: list[RankProcess]) -> list[Ended]:
    """Return the processes that ended badly, as far as launchers said so."""
    fallen = [
        replace(fall, rank=process.rank)
        for process in processes
        if not process.hello.through and (fall := ending.falls.get(process.hello.pid))
    ]
    return fallen + [row for process in processes if process.end and (row := ended_as(process, process.end))]


def _attempt(
    number: int,
    processes: list[RankProcess],
    ending: Ending,
    fallen: list[Ended],
    failed: list[Failure],
    gone: Sequence[failures.Gone],
) -> Attempt:
    lines = {process.rank: line for process in processes if (line := ending.earlier_line(process))}
    first = failures.first(fallen, failed, lines, gone=gone, world_size=processes[0].hello.world_size)
    return Attempt(
        number + 1,
        processes[0].hello.world_size,
        int(statistics.median_low(process.steps for process in processes)),
        list(first.ranks) if first else [],
        first.cause if first else None,
        first.exit or None if first else None,
    )
