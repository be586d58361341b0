"""Writes an exception's text in one line, in whole sentences. Standard library only: ranks and hubs share it."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_EXCEPTION_CHARS = 400
"""Largest number of characters of an exception's text in one line."""
_LONGEST_END = 200
"""Largest number of characters of a long message's last line, which is appended to its beginning."""
EXCEPTION = re.compile(r"[\w.]*(Error|Exception|Interrupt|Exit)\b(:|$)")
"""Matches the beginning of the line that names a Python exception."""
BELOW_CPP = re.compile(
    r"frame #\d+: |Exception raised from \S+ at |Search for `cudaError|CUDA kernel errors might|For debugging consider"
    "|Compile with `TORCH_USE_|In addition, you can set the environment variable TORCH_DISTRIBUTED_DEBUG"
)
"""Matches the beginning of a line that torch prints below a C++ or CUDA error: a line of its stack, or a hint."""
_ENDS_SENTENCE = re.compile(r"(?<=[.;!?])\s")
_ENDS_CLAUSE = re.compile(r"[.:;,!?…]$")


def in_one_line(lines: Sequence[str]) -> str:
    """Join the lines of an exception; of a long one, return the whole sentences at its beginning and its last line."""
    told = [line.strip() for line in lines if line.strip() and not BELOW_CPP.match(line.strip())]
    if not told:
        return ""
    whole = told[0]
    for line in told[1:]:
        whole += f"{' ' if _ENDS_CLAUSE.search(whole) or line[0].islower() else '; '}{line}"
    if len(whole) <= MAX_EXCEPTION_CHARS or len(told) < 2:
        return whole_sentences(whole, MAX_EXCEPTION_CHARS)
    end = whole_sentences(told[-1], _LONGEST_END)
    return f"{whole_sentences(whole, MAX_EXCEPTION_CHARS - len(end) - 1)} {end}"


def whole_sentences(text: str, room: int) -> str:
    """Return the whole sentences that fit into `room` characters, or else whole words; mark text that was cut."""
    if len(text) <= room:
        return text
    begun = text[: room - 2]
    ends = [match.start() for match in _ENDS_SENTENCE.finditer(begun)]
    end = ends[-1] if ends else begun.rfind(" ", room // 2)
    end = end if end > 0 else len(begun)
    return f"{begun[:end]} …"
