"""Who failed first, and how each rank ended: from what its launcher says, and what the ranks said themselves.

Causes come in this order; within a class the launcher's order of seeing ranks end counts, then time:

1. a rank that ended by itself (an exit code, a signal) and that the launcher saw end before all others;
2. exceptions of a rank's own;
3. further ranks that ended by themselves: by an exit code or a signal, then those that left without either;
4. what the end of another rank causes: a connection that is closed, a launcher's SIGTERM.

A wait that timed out before any rank had ended is no such consequence: who ends after it was ended by it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from msgspec import structs

from ddpmon.analysis.processes.alike import alike, same_words, together
from ddpmon.analysis.words import GIB, counted, named_ranks
from ddpmon.messages import Failure

_ENTRY = re.compile(
    r"^\[(?P<seen>\d+)\]:\n(?:[ \t]+[^\n]*\n)*?\s*rank\s*:\s*(?P<rank>\d+)\s*\(local_rank:\s*(?P<local>\d+)\)"
    r".*?exitcode\s*:\s*(?P<code>-?\d+)\s*\(pid:\s*(?P<pid>\d+)\)",
    re.DOTALL | re.MULTILINE,
)
"""A row of torchrun's table. Rows are numbered as it saw processes end; its own root cause goes by whole seconds."""
_SPAWNED = re.compile(r"\bprocess (?P<local>\d+) terminated with (?:signal (?P<signal>SIG\w+)|exit code (?P<code>\d+))")
"""The words of torch.multiprocessing about the first process that ended badly without a Python exception."""
FALL = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)")
"""What torchrun says when it sees the first rank of an attempt fail."""
_PEER_GONE = re.compile(
    r"connection (was )?(closed|reset|refused)|by peer|gloo|nccl|broken pipe|timed out|TCPStore|DistBackendError"
    r"|monitoredBarrier|socket timeout",
    re.IGNORECASE,
)
_TIMED_OUT = re.compile(r"timed out|timeout", re.IGNORECASE)
"""What a wait says that lasted too long: its peer was late, and need not have gone."""
_CHILD_KILLED = re.compile("killed by signal: Killed|terminated with signal SIGKILL")
"""What torch's DataLoader and torch.multiprocessing say of a process of theirs."""
_MEMORY = {"cgroup": "out of memory", "host": "its host ran out of memory"}
"""What a SIGKILL means while the kernel killed for want of memory there (`Run.memory_kills`)."""
_GPU_FULL = "CUDA out of memory"
"""What torch says where a GPU's memory was asked for."""
_SIGNALLED = 128
"""A shell's exit code of what a signal ended is that much more than the signal."""
_ASKS_TO_END = {"SIGTERM", "SIGINT", "SIGHUP"}
"""Signals that a launcher sends to the others once a rank has failed."""
_OWN_FAULT = {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE"}
"""Signals that nobody sends to a rank because another one failed."""
_SENT = {*_ASKS_TO_END, "SIGKILL"}
"""Signals from outside: what a process said before has nothing to do with them."""
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
    """Its launcher saw it end before all others that ended badly."""

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


@dataclass(frozen=True)
class Gone:
    """A rank that has ended and reported no exception."""

    rank: int
    steps: int
    """Finished by then."""
    ended_us: int
    """When that was noticed, by the clock of the run's hub."""
    left: bool
    """It said goodbye: its interpreter ended in order. One that is killed says none."""


def is_consequence(failure: Failure) -> bool:
    """Whether an exception only says that a peer has gone, or was raised because of one that does."""
    return _says(_PEER_GONE, failure)


def _says(words: re.Pattern[str], failure: Failure) -> bool:
    """Whether an exception says so, or one that it was raised because of."""
    chain = [line for line in failure.traceback.splitlines() if EXCEPTION.match(line)]
    return any(words.search(line) for line in (failure.error, *chain))


def read_table(text: str) -> list[Ended]:
    """Rows of the last failure table in torchrun's output; empty if there is none."""
    table = text[text.rfind("Failures:") :] if "Failures:" in text else ""
    if not table and "Root Cause" in text:
        table = text[text.rfind("Root Cause") :]
    rows: dict[int, Ended] = {}
    for match in _ENTRY.finditer(table):
        seen, rank, local, pid, code = (int(match[name]) for name in ("seen", "rank", "local", "pid", "code"))
        rows[rank] = Ended(rank, local, pid, code, root=seen == 0)
    return list(rows.values())


def read_spawned(text: str) -> list[Ended]:
    """The first process that torch.multiprocessing saw end badly, as a row of such a table; its rank is the local one.

    Empty where the process raised an exception, which the rank reports itself.
    """
    matches = list(_SPAWNED.finditer(text))
    if not matches:
        return []
    match = matches[-1]
    local = int(match["local"])
    code = int(match["code"]) if match["code"] else -getattr(signal, match["signal"], 0)
    return [Ended(local, local, 0, code, root=True)] if code else []


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
    gone: Sequence[Gone] = (),
) -> FirstFailure | None:
    """The first cause, in the order of causes above.

    last_lines: the last line each rank left on stderr, for a rank that could not report its exception.
    memory_kills: as in `Run`.
    common_line: the last line of what ranks wrote where their output is not kept apart.
    gone: ranks that ended in whatever way without reporting an exception; empty in a run that did not fail.
    """
    memory = _MEMORY.get(memory_kills, "")
    by_rank = {row.rank: row for row in ended}
    reported = sorted(failures, key=lambda failure: failure.time_us)
    causes = [failure for failure in reported if not is_consequence(failure)]
    lost_peers = len({failure.rank for failure in reported} - {failure.rank for failure in causes})
    quits, caused = _without_report(ended, reported, last_lines)
    if causes and not (quits and quits[0].root and quits[0].signal != "SIGABRT"):
        ranks = {failure.rank for failure in causes if alike(causes[0], failure)}
        ranks |= _saying(causes[0].error, last_lines) - {failure.rank for failure in reported}
        return _of_failure(_with_condition(causes[0], last_lines), by_rank, memory, ranks, lost_peers)
    if quits:
        return _of_quit(quits, last_lines, memory, common_line, lost_peers)
    peers_lost = bool(reported or caused)  # one that left in order harms nobody else
    silent = [one for one in gone if one.rank not in by_rank and (peers_lost or not (one.left or ended))]
    if reported and _says(_TIMED_OUT, reported[0]):
        silent = [one for one in silent if one.ended_us <= reported[0].time_us]
    if silent:
        return _of_gone(silent, last_lines, memory, lost_peers)
    if reported:
        return _of_failure(reported[0], by_rank, memory, {reported[0].rank}, 0)
    return _of_quit(caused, last_lines, memory, common_line, 0) if caused else None


