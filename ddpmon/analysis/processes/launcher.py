"""Warnings that a launcher prints while none of its ranks is heard: what a start waits for is often in them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddpmon.plain import plain
from ddpmon.redaction import redact_text

MAX_CHARACTERS = 300
"""Longest text of a warning: three lines of a wide terminal."""
_LOGGED = re.compile(r"\[?[WE]\d{4} \d\d:\d\d:\d\d[^\]]*\] *(?:\[c10d\] *)?(.*[^\s*].*)")
"""A line of torch's C++ logger, "[W1125 21:54:38.930 socket.cpp:764] [c10d] …", or of its Python one, "W1125 …] …"."""
_ROUTINE = "OMP_NUM_THREADS"
"""In the warning that torchrun prints at every start with several ranks."""
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class LauncherWarning:
    """A warning or an error that a launcher logged, perhaps several times with other numbers in it."""

    text: str
    """Text of the latest one."""
    count: int

    @property
    def topic(self) -> str:
        """Text without its numbers: the same for every repetition."""
        return _without_numbers(self.text)


def latest_warning(printed: str) -> LauncherWarning | None:
    """Return the last warning in a launcher's output; None where there is none but the routine one of every start."""
    texts = [plain(match[1]).strip() for line in printed.splitlines() if (match := _LOGGED.match(line))]
    texts = [text for text in texts if _ROUTINE not in text]
    if not texts:
        return None
    topic = _without_numbers(texts[-1])
    return LauncherWarning(
        redact_text(texts[-1])[:MAX_CHARACTERS], sum(_without_numbers(text) == topic for text in texts)
    )


def _without_numbers(text: str) -> str:
    return _NUMBERS.sub("#", text)
