"""Reads from a run's logs how its processes ended: torchrun's failure table and the ranks' last words."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from ddpmon import runs
from ddpmon.analysis.processes.failures import EXCEPTION, FALL, Ended, read_falls, read_table
from ddpmon.messages.folder import EXEC
from ddpmon.messages.nodes import End
from ddpmon.runs import Run
from ddpmon.runs.rotated import tail
from ddpmon.store.processes import RankProcess
from ddpmon.store.registry import Registry

TAIL_BYTES = 262_144
LINE_WIDTH = 300
_LAUNCHER_SAYS = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d")
"""The beginning of a line that torchrun itself prints."""
_RANK_SAYS = re.compile(r"(?:\[rank\d+\]:\s*)+")
"""What torch puts before each line of a rank's exception."""
_INNER = "inner exception"
"""In an exception that leaves its cause to the one it was raised from, as torch's RendezvousConnectionError does."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True)
class Ending:
    """How the run's processes ended, as far as its logs say."""

    rows: Sequence[Ended] = ()
    last_lines: dict[int, str] | None = None
    """The last line of stderr, by rank."""
    launcher_line: str = ""
    """The last line that the command itself said."""
    common_line: str = ""
    """The last line of ranks that share one log, before torchrun's report of their failure."""
    falls: Mapping[int, Ended] = field(default_factory=dict)
    """Whom torchrun saw fail first in each attempt, by pid."""


def whole_ending(run: Run, registry: Registry) -> Ending:
    """What the logs here say, and what hubs of other nodes reported of theirs."""
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
    """How processes of this machine ended badly, by pid, as far as the logs say: for the hub of another one."""
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
    """What the logs say so far; empty where they say nothing. by_local: ranks by local rank, where they differ."""
    logs = runs.run_dir(run.id) / "logs"
    launcher = tail(logs / "launcher.log", TAIL_BYTES)
    table = read_table(launcher)
    ranks = {**by_local, **{row.local_rank: row.rank for row in table}}
    by_rank = {}
    for path in _newest_attempt(logs / "ranks"):
        line = last_line(tail(path / "stderr.log", TAIL_BYTES))
        if line:  # torchrun names the folders by local rank
            number = int(path.name)
            by_rank[number if path.parent.parent.name == EXEC else ranks.get(number, number)] = line
    falls = read_falls(launcher)
    return Ending(
        table,
        by_rank,
        last_line(tail(last_written(logs), TAIL_BYTES)),
        last_line(_of_ranks(launcher)) if table else "",
        falls,
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
    """The last line that says something, cut to a sane width; an exception's line before whatever follows it."""
    lines = [_RANK_SAYS.sub("", line.strip()) for line in _ESCAPES.sub("", text).splitlines()]
    lines = [line for line in lines if line and not set(line) <= set("=-~^* ")]
    if not lines:
        return ""
    errors = [line for line in lines[-20:] if EXCEPTION.match(line)]
    last = (errors or lines)[-1]
    if _INNER in last:
        last = next((line for line in reversed(lines) if EXCEPTION.match(line) and _INNER not in line), last)
    return last[:LINE_WIDTH]


def _newest_attempt(ranks: Path) -> list[Path]:
    """Folders of the ranks in torchrun's last attempt: <log dir>/<run>/attempt_N/<local rank>."""
    attempts = sorted(ranks.glob("*/attempt_*"), key=lambda path: (os.stat(path).st_mtime_ns, path.name))
    return sorted(path for path in attempts[-1].iterdir() if path.name.isdecimal()) if attempts else []
