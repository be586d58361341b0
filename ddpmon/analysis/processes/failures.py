"""Decide which rank failed first, and how each rank ended, from reports of the launcher and of the ranks.

The first of these classes with a rank has the cause. Within a class, the order in which the launcher saw ranks end
counts, then the time:

1. a rank that ended by itself (an exit code, a signal) and that the launcher saw end before all others;
2. exceptions that a rank raised by itself;
3. further ranks that ended by themselves: first by an exit code or a signal, then without either;
4. consequences of another rank's end: a closed connection, a launcher's SIGTERM.

A wait that timed out before any rank had ended is a cause, not a consequence.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ddpmon import numbers
from ddpmon.analysis.processes.explanation import (
    Explanation,
    exception_chain,
    explain_failure,
    explain_words,
    group_alike,
    is_consequence,
    model_difference,
    same_words,
    script_line,
    with_line,
)
from ddpmon.analysis.processes.launcher import Ended
from ddpmon.analysis.words import format_count, named_ranks
from ddpmon.exception_text import EXCEPTION
from ddpmon.messages import Attempt, Failure

_TIMED_OUT = re.compile(r"timed out|timeout", re.IGNORECASE)
"""Pattern in the exception of a wait that timed out. The awaited rank may still be running."""
_CHILD_KILLED = re.compile("killed by signal: Killed|terminated with signal SIGKILL")
"""Words with which torch's DataLoader and torch.multiprocessing report that one of their processes was killed."""
_MEMORY = {"cgroup": "out of memory", "host": "its host ran out of memory"}
"""Causes of a SIGKILL, by the place in which the kernel killed processes for lack of memory (`Run.memory_kills`)."""
_USAGE_ERROR = 2
"""Exit code with which argparse, click and most other parsers refuse a command line."""
RUN_OPTIONS = frozenset({
    *("--buckets", "--every", "--grace", "--headless", "--hub", "--hub-key", "--max-restarts", "--mlflow", "--name"),
    *("--nnodes", "--node-rank", "--notify", "--nproc", "--nproc-per-node", "--on-alert", "--rdzv-endpoint"),
    *("--tensorboard", "--theme", "--wandb"),
})  # fmt: skip
"""Long options of `ddpmon run`. A user may write them after the script's name by mistake, so that the script gets
them."""
_SIGNALLED = 128
"""Difference between a shell's exit code and the number of the signal that ended the process."""
_ASKS_TO_END = {"SIGTERM", "SIGINT", "SIGHUP"}
"""Signals that a launcher sends to the other ranks once a rank has failed."""
_OWN_FAULT = {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE"}
"""Signals that no launcher sends to a rank because another rank failed: they are a fault of the process itself."""
_SENT = {*_ASKS_TO_END, "SIGKILL"}
"""Signals that come from outside the process, so that its last output does not explain them."""


@dataclass(frozen=True)
class FirstFailure:
    """The rank that failed first, with the cause ("ValueError: …", "killed by SIGKILL"), its exit, and ranks that
    failed alike.
    """

    rank: int
    cause: str
    exit: str
    """How the process ended, such as "exit 1"; "" if the cause already says so."""
    ranks: tuple[int, ...]
    """All ranks that failed alike, in rising order, including the first rank. Together they count as one fault."""
    lost_peers: int = 0
    """Number of further ranks that only reported that a peer had gone."""
    advice: str | None = None
    """The next step, if the table of known failures has one."""
    is_out_of_memory: bool = False
    """True if the kernel killed the rank, or one of its child processes, for lack of memory."""
    only_lost_peer: bool = False
    """True if no rank is known to have failed by itself."""
    line: str = ""
    """The script's line in the traceback; "" if unknown."""


@dataclass(frozen=True)
class Gone:
    """A rank that has ended and reported no exception."""

    rank: int
    steps: int
    """Number of steps that the rank had finished."""
    ended_us: int
    """Moment in µs at which the hub noticed the rank's end, by the hub's clock."""
    left: bool
    """True if the rank reported its exit, because its interpreter ended normally. A killed rank does not report it."""


def first_failure(
    ended: Sequence[Ended],
    failures: Sequence[Failure],
    last_lines: Mapping[int, str],
    memory_kills: str = "",
    common_line: str = "",
    gone: Sequence[Gone] = (),
    world_size: int = 0,
    script_args: Sequence[str] = (),
) -> FirstFailure | None:
    """Return the first failure, by the order of causes above; None if no rank failed.

    Args:
        ended: How ranks ended, according to their launcher.
        failures: The exceptions that ranks reported.
        last_lines: The last line of each rank on stderr, for ranks that could not report their exception.
        memory_kills: As in `Run`.
        common_line: The last line that ranks wrote, if all ranks share one log.
        gone: Ranks that ended in any way without reporting an exception; empty in a run that did not fail.
        world_size: Number of ranks; 0: unknown.
        script_args: Arguments of the script; empty if the run has made a step, because the script has then accepted
            them.

    """
    memory = _MEMORY.get(memory_kills, "")
    by_rank = {row.rank: row for row in ended}
    reported = sorted(failures, key=lambda failure: failure.time_us)
    causes = [failure for failure in reported if not is_consequence(failure)]
    lost_peers = len({failure.rank for failure in reported} - {failure.rank for failure in causes})
    quits, caused = _without_report(ended, reported, last_lines)
    if causes and not (quits and quits[0].root and quits[0].signal != "SIGABRT"):
        (group, *_) = group_alike(causes)
        ranks = {failure.rank for failure in group}
        ranks |= _saying(causes[0].error, last_lines) - {failure.rank for failure in reported}
        why = explain_failure(
            causes[0],
            model_difference(causes),
            error=_with_condition(causes[0], last_lines),
            alike=len(ranks),
            world_size=world_size,
        )
        return _of_failure(causes[0], why, by_rank, memory, ranks, lost_peers)
    if quits:
        return _of_quit(quits, last_lines, memory, common_line, lost_peers, script_args)
    peers_lost = bool(reported or caused)  # An orderly exit alone is no failure.
    silent = [one for one in gone if one.rank not in by_rank and (peers_lost or not (one.left or ended))]
    if reported and any(map(_TIMED_OUT.search, exception_chain(reported[0]))):
        silent = [one for one in silent if one.ended_us <= reported[0].time_us]
    if silent:
        return _of_gone(silent, last_lines, memory, lost_peers)
    if reported:
        lost = _of_failure(reported[0], explain_failure(reported[0]), by_rank, memory, {reported[0].rank}, 0)
        return replace(lost, only_lost_peer=True)
    if caused:
        return replace(_of_quit(caused, last_lines, memory, common_line, 0), only_lost_peer=True)
    return None


def first_of_attempts(failure: FirstFailure | None, attempts: Sequence[Attempt]) -> FirstFailure | None:
    """Return the first failure of a run whose ranks were restarted and have not finished a step since.

    The failure of an earlier attempt precedes the lost connections of later ones.

    Args:
        failure: The first failure of the present attempt.
        attempts: The attempts before it, oldest first.

    """
    before = next((one for one in reversed(attempts) if one.cause and not explain_words(one.cause).lost_peer), None)
    if failure is None or not failure.only_lost_peer or before is None or before.cause is None:
        return failure
    after = f"in attempt {before.number} after {format_count(before.steps, 'step')}"
    cause = f"{before.cause}, {after}; attempt {attempts[-1].number + 1} only lost connections"
    ranks, advice = tuple(before.ranks), explain_words(before.cause, facts={"rank": str(before.ranks[0])}).advice
    return replace(failure, rank=ranks[0], cause=cause, exit="", ranks=ranks, advice=advice)


def _without_report(
    ended: Sequence[Ended], reported: Sequence[Failure], last_lines: Mapping[int, str]
) -> tuple[list[Ended], list[Ended]]:
    """Return the ranks that failed without reporting an exception, in two lists: by themselves, and because a peer was
    lost.

    In both lists, the most likely cause comes first. Ranks that were asked to end by a signal are in neither list.
    """
    raised = {failure.rank for failure in reported}
    quits: list[Ended] = []
    caused: list[Ended] = []
    for row in ended:
        if not row.exitcode or row.rank in raised or (row.signal in _ASKS_TO_END and not row.root):
            continue
        says_why = row.signal not in _SENT | _OWN_FAULT
        lost_peer = says_why and explain_words(last_lines.get(row.rank, "")).lost_peer
        (caused if lost_peer else quits).append(row)
    for rows in (quits, caused):
        rows.sort(key=lambda row: (row.signal == "SIGABRT", not row.root, row.signal is None, row.rank))
    return quits, caused


def _of_quit(
    quits: Sequence[Ended],
    last_lines: Mapping[int, str],
    memory: str,
    common_line: str,
    lost_peers: int,
    script_args: Sequence[str] = (),
) -> FirstFailure:
    row = quits[0]
    words = last_lines.get(row.rank, "")
    if row.signal:
        same = [other.rank for other in quits if row.signal in _OWN_FAULT and other.signal == row.signal]
        is_out_of_memory = bool(memory) and row.signal == "SIGKILL"
        cause = _because(f"killed by {row.signal}", memory, is_out_of_memory)
        why = explain_words(words if words and row.signal == "SIGABRT" else cause, facts={"line": row.line})
        if words and row.signal == "SIGABRT":
            cause += f"; {'' if why.is_translated else 'its last line: '}{why.cause}"
        ranks = tuple(sorted({row.rank, *same}))
        return FirstFailure(row.rank, with_line(cause, row.line), "", ranks, lost_peers, why.advice, is_out_of_memory)
    ranks_saying = _saying(words, last_lines) & {other.rank for other in quits} if words else set()
    if not words:
        words = common_line
        ranks_saying = {other.rank for other in quits if words and other.code == row.code} - set(last_lines)
    ranks = tuple(sorted(ranks_saying | {row.rank}))
    options = [name for name in (arg.partition("=")[0] for arg in script_args) if name in RUN_OPTIONS]
    why = explain_words(words, facts={"option": options[0]} if options and row.code == _USAGE_ERROR else None)
    cause, how = (why.cause, f"exit {row.code}") if why.is_translated else _said(words, row.code)
    next_step = why.advice or explain_words(cause, facts={"rank": str(row.rank)}).advice
    return FirstFailure(row.rank, with_line(cause, row.line), how, ranks, lost_peers, next_step, line=row.line)


def _of_gone(gone: Sequence[Gone], last_lines: Mapping[int, str], memory: str, lost_peers: int) -> FirstFailure:
    """Return the first failure among ranks whose end no launcher reported."""
    first_gone = min(gone, key=lambda one: (one.ended_us, one.left, one.steps, one.rank))
    ranks = tuple(
        sorted(one.rank for one in gone if (one.ended_us, one.left) == (first_gone.ended_us, first_gone.left))
    )
    if first_gone.left:
        after = format_count(first_gone.steps, "step")
        cause = f"it exited after {after} without an exception, while the other ranks continued"
        why = explain_words(cause)
        if words := last_lines.get(first_gone.rank):
            cause += f"; its last line: {words}"
        return FirstFailure(first_gone.rank, cause, "", ranks, lost_peers, why.advice)
    cause = _because("it exited unexpectedly, as a killed process does", memory, was_killed=True)
    return FirstFailure(first_gone.rank, cause, "", ranks, lost_peers, is_out_of_memory=bool(memory))


def _saying(words: str, last_lines: Mapping[int, str]) -> set[int]:
    return {rank for rank, line in last_lines.items() if same_words(line, words)}


def _said(words: str, code: int | None) -> tuple[str, str]:
    """Return cause and exit. If the last line is no exception, the exit code is more informative."""
    if not words:
        return f"exited with {code}, without an exception", ""
    if EXCEPTION.match(words):
        return words, f"exit {code}"
    return f"exit {code}: {words}", ""


def _of_failure(
    failure: Failure, why: Explanation, by_rank: Mapping[int, Ended], memory: str, ranks: set[int], lost_peers: int
) -> FirstFailure:
    row = by_rank.get(failure.rank)
    how = f"exit {row.code}" if row and row.code is not None else row.signal or "" if row else ""
    if row and row.signal in _ASKS_TO_END and not row.root:
        how = ""  # torchrun sent the signal while the rank was already ending.
    child_killed = "SIGKILL" in failure.facts.get("worker_signal", "") or bool(_CHILD_KILLED.search(failure.error))
    line = script_line(failure.traceback)
    cause = _because(with_line(why.cause, line), memory, child_killed)
    out_of_memory = bool(memory) and child_killed
    alike = tuple(sorted(ranks))
    return FirstFailure(failure.rank, cause, how, alike, lost_peers, why.advice, out_of_memory, line=line)


def _with_condition(failure: Failure, last_lines: Mapping[int, str]) -> str:
    """Return the rank's last line if it names the condition of a failed CUDA assertion; else ""."""
    line = last_lines.get(failure.rank, "")
    return line if line.startswith(f"{failure.error}: `") else ""


def _because(what: str, memory: str, was_killed: bool) -> str:
    return f"{what.rstrip('. ')}, {memory}" if memory and was_killed else what


def advice(failure: FirstFailure, resident: Mapping[int, tuple[int, int | None]]) -> str | None:
    """Return what to do about a failure; None if that is unknown.

    Args:
        failure: The first failure of the run.
        resident: Last measured host memory of each rank in bytes, and that of its DataLoader workers (None: not
            measured).

    """
    if not failure.is_out_of_memory:
        return failure.advice
    rank = failure.rank
    others = [size for other, (size, _) in resident.items() if other != rank]
    size, workers = resident.get(rank, (0, None))
    held = f"Rank {rank} last used {numbers.size(size)}" if rank in resident else ""
    beside = f", the others {numbers.size(max(others))} at most" if held and others else ""
    on_top = f"; its DataLoader workers used {numbers.size(workers)} more" if workers is not None else ""
    measured = f"{held}{beside}{on_top}. " if held else ""
    return (
        f"{measured}Use fewer ranks, fewer DataLoader workers or smaller batches. Stored losses with their graph, lists"
        " of outputs, and a dataset's cache grow from step to step until memory is full."
    )


def look_at_traceback(failure: FirstFailure, steps: int, world_size: int) -> str:
    """Return the next step after an exception that no known failure explains; "" if the rank raised none itself."""
    if failure.only_lost_peer or not (failure.line or EXCEPTION.match(failure.cause)):
        return ""
    where = f"{failure.line} and the traceback" if failure.line else "the traceback"
    when = f"after {format_count(steps, 'step')}" if steps else "before the first step"
    alone = ", and no other rank raised the exception" if len(failure.ranks) == 1 < world_size else ""
    return (
        f"Look at {where}, on World or with `ddpmon logs --rank {failure.rank}`:"
        f" {named_ranks(failure.ranks, world_size)} failed {when}{alone}."
    )


def of_command(name: str, code: int | None, last_line: str, memory_kills: str) -> str:
    """Return why a command ended if no rank is known to have failed: "the command ended with exit 2: error: x".

    Args:
        name: Name of the command if a signal ended it: "torchrun" or "the command".
        code: Exit code of the command.
        last_line: Last line of the command's output.
        memory_kills: As in `Run`.

    """
    lead = how_command_ended(name, code, memory_kills)
    if _sent_signal(code):
        return lead
    last_line = _because(last_line, _MEMORY.get(memory_kills, ""), _CHILD_KILLED.search(last_line) is not None)
    return f"{lead} {last_line or 'no output'}"


def how_command_ended(name: str, code: int | None, memory_kills: str) -> str:
    """Return the sentence of `of_command` up to the colon, or all of it if a signal from outside ended the command."""
    if number := _sent_signal(code):
        how = _because(number, _MEMORY.get(memory_kills, ""), number == "SIGKILL")
        return f"{name} was ended by {how} (exit {code})"
    how = f"exit {code}"
    if code is not None and code - _SIGNALLED in set(signal.Signals):
        how += f" ({signal.Signals(code - _SIGNALLED).name})"
    return f"the command ended with {how}:"


def _sent_signal(code: int | None) -> str:
    """Return the signal from outside that a shell's exit code means; "" if the code means none."""
    names = {_SIGNALLED + getattr(signal, name): name for name in _SENT}
    return names.get(code or 0, "")


def sentence(failure: FirstFailure, world_size: int) -> str:
    """Return a sentence such as "rank 2 failed first: ValueError: no such class, exit 1; 3 others then stopped"."""
    others = world_size - len(failure.ranks)
    many = "s" if others > 1 else ""
    how = f"{failure.cause}{', ' if failure.exit else ''}{failure.exit}"
    tail = f"; {others} other{many} then stopped" if others > 0 else ""
    if len(failure.ranks) > 1 and failure.lost_peers >= others > 0:
        tail = f"; {others} other{many} only lost {'their' if many else 'its'} peers"
    return f"{who_failed_first(failure, world_size)} {how}{tail}"


def who_failed_first(failure: FirstFailure, world_size: int) -> str:
    """Return the beginning of `sentence`, up to the colon."""
    many = len(failure.ranks) > 1
    return who_failed(failure.ranks, world_size) if many else f"rank {failure.rank} failed first:"


def headline(ranks: Sequence[int], cause: str, world_size: int) -> str:
    """Return a short sentence, without exit code and other ranks: "rank 2 failed: ValueError: no such class"."""
    return f"{who_failed(ranks, world_size)} {cause}"


def who_failed(ranks: Sequence[int], world_size: int) -> str:
    """Return the beginning of `headline`, up to the colon."""
    return f"rank {ranks[0]} failed:" if len(ranks) < 2 else f"{named_ranks(ranks, world_size)} failed in the same way:"


def events(failures: Sequence[Failure], world_size: int) -> list[tuple[str, str]]:
    """Return severity and sentence of each event: one for failures that are alike, one for all lost peers."""
    causes = [failure for failure in failures if not is_consequence(failure)]
    difference = model_difference(causes)
    sentences = []
    for group in group_alike(causes):
        ranks = sorted({failure.rank for failure in group})
        why = explain_failure(group[0], difference, alike=len(ranks), world_size=world_size)
        cause = with_line(why.cause, script_line(group[0].traceback))
        sentences.append(("critical", headline(ranks, cause, world_size)))
    lost = sorted({failure.rank for failure in failures} - {failure.rank for failure in causes})
    if lost:
        who = f"rank {lost[0]} lost its" if len(lost) == 1 else f"{named_ranks(lost, world_size)} lost their"
        sentences.append(("warn", f"{who} peers and failed too"))
    return sentences
