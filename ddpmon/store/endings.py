"""Reads how a run's processes ended, in all attempts, from its logs: torchrun's failure table, last lines of stderr."""

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
from ddpmon.analysis.processes.explanation import crash_line, raised_line, with_line
from ddpmon.analysis.processes.launcher import FALL, Ended, read_falls, read_spawned, read_table
from ddpmon.exception_text import BELOW_CPP, EXCEPTION, in_one_line
from ddpmon.messages import Attempt, Failure
from ddpmon.messages.folder import EXEC
from ddpmon.messages.nodes import End
from ddpmon.redaction import redact_text
from ddpmon.runs import Run
from ddpmon.runs.rotated_logs import tail
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry

TAIL_BYTES = 262_144
EARLIER_ATTEMPTS = 8
"""Largest number of earlier attempts whose last lines are read. Only the latest earlier attempts are read."""
_LAUNCHER_SAYS = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d")
"""Matches the beginning of a line that torchrun itself prints."""
_RANK_SAYS = re.compile(r"(?:\[rank\d+\]:\s*)+")
"""Prefix that torch puts before each line of a rank's exception."""
_EXCEPTION_OF = re.compile(r"\[rank\d+\]: ")
"""Prefix of lines of a rank's exception only: in lines that torch's C++ code logs, no space follows the colon."""
_WHAT = "what():"
"""Beginning of the line with the message of an uncaught C++ exception, for example from NCCL's watchdog."""
_DEVICE_ASSERT = "device-side assert triggered"
"""CUDA's message about a failed assertion in a kernel. The failed condition is in earlier lines, one for each thread of
the kernel."""
_CONDITION = re.compile(r"^(?P<file>\S+?):(?P<line>\d+): .*thread: \[.*\] Assertion `(?P<condition>.+)` failed\.?$")
_IGNORED = "Exception ignored in"
"""Beginning of a harmless traceback, which Python prints when the destructor of an object raises."""
_INNER = "inner exception"
"""Text in the message of an exception that only refers to its cause, such as torch's RendezvousConnectionError."""
_HARMLESS = re.compile(
    r"\[?[IW]\d{4} \d\d:\d\d:\d\d|(?:\S+:\d+: )?\w*Warning: |.*\b\d{1,3}%\|"
    r"|\W{0,2}(?:\d[\d:.,TZ/ -]+\W{1,4}(?:[\w.]+\W{1,4})?)?(?:WARNING|INFO|DEBUG)\b"
)
"""Matches lines that do not explain an exit: warnings (of torch, Python or a logger) and progress bars."""
_CRASHED = re.compile(
    r"Fatal Python error: |(?:Current t|T)hread 0x[0-9a-f]+ |File \"[^\"]*\", line \d+ in |<no Python frame>"
    "|Extension modules: "
)
"""Matches lines that faulthandler prints about a crash. `crash_line` reads these lines."""
_BANNER = re.compile(r"(\*{20,})\n.*\n\1$", re.MULTILINE)
"""Matches a line between two rows of asterisks. At the start of several ranks, torchrun prints such a line to warn that
OMP_NUM_THREADS is not set."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class Ending:
    """How the run's processes ended, according to its logs."""

    rows: Sequence[Ended] = ()
    last_lines: dict[int, str] | None = None
    """Last line of stderr of each rank."""
    launcher_line: str = ""
    """Last line that the run's command (the launcher) printed."""
    common_line: str = ""
    """Last line of ranks that share one log, before torchrun's report of their failure."""
    falls: Mapping[int, Ended] = field(default_factory=dict)
    """Process that failed first in each attempt according to torchrun, by pid."""
    earlier_lines: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """Last line of stderr in earlier attempts, by (restart count, number of the rank's folder)."""

    def earlier_line(self, process: RankProcess) -> str:
        """Return the last line of a rank of an earlier attempt. Its folder is named by local rank or by rank."""
        numbers = dict.fromkeys((process.hello.local_rank, process.rank))
        return next((line for n in numbers if (line := self.earlier_lines.get((process.hello.restart, n)))), "")