def _without_report(
    ended: Sequence[Ended], reported: Sequence[Failure], last_lines: Mapping[int, str]
) -> tuple[list[Ended], list[Ended]]:
    """Ranks that ended badly and reported no exception: those that did so by themselves, and those that lost a peer.

    The first cause comes first. Ranks that were only asked to end are in neither.
    """
    raised = {failure.rank for failure in reported}
    quits: list[Ended] = []
    caused: list[Ended] = []
    for row in ended:
        if not row.exitcode or row.rank in raised or (row.signal in _ASKS_TO_END and not row.root):
            continue
        says_why = row.signal not in _SENT | _OWN_FAULT
        lost_peer = says_why and _PEER_GONE.search(last_lines.get(row.rank, ""))
        (caused if lost_peer else quits).append(row)
    for rows in (quits, caused):
        rows.sort(key=lambda row: (row.signal == "SIGABRT", not row.root, row.signal is None, row.rank))
    return quits, caused


def _of_quit(
    quits: Sequence[Ended], last_lines: Mapping[int, str], memory: str, common_line: str, lost_peers: int
) -> FirstFailure:
    row = quits[0]
    if row.signal:
        same = [other.rank for other in quits if row.signal in _OWN_FAULT and other.signal == row.signal]
        cause = _because(f"killed by {row.signal}", memory, row.signal == "SIGKILL")
        words = last_lines.get(row.rank) if row.signal == "SIGABRT" else None
        if words:
            cause += f"; its last line: {words}"
        out_of: OutOf = "host" if memory and row.signal == "SIGKILL" else ""
        return FirstFailure(row.rank, cause, "", tuple(sorted({row.rank, *same})), lost_peers, out_of)
    words = last_lines.get(row.rank, "")
    ranks = _saying(words, last_lines) & {other.rank for other in quits} if words else set()
    if not words:
        words = common_line
        ranks = {other.rank for other in quits if words and other.code == row.code} - set(last_lines)
    alike_ranks = tuple(sorted(ranks | {row.rank}))
    return FirstFailure(row.rank, *_said(words, row.code), alike_ranks, lost_peers, _gpu(words))


