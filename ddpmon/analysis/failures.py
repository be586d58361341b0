"""Who failed first, and how each rank ended: from torchrun's failure table and what the ranks said themselves."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddpmon.messages import Failure

_ENTRY = re.compile(
    r"rank\s*:\s*(?P<rank>\d+)\s*\(local_rank:\s*(?P<local>\d+)\).*?exitcode\s*:\s*(?P<code>-?\d+)\s*\(pid:\s*(?P<pid>\d+)\)",
    re.DOTALL,
)
_PEER_GONE = re.compile(
    r"connection (was )?(closed|reset|refused)|by peer|gloo|nccl|broken pipe|timed out|TCPStore|DistBackendError",
    re.IGNORECASE,
)
_CHILD_KILLED = re.compile("killed by signal: Killed|terminated with signal SIGKILL")
"""What torch's DataLoader and torch.multiprocessing say of a process of theirs."""
_MEMORY = {"cgroup": "out of memory", "host": "its host ran out of memory"}
"""What a SIGKILL means while the kernel killed for want of memory there (`Run.memory_kills`)."""
_GIB = 1 << 30
_SIGNALLED = 128
"""A shell's exit code of what a signal ended is that much more than the signal."""
_HARMLESS = {"SIGTERM", "SIGINT", "SIGHUP"}


@dataclass(frozen=True)
class Ended:
    """One row of torchrun's failure table."""

    rank: int
    local_rank: int
    pid: int
    exitcode: int
    """Negative: killed by that signal."""
    root: bool
    """torchrun saw it first."""

    @property
    def code(self) -> int | None:
        return self.exitcode if self.exitcode >= 0 else None

    @property
    def signal(self) -> str | None:
        """Name of the signal that ended it."""
        if self.exitcode >= 0:
            return None
        try:
            return signal.Signals(-self.exitcode).name
        except ValueError:
            return f"signal {-self.exitcode}"


@dataclass(frozen=True)
class FirstFailure:
    """The rank that failed first, why ("ValueError: …", "killed by SIGKILL"), and how it ended."""

    rank: int
    cause: str
    exit: str
    """"exit 1", or "" where the cause says it."""
    alike: int = 0
    """How many other ranks ended with the very same words."""


def is_consequence(failure: Failure) -> bool:
    """Whether an exception only says that a peer has gone."""
    return _PEER_GONE.search(failure.error) is not None


def read_table(text: str) -> list[Ended]:
    """Rows of the last failure table in torchrun's output; empty if there is none."""
    table = text[text.rfind("Failures:") :] if "Failures:" in text else ""
    if not table and "Root Cause" in text:
        table = text[text.rfind("Root Cause") :]
    root_at = table.find("Root Cause")
    rows: dict[int, Ended] = {}
    for match in _ENTRY.finditer(table):
        rank, local, pid, code = (int(match[name]) for name in ("rank", "local", "pid", "code"))
        rows[rank] = Ended(rank, local, pid, code, root=0 <= root_at < match.start())
    return list(rows.values())


def first(
    ended: Sequence[Ended], failures: Sequence[Failure], last_lines: Mapping[int, str], memory_kills: str = ""
) -> FirstFailure | None:
    """The first cause: an exception's own time counts, except where it only says that a peer has gone.

    last_lines: the last line each rank left on stderr, for a rank that could not tell of its exception.
    memory_kills: as in `Run`.
    """
    memory = _MEMORY.get(memory_kills, "")
    by_rank = {row.rank: row for row in ended}
    told = sorted(failures, key=lambda failure: failure.time_us)
    causes = [failure for failure in told if not is_consequence(failure)]
    killed = [row for row in ended if row.signal and row.signal not in _HARMLESS]
    silent = [row for row in ended if row.code and all(row.rank != failure.rank for failure in told)]
    if causes:
        return _of_failure(causes[0], by_rank, memory)
    if killed:
        row = min(killed, key=lambda row: (row.signal == "SIGABRT", not row.root, row.rank))
        return FirstFailure(row.rank, _because(f"killed by {row.signal}", memory, row.signal == "SIGKILL"), "")
    if silent and (not told or any(row.root for row in silent)):
        row = min(silent, key=lambda row: (not row.root, row.rank))
        words = last_lines.get(row.rank)
        alike = sum(last_lines.get(other.rank) == words for other in silent) - 1 if words else 0
        return FirstFailure(row.rank, words or "no exception was seen", f"exit {row.code}", alike)
    if told:
        return _of_failure(told[0], by_rank, memory)
    return None


def _of_failure(failure: Failure, by_rank: Mapping[int, Ended], memory: str) -> FirstFailure:
    row = by_rank.get(failure.rank)
    how = f"exit {row.code}" if row and row.code is not None else row.signal or "" if row else ""
    error = _because(failure.error, memory, _CHILD_KILLED.search(failure.error) is not None)
    return FirstFailure(failure.rank, error, how)


def _because(what: str, memory: str, was_killed: bool) -> str:
    return f"{what.rstrip('. ')}, {memory}" if memory and was_killed else what


def advice(rank: int, cause: str, resident: Mapping[int, int]) -> str | None:
    """What to do about a rank that ran out of memory; None of any other cause.

    resident: bytes that each rank last held in the host's memory, without its DataLoader workers.
    """
    if "CUDA out of memory" in cause:
        return (
            "Smaller batches with gradient accumulation keep the effective size; activation checkpointing and bf16 need"
            " less memory."
        )
    if not cause.endswith(tuple(_MEMORY.values())):
        return None
    others = [size for other, size in resident.items() if other != rank]
    held = f"Rank {rank} last held {resident[rank] / _GIB:.1f} GiB" if rank in resident else ""
    beside = f", the others {max(others) / _GIB:.1f} at most" if held and others else ""
    told = f"{held}{beside}; DataLoader workers, which come on top, were not measured. " if held else ""
    return (
        f"{told}Fewer ranks or DataLoader workers on this host need less, smaller batches too; what is kept from step"
        " to step (losses with their graph, lists of outputs, a dataset's cache) grows until it is full."
    )


def of_command(code: int | None, last_line: str, memory_kills: str) -> str:
    """As in: the command ended with exit 2: error: no such option; where no rank is known to have failed."""
    how, memory = f"exit {code}", _MEMORY.get(memory_kills, "")
    if code is not None and code - _SIGNALLED in set(signal.Signals):
        name = signal.Signals(code - _SIGNALLED).name
        how += f" ({_because(name, memory, name == 'SIGKILL')})"
    last_line = _because(last_line, memory, _CHILD_KILLED.search(last_line) is not None)
    return f"the command ended with {how}: {last_line or 'it said nothing'}"


def sentence(failure: FirstFailure, world_size: int) -> str:
    """As in: rank 2 failed first: ValueError: no such class, exit 1; 3 others then stopped."""
    others = world_size - 1
    if others and failure.alike == others:
        return f"every rank failed: {failure.cause}, {failure.exit}"
    tail = f"; {others} other{'s' if others > 1 else ''} then stopped" if others > 0 else ""
    return f"rank {failure.rank} failed first: {failure.cause}{', ' if failure.exit else ''}{failure.exit}{tail}"