def whole_ending(run: Run, registry: Registry) -> Ending:
    """Return how processes ended according to the logs on this machine and the reports of other nodes' hubs."""
    by_local = {
        process.hello.local_rank: rank
        for rank, process in registry.process_of_rank.items()
        if not process.hello.through
    }
    own = read_ending(run, by_local)
    elsewhere = {
        rank: (process, end) for rank, process in registry.process_of_rank.items() if (end := process.end) is not None
    }
    rows = [row for rank, (process, end) in elsewhere.items() if (row := ended_as(process, end))]
    lines = {rank: end.last_line for rank, (_, end) in elsewhere.items() if end.last_line}
    return replace(
        own,
        rows=[*(row for row in own.rows if row.rank not in elsewhere), *rows],
        last_lines={**(own.last_lines or {}), **lines},
    )


def ended_as(process: RankProcess, end: End) -> Ended | None:
    """Return the row of torchrun's failure table for a process of another node; None if the table has no such row."""
    if end.exitcode is None:
        return None
    return Ended(process.rank, process.hello.local_rank, process.hello.pid, end.exitcode, end.first)


def ends_here(run: Run, registry: Registry) -> dict[int, End]:
    """Return how processes of this machine failed according to the logs, by pid. Node hubs send this to the root."""
    ending = whole_ending(run, registry)
    rows = {row.pid: row for row in (*ending.falls.values(), *ending.rows)}
    ends = {}
    for process in registry.processes.values():
        row = rows.get(process.hello.pid)
        line = (ending.last_lines or {}).get(process.rank, "") if registry.is_seated(process) else ""
        if not process.hello.through and (row or (line and not process.left)):
            ends[process.hello.pid] = End(row.exitcode if row else None, line, bool(row and row.root))
    return ends


def read_ending(run: Run, by_local: Mapping[int, int] = MappingProxyType({})) -> Ending:
    """Read from the logs so far how processes ended. The result is empty if the logs do not show it.

    Args:
        run: The run.
        by_local: The rank of each local rank. Empty if ranks and local ranks are equal.

    """
    logs = runs.run_dir(run.id) / "logs"
    launcher = tail(logs / "launcher.log", TAIL_BYTES)
    table = read_table(launcher)
    rows = table or [replace(row, rank=by_local.get(row.local_rank, row.rank)) for row in read_spawned(launcher)]
    ranks = {**by_local, **{row.local_rank: row.rank for row in table}}
    by_rank = {}
    *earlier, newest = _attempts(logs / "ranks") or [(0, [])]
    for path in newest[1]:
        output = tail(path / "stderr.log", TAIL_BYTES)
        number = int(path.name)  # torchrun names the folders by local rank.
        rank = number if path.parent.parent.name == EXEC else ranks.get(number, number)
        if words := last_line(output):
            by_rank[rank] = words
        crashed, raised = crash_line(output), raised_line(output, words)
        rows = [replace(row, line=raised if row.code else crashed) if row.rank == rank else row for row in rows]
    falls = read_falls(launcher)
    return Ending(
        rows,
        by_rank,
        _last_line_placed(tail(last_written(logs), TAIL_BYTES)),
        _last_line_placed(_of_ranks(launcher)) if table else "",
        falls,
        {
            (restart, int(path.name)): line
            for restart, paths in earlier[-EARLIER_ATTEMPTS:]
            for path in paths
            if (line := last_line(tail(path / "stderr.log", TAIL_BYTES)))
        },
    )


def last_written(logs: Path, rank: int | None = None) -> Path:
    """Return the path of the log that was written last: launcher.log or a rank's stderr.log.

    Only ranks that the script's own launcher started (`ddpmon exec`) are considered.

    Args:
        logs: The folder of the run's logs.
        rank: Rank whose stderr.log is considered, or None for those of all ranks.

    """
    launcher = logs / "launcher.log"
    pattern = f"{EXEC}/attempt_*/{'*' if rank is None else rank}/stderr.log"
    stderr_logs = [path for path in (logs / "ranks").glob(pattern) if path.stat().st_size]
    return max([launcher, *stderr_logs], key=lambda path: path.stat().st_mtime_ns if path.exists() else 0)


def _of_ranks(launcher: str) -> str:
    """Return the output of ranks that share one log: the lines before torchrun's report of their failure."""
    lines = launcher.splitlines()
    end = next((place for place, line in enumerate(lines) if FALL.search(line)), 0)
    return "\n".join(line for line in lines[:end] if not _LAUNCHER_SAYS.match(line))


