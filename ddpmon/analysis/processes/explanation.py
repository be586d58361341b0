"""The cause and the next step of a failure, from the table of known failures, and from facts that ranks reported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ddpmon.analysis.processes.known_failures import KNOWN_FAILURES, KnownFailure
from ddpmon.exception_text import EXCEPTION
from ddpmon.messages import Failure

_PATTERNS = [(re.compile(row.says, re.IGNORECASE | re.DOTALL), row) for row in KNOWN_FAILURES]
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3|/ddpmon/probe/|^<")
"""Pattern in the file names of frames of libraries, which are not the script's own."""
_CRASH = "Fatal Python error: "
"""The words with which faulthandler begins to report a crash. The stack of each thread follows, innermost frame
first."""
_THREAD = re.compile(r"^(?:Current t|T)hread 0x[0-9a-f]+ .*\n((?:  .*\n?)*)", re.MULTILINE)
_RAISED = re.compile(r"^Traceback \(most recent call last\):\n((?:[ \t].*\n)+)(\S.*)", re.MULTILINE)
"""Pattern of a traceback in a rank's output. Its groups are the frames and the line that names the exception."""
_SAME_ERROR = 60
"""Number of first characters of an exception's message by which the message is found in a traceback."""
_MAX_NAMES = 6
"""Maximum number of parameters that a sentence about differing models names."""
_OWN = (
    (re.compile(r"^(?:\[rank\d+\]:\s*)+"), ""),
    (re.compile(r"\b0x[0-9a-f]+", re.IGNORECASE), "0x#"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b\]?(?::\d+)?"), "#"),
    (re.compile(r"\b\d+(?:\.\d+)?\s?(?:[kmgt]i?b|bytes)\b", re.IGNORECASE), "#"),
    (re.compile(r"(?<![a-z])(rank|cuda|gpu|device|pid|process|port)(\W{0,3}|\s+is\s+)\d+", re.IGNORECASE), r"\1\2#"),
    (re.compile(r"\b\d+ params\b|\binconsistent \d+"), "#"),
)
"""Parts of a message that differ between ranks that failed alike, and their replacements: rank, device, addresses,
amounts of memory, process ids, and the number of parameters in DDP's message about models of different size."""
FRAME = re.compile(r'^\s*(?:\[rank\d+\]:\s*)?File "([^"\n]+)", line (\d+),? in (.+?)\s*$', re.MULTILINE)


@dataclass(frozen=True)
class Explanation:
    """The words of a failure that people read."""

    cause: str
    advice: str | None = None
    lost_peer: bool = False
    """True if the failure only says that another rank has gone."""
    is_translated: bool = False
    """True if the cause is in words of the table of known failures, not of the exception."""


def explain_words(
    words: str, message: str = "", facts: Mapping[str, str] | None = None, *, alike: int = 0, world_size: int = 0
) -> Explanation:
    """Return the explanation of a failure from the table of known failures, or the failure's own words.

    Args:
        words: The exception in one line, or the way in which the rank ended.
        message: The exception's whole message, if known.
        facts: Facts that the failing rank looked up.
        alike: Number of ranks that failed alike; 0: unknown.
        world_size: Number of ranks; 0: unknown.

    """
    facts = facts or {}
    text = "\n".join([words, message, *(f"{name}={value}" for name, value in facts.items())])
    holds = {"any": True, "some": 0 < alike < world_size, "several": world_size > 1}
    for row, groups in _matching(text):
        known = {**facts, **groups}
        if holds[row.ranks] and all(known.get(name) for name in row.needed_names):
            cause = row.cause.format_map(known) if row.cause else words
            return Explanation(cause, row.advice.format_map(known) or None, row.lost_peer, bool(row.cause))
    return Explanation(words)


@lru_cache(maxsize=4096)
def _matching(text: str) -> tuple[tuple[KnownFailure, dict[str, str]], ...]:
    """Return the rows whose pattern is in the text, with the matches of its groups.

    Results are cached, because failed ranks are judged again and again.
    """
    found = ((row, pattern.search(text)) for pattern, row in _PATTERNS)
    return tuple((row, match.groupdict()) for row, match in found if match)


def explain_failure(
    failure: Failure, difference: str = "", *, error: str = "", alike: int = 0, world_size: int = 0
) -> Explanation:
    """Return the explanation of an exception that a rank reported.

    Args:
        failure: The rank's report.
        difference: The difference between the model of this rank and that of another rank; "": unknown.
        error: A description that replaces the one in the report; "": use the report's.
        alike: As in `explain_words`.
        world_size: As in `explain_words`.

    """
    facts = {**failure.facts, "difference": difference}
    return explain_words(error or failure.error, _message(failure), facts, alike=alike, world_size=world_size)