def _of_gone(gone: Sequence[Gone], last_lines: Mapping[int, str], memory: str, lost_peers: int) -> FirstFailure:
    """The first of ranks of which no launcher says how they ended."""
    first_gone = min(gone, key=lambda one: (one.ended_us, one.left, one.steps, one.rank))
    ranks = tuple(
        sorted(one.rank for one in gone if (one.ended_us, one.left) == (first_gone.ended_us, first_gone.left))
    )
    if first_gone.left:
        cause = f"it ended by itself after {counted(first_gone.steps, 'step')}, without an exception"
        if words := last_lines.get(first_gone.rank):
            cause += f"; its last line: {words}"
        return FirstFailure(first_gone.rank, cause, "", ranks, lost_peers)
    cause = _because("it ended without a goodbye, as a killed process does", memory, was_killed=True)
    return FirstFailure(first_gone.rank, cause, "", ranks, lost_peers, "host" if memory else "")


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


def _with_condition(failure: Failure, last_lines: Mapping[int, str]) -> Failure:
    """Replace CUDA's word for a failed assertion by the rank's last line where that names the condition too."""
    line = last_lines.get(failure.rank, "")
    return structs.replace(failure, error=line) if line.startswith(f"{failure.error}: `") else failure


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


def of_command(name: str, code: int | None, last_line: str, memory_kills: str) -> str:
    """As in: the command ended with exit 2: error: no such option; where no rank is known to have failed.

    name: of the command, "torchrun" or "the command", where a signal ended it.
    """
    lead = how_command_ended(name, code, memory_kills)
    if _sent_signal(code):
        return lead
    last_line = _because(last_line, _MEMORY.get(memory_kills, ""), _CHILD_KILLED.search(last_line) is not None)
    return f"{lead} {last_line or 'it said nothing'}"


def how_command_ended(name: str, code: int | None, memory_kills: str) -> str:
    """The beginning of the same, up to the colon; all of it where a signal from outside ended the command."""
    if number := _sent_signal(code):
        how = _because(number, _MEMORY.get(memory_kills, ""), number == "SIGKILL")
        return f"{name} was ended by {how} (exit {code})"
    how = f"exit {code}"
    if code is not None and code - _SIGNALLED in set(signal.Signals):
        how += f" ({signal.Signals(code - _SIGNALLED).name})"
    return f"the command ended with {how}:"


def _sent_signal(code: int | None) -> str:
    """The signal from outside that a shell's exit code stands for; "": it stands for none."""
    names = {_SIGNALLED + getattr(signal, name): name for name in _SENT}
    return names.get(code or 0, "")


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
    return f"rank {ranks[0]} failed:" if len(ranks) < 2 else f"{named_ranks(ranks, world_size)} failed alike:"


def events(failures: Sequence[Failure], world_size: int) -> list[tuple[str, str]]:
    """Severity and sentence of failures: one for those that are alike, one for all that lost their peers."""
    causes = [failure for failure in failures if not is_consequence(failure)]
    sentences = []
    for group in together(causes):
        ranks = sorted({failure.rank for failure in group})
        sentences.append(("critical", headline(ranks, group[0].error, world_size)))
    lost = sorted({failure.rank for failure in failures} - {failure.rank for failure in causes})
    if lost:
        who = f"rank {lost[0]} lost its" if len(lost) == 1 else f"{named_ranks(lost, world_size)} lost their"
        sentences.append(("warn", f"{who} peers and failed too"))
    return sentences