def _last_line_placed(text: str) -> str:
    """Return the last line of an output. If it is an exception, the line of the script that raised it is added."""
    words = last_line(text)
    return with_line(words, raised_line(text, words))


def last_line(text: str) -> str:
    """Return the last line of an output that may explain why the process ended, with secrets redacted.

    If it is an exception, return its whole message as one line, without any output after it.
    """
    lines = _worth_reading(text)
    if not lines:
        return ""
    last_lines = lines[-20:]
    exceptions = [place for place, (line, _) in enumerate(last_lines) if EXCEPTION.match(line)]
    errors = [place for place, (line, _) in enumerate(last_lines) if line.startswith(_WHAT)]
    place = (exceptions or errors or [len(last_lines) - 1])[-1]  # A C++ exception may follow an exception of Python.
    last = in_one_line(_message(last_lines[place:])).removeprefix(_WHAT).lstrip() or last_lines[-1][0]
    if _INNER in last:
        last = next((line for line, _ in reversed(lines) if EXCEPTION.match(line) and _INNER not in line), last)
    if _DEVICE_ASSERT in last and (failed := next(filter(None, (_CONDITION.match(line) for line, _ in lines)), None)):
        last += f": `{failed['condition']}` is false, {Path(failed['file']).name}:{failed['line']}"
    return redact_text(last)


def _worth_reading(text: str) -> list[tuple[str, bool]]:
    """Return (line, True if torch marked it as an exception) for each line of an output that may explain an exit."""
    lines: list[tuple[str, bool]] = []
    is_harmless = is_ignored = False
    for raw in _BANNER.sub("", _ESCAPES.sub("", text)).splitlines():
        line = _RANK_SAYS.sub("", raw.strip())
        # Below a warning, Python prints the line of code that caused it, with an indent.
        is_harmless = bool(_HARMLESS.match(line)) or (is_harmless and raw.startswith("  "))
        ends_ignored = is_ignored and bool(EXCEPTION.match(line))
        is_ignored = line.startswith(_IGNORED) or (is_ignored and line.startswith("Traceback") | raw.startswith("  "))
        is_noise = is_harmless or is_ignored or ends_ignored or bool(BELOW_CPP.match(line) or _CRASHED.match(line))
        if line and not is_noise and not set(line) <= set("=-~^* "):
            lines.append((line, bool(_EXCEPTION_OF.match(raw))))
    return lines


def _message(lines: Sequence[tuple[str, bool]]) -> list[str]:
    """Return the lines of an exception's message, which begins with the first of `lines`.

    If torch did not mark the lines of the exception, the end of the message is unknown. Then return only the first
    line.
    """
    (first, is_marked), *others = lines
    return [first, *(line for line, _ in itertools.takewhile(lambda one: one[1], others))] if is_marked else [first]


def _attempts(ranks: Path) -> list[tuple[int, list[Path]]]:
    """Return (restart count, rank folders) of each attempt, oldest first: <log dir>/<run>/attempt_N/<rank>."""
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
    """Return the attempts before the current one, oldest first. While the run lasts, some facts may be missing in its
    logs.

    Args:
        registry: The run's processes.
        ending: How processes ended according to the logs so far.
        failures_of: Function that returns the exceptions of an attempt.
        gone_of: Function that returns which processes have ended without reporting an exception.

    """
    ranks: dict[int, list[RankProcess]] = {}
    for process in registry.processes.values():
        if 0 <= process.attempt < registry.attempt:
            ranks.setdefault(process.attempt, []).append(process)
    attempts = []
    for number, processes in sorted(ranks.items()):
        failed = failures_of(number)
        fallen = _fallen(ending, processes)
        gone = gone_of(processes) if fallen or failed else ()  # otherwise torchrun ended them, as when a node joins
        attempts.append(_attempt(number, processes, ending, fallen, failed, gone))
    return attempts


def _fallen(ending: Ending, processes: list[RankProcess]) -> list[Ended]:
    """Return the processes that failed according to the launchers."""
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
    first = failures.first_failure(fallen, failed, lines, gone=gone, world_size=processes[0].hello.world_size)
    return Attempt(
        number + 1,
        processes[0].hello.world_size,
        int(statistics.median_low(process.steps for process in processes)),
        list(first.ranks) if first else [],
        first.cause if first else None,
        first.exit or None if first else None,
    )
