"""Tell whether ranks failed alike: the same exception at the same place, whatever rank, device or process it names."""

from __future__ import annotations

import re

from ddpmon.messages import Failure

_OWN = (
    (re.compile(r"^(?:\[rank\d+\]:\s*)+"), ""),
    (re.compile(r"\b0x[0-9a-f]+", re.IGNORECASE), "0x#"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b\]?(?::\d+)?"), "#"),
    (re.compile(r"\b\d+(?:\.\d+)?\s?(?:[kmgt]i?b|bytes)\b", re.IGNORECASE), "#"),
    (re.compile(r"(?<![a-z])(rank|cuda|gpu|device|pid|process|port)(\W{0,3}|\s+is\s+)\d+", re.IGNORECASE), r"\1\2#"),
    (re.compile(r"\b\d+ params\b|\binconsistent \d+"), "#"),
)
"""Parts of a message about one rank alone: its number, its device, addresses, amounts of memory, ids of processes, and
how many parameters its model has where DDP finds that others have more or fewer."""
FRAME = re.compile(r'^\s*(?:\[rank\d+\]:\s*)?File "([^"\n]+)", line (\d+), in (.+?)\s*$', re.MULTILINE)


def same_words(one: str, other: str) -> bool:
    """Return whether two lines say the same but for what each says of its own rank."""
    return one == other or _common(one) == _common(other)


def alike(one: Failure, other: Failure) -> bool:
    """Return whether two ranks raised the same at the same place. An unknown place is the same as any."""
    here, there = _place(one.traceback), _place(other.traceback)
    return same_words(one.error, other.error) and (here is None or there is None or here == there)


def together(failures: list[Failure]) -> list[list[Failure]]:
    """Failures in groups that are alike, each in the order in which they came."""
    groups: list[list[Failure]] = []
    for failure in failures:
        group = next((group for group in groups if alike(group[0], failure)), None)
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
    """File, line and function of the innermost frame."""
    frames = FRAME.findall(traceback)
    return frames[-1] if frames else None
