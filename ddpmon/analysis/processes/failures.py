"""Who failed first, and how each rank ended: from torchrun's failure table and what the ranks said themselves."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ddpmon.analysis.processes.alike import alike, same_words, together
from ddpmon.analysis.words import GIB, rank_list
from ddpmon.messages import Failure

_ENTRY = re.compile(
    r"rank\s*:\s*(?P<rank>\d+)\s*\(local_rank:\s*(?P<local>\d+)\).*?exitcode\s*:\s*(?P<code>-?\d+)\s*\(pid:\s*(?P<pid>\d+)\)",
    re.DOTALL,
)
FALL = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)")
"""What torchrun says when it sees the first rank of an attempt fail."""
_PEER_GONE = re.compile(
    r"connection (was )?(closed|reset|refused)|by peer|gloo|nccl|broken pipe|timed out|TCPStore|DistBackendError",
    re.IGNORECASE,
)
_CHILD_KILLED = re.compile("killed by signal: Killed|terminated with signal SIGKILL")
"""What torch's DataLoader and torch.multiprocessing say of a process of theirs."""
_MEMORY = {"cgroup": "out of memory", "host": "its host ran out of memory"}
"""What a SIGKILL means while the kernel killed for want of memory there (`Run.memory_kills`)."""
_GPU_FULL = "CUDA out of memory"
"""What torch says where a GPU's memory was asked for."""
_SIGNALLED = 128
"""A shell's exit code of what a signal ended is that much more than the signal."""
_HARMLESS = {"SIGTERM", "SIGINT", "SIGHUP"}
_OWN_FAULT = {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE"}
"""Signals that nobody sends to a rank because another one failed."""
EXCEPTION = re.compile(r"[\w.]*(Error|Exception|Interrupt|Exit)\b(:|$)")
"""The beginning of the line that names a Python exception."""


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


OutOf: TypeAlias = Literal["", "host", "gpu"]


@dataclass(frozen=True)
class FirstFailure:
    """The rank that failed first, why ("ValueError: …", "killed by SIGKILL"), how it ended, and who ended alike."""

    rank: int
    cause: str
    exit: str
    """"exit 1", or "" where the cause says it."""
    ranks: tuple[int, ...]
    """Every rank that failed alike, in their order, itself among them: that is one fault, not several."""
    lost_peers: int = 0
    """How many further ranks only said that a peer had gone."""
    out_of: OutOf = ""
    """Whose memory it ran out of, if it did."""


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


def read_falls(text: str) -> dict[int, Ended]:
    """Whom torchrun saw fail first in each attempt that its output mentions, by pid. The rank is the local one."""
    rows = ({name: int(value) for name, value in match.groupdict().items()} for match in FALL.finditer(text))
    return {row["pid"]: Ended(row["local"], row["local"], row["pid"], row["code"], root=True) for row in rows}


def first(
    ended: Sequence[Ended],
    failures: Sequence[Failure],
    last_lines: Mapping[int, str],
    memory_kills: str = "",
    common_line: str = "",
) -> FirstFailure | None:
    """The first cause: an exception's own time counts, except where it only says that a peer has gone.

    last_lines: the last line each rank left on stderr, for a rank that could not report its exception.
    memory_kills: as in `Run`.
    common_line: the last line of what ranks wrote where their output is not kept apart.
    """
    memory = _MEMORY.get(memory_kills, "")
    by_rank = {row.rank: row for row in ended}
    reported = sorted(failures, key=lambda failure: failure.time_us)
    causes = [failure for failure in reported if not is_consequence(failure)]
    killed = [row for row in ended if row.signal and row.signal not in _HARMLESS]
    silent = [row for row in ended if row.code and all(row.rank != failure.rank for failure in reported)]
    lost_peers = len({failure.rank for failure in reported} - {failure.rank for failure in causes})
    if causes:
        ranks = {failure.rank for failure in causes if alike(causes[0], failure)}
        ranks |= _saying(causes[0].error, last_lines) - {failure.rank for failure in reported}
        return _of_failure(causes[0], by_rank, memory, ranks, lost_peers)
    if killed:
        row = min(killed, key=lambda row: (row.signal == "SIGABRT", not row.root, row.rank))
        same = [other.rank for other in killed if row.signal in _OWN_FAULT and other.signal == row.signal]
        cause = _because(f"killed by {row.signal}", memory, row.signal == "SIGKILL")
        out_of: OutOf = "host" if memory and row.signal == "SIGKILL" else ""
        return FirstFailure(row.rank, cause, "", tuple(sorted({row.rank, *same})), lost_peers, out_of)
    if silent and (not reported or any(row.root for row in silent)):
        row = min(silent, key=lambda row: (not row.root, row.rank))
        words = last_lines.get(row.rank, "")
        ranks = _saying(words, last_lines) & set(by_rank) if words else set()
        if not words:
            words = common_line
            ranks = {other.rank for other in silent if words and other.code == row.code} - set(last_lines)
        alike_ranks = tuple(sorted(ranks | {row.rank}))
        return FirstFailure(row.rank, *_said(words, row.code), alike_ranks, lost_peers, _gpu(words))
    if reported:
        return _of_failure(reported[0], by_rank, memory, {reported[0].rank}, 0)
    return None


def _saying(words: str, last_lines: Mapping[int, str]) -> set[int]:
    return {rank for rank, line in last_lines.items() if same_words(line, words)}


def _said(words: str, code: int | None) -> tuple[str, str]:
    """Cause and exit. What is no exception (a usage error) says less than the code that came with it."""
    if not words or EXCEPTION.match(words):
        return words or "no exception was seen", f"exit {code}"
    return f"exit {code}: {words}", ""


def _of_failure(
    failure: Failure, by_rank: Mapping[int, Ended], memory: str, ranks: set[int], lost_peers: int
) -> FirstFailure:
    row = by_rank.get(failure.rank)
    how = f"exit {row.code}" if row and row.code is not None else row.signal or "" if row else ""
    child_killed = _CHILD_KILLED.search(failure.error) is not None
    error = _because(failure.error, memory, child_killed)
    out_of = "host" if memory and child_killed else _gpu(failure.error)
    return FirstFailure(failure.rank, error, how, tuple(sorted(ranks)), lost_peers, out_of)


def _gpu(words: str) -> OutOf:
    return "gpu" if _GPU_FULL in words else ""


def _because(what: str, memory: str, was_killed: bool) -> str:
    return f"{what.rstrip('. ')}, {memory}" if memory and was_killed else what


def advice(rank: int, out_of: OutOf, resident: Mapping[int, int]) -> str | None:
    """What to do about a rank that ran out of memory; None of any other cause.

    resident: bytes that each rank last held in the host's memory, without its DataLoader workers.
    """
    if out_of == "gpu":
        return (
            "Smaller batches with gradient accumulation keep the effective size; activation checkpointing and bf16 need"
            " less memory."
        )
    if not out_of:
        return None
    others = [size for other, size in resident.items() if other != rank]
    held = f"Rank {rank} last held {resident[rank] / GIB:.1f} GiB" if rank in resident else ""
    beside = f", the others {max(others) / GIB:.1f} at most" if held and others else ""
    measured = f"{held}{beside}; DataLoader workers, which come on top, were not measured. " if held else ""
    return (
        f"{measured}Fewer ranks or DataLoader workers on this host need less, smaller batches too; what is kept from"
        " step to step (losses with their graph, lists of outputs, a dataset's cache) grows until it is full."
    )


def of_command(code: int | None, last_line: str, memory_kills: str) -> str:
    """As in: the command ended with exit 2: error: no such option; where no rank is known to have failed."""
    last_line = _because(last_line, _MEMORY.get(memory_kills, ""), _CHILD_KILLED.search(last_line) is not None)
    return f"{how_command_ended(code, memory_kills)} {last_line or 'it said nothing'}"


def how_command_ended(code: int | None, memory_kills: str) -> str:
    """The beginning of the same, up to the colon."""
    how = f"exit {code}"
    if code is not None and code - _SIGNALLED in set(signal.Signals):
        name = signal.Signals(code - _SIGNALLED).name
        how += f" ({_because(name, _MEMORY.get(memory_kills, ''), name == 'SIGKILL')})"
    return f"the command ended with {how}:"


def sentence(failure: FirstFailure, world_size: int) -> str:
    """As in: rank 2 failed first: ValueError: no such class, exit 1; 3 others then stopped."""
    others = world_size - len(failure.ranks)
    many = "s" if others > 1 else ""
    how = f"{failure.cause}{', ' if failure.exit else ''}{failure.exit}"
    tail = f"; {others} other{many} then stopped" if others > 0 else ""
    if len(failure.ranks) > 1 and failure.lost_peers >= others > 0:
        tail = f"; {others} other{many} only lost {'their' if many else 'its'} peers"
    return f"{who_failed_first(failure, world_size)} {how}{tail}"


def who_failed_first(failure: FirstFailure, world_size: int) -> str:
    """The beginning of the same, up to the colon."""
    many = len(failure.ranks) > 1
    return who_failed(failure.ranks, world_size) if many else f"rank {failure.rank} failed first:"


def headline(ranks: Sequence[int], cause: str, world_size: int) -> str:
    """The same without what became of it, as in: rank 2 failed: ValueError: no such class."""
    return f"{who_failed(ranks, world_size)} {cause}"


def who_failed(ranks: Sequence[int], world_size: int) -> str:
    """The beginning of the same, up to the colon."""
    return f"rank {ranks[0]} failed:" if len(ranks) < 2 else f"{_ranks(ranks, world_size)} failed alike:"


def events(failures: Sequence[Failure], world_size: int) -> list[tuple[str, str]]:
    """Severity and sentence of failures: one for those that are alike, one for all that lost their peers."""
    causes = [failure for failure in failures if not is_consequence(failure)]
    sentences = []
    for group in together(causes):
        ranks = sorted({failure.rank for failure in group})
        sentences.append(("critical", headline(ranks, group[0].error, world_size)))
    lost = sorted({failure.rank for failure in failures} - {failure.rank for failure in causes})
    if lost:
        who = f"rank {lost[0]} lost its" if len(lost) == 1 else f"{_ranks(lost, world_size)} lost their"
        sentences.append(("warn", f"{who} peers and failed too"))
    return sentences


def _ranks(ranks: Sequence[int], world_size: int) -> str:
    return f"all {world_size} ranks" if len(ranks) == world_size else f"ranks {rank_list(ranks, world_size)}"