def is_consequence(failure: Failure) -> bool:
    """Return whether an exception only says that a peer has gone, or was raised because of such an exception."""
    own = explain_failure(failure)
    known_cause = own.is_translated or own.advice is not None
    return own.lost_peer or (
        not known_cause and any(explain_words(line).lost_peer for line in exception_chain(failure))
    )


def exception_chain(failure: Failure) -> list[str]:
    """Return the first line of the exception, and of each exception that caused it."""
    return [failure.error, *(line for line in failure.traceback.splitlines() if EXCEPTION.match(line))]


def _message(failure: Failure) -> str:
    """Return all lines of an exception's message, without the exceptions before it in a chain."""
    start = failure.traceback.rfind(f"\n{failure.error[:_SAME_ERROR]}")
    return failure.traceback[start + 1 :] if start >= 0 else failure.error


def script_line(traceback: str) -> str:
    """Return the script's innermost line in a traceback, as in "train.py:31 main"; "" if it has none."""
    return next(_own_lines(reversed(FRAME.findall(traceback))), "")


def crash_line(output: str) -> str:
    """Return the script's line in which compiled code crashed, as faulthandler printed it; "" if there is none.

    The crashed thread may run no Python code, for example a thread of gloo. Then return the line of the main thread,
    which is printed last.
    """
    _, _, dump = output.rpartition(_CRASH) if _CRASH in output else ("", "", "")
    threads = sorted(_THREAD.finditer(dump), key=lambda one: (not one[0].startswith("C"), -one.start()))
    lines = (line for thread in threads for line in _own_lines(FRAME.findall(thread[1])))
    return next(lines, "")


def raised_line(output: str, words: str) -> str:
    """Return the script's line in the last traceback of an exception with these words; "" if the output has none."""
    tracebacks = [frames for frames, error in _RAISED.findall(output) if words.startswith(error[:_SAME_ERROR])]
    return script_line(tracebacks[-1]) if tracebacks else ""


def with_line(cause: str, line: str) -> str:
    """Return the cause followed by the script's line, if the line is known."""
    return f"{cause.rstrip('. ')}, at {line}" if line else cause


def _own_lines(frames: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Yield the frames of the script, without those of libraries, as in "train.py:31 main"."""
    for file, line, function in frames:
        if not _LIBRARY.search(file):
            yield f"{file.rpartition('/')[2]}:{line} {function}"


def model_difference(failures: Sequence[Failure]) -> str:
    """Return how the models of two ranks differ, if reported: rank 0 trains `b.weight (4, 4)`, rank 1 does not."""
    told = {failure.rank: failure.facts["model"].splitlines() for failure in failures if "model" in failure.facts}
    ranks = sorted(told)
    for one in ranks:
        for other in ranks:
            only = [name for name in told[one] if name not in set(told[other])]
            if only and one != other:
                more = f" and {len(only) - _MAX_NAMES} more" if len(only) > _MAX_NAMES else ""
                names = ", ".join(f"`{name}`" for name in only[:_MAX_NAMES])
                return f"rank {one} trains {names}{more}, rank {other} does not"
    return ""


def same_words(one: str, other: str) -> bool:
    """Return whether two messages are equal apart from parts that differ between ranks (see `_OWN`)."""
    return one == other or _common(one) == _common(other)


def failed_alike(one: Failure, other: Failure) -> bool:
    """Return whether two ranks raised the same exception at the same place. An unknown place equals any place."""
    here, there = _place(one.traceback), _place(other.traceback)
    return same_words(one.error, other.error) and (here is None or there is None or here == there)


def group_alike(failures: list[Failure]) -> list[list[Failure]]:
    """Return groups of similar failures. Each group is in the order in which the failures arrived."""
    groups: list[list[Failure]] = []
    for failure in failures:
        group = next((group for group in groups if failed_alike(group[0], failure)), None)
        if group is None:
            groups.append([failure])
        else:
            group.append(failure)
    return groups


def _common(line: str) -> str:
    for pattern, instead in _OWN:
        line = pattern.sub(instead, line)
    return line


def _place(traceback: str) -> tuple[str, str, str] | None:
    """Return file, line and function of the innermost frame; None if there is no frame."""
    frames = FRAME.findall(traceback)
    return frames[-1] if frames else None
