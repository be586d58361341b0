"""Parse the output of launchers: warnings before any rank has sent a message, and ranks that ended badly.

Warnings often give the reason why a start takes long. Ranks that ended badly are listed in torchrun's failure table and
in sentences of torch.multiprocessing.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from ddpmon.plain import plain
from ddpmon.redaction import redact_text

MAX_CHARACTERS = 300
"""Maximum length of a warning in characters: three lines of a wide terminal."""
_LOGGED = re.compile(r"\[?[WE]\d{4} \d\d:\d\d:\d\d[^\]]*\] *(?:\[c10d\] *)?(.*[^\s*].*)")
"""A line of torch's C++ logger, "[W1125 21:54:38.930 socket.cpp:764] [c10d] …", or of its Python logger, "W1125 …]
…"."""
_ROUTINE = "OMP_NUM_THREADS"
"""A word of the warning that torchrun prints at every start with several ranks; it is ignored."""
_NUMBERS = re.compile(r"\d+")
_ENTRY = re.compile(
    r"^\[(?P<seen>\d+)\]:\n(?:[ \t]+[^\n]*\n)*?\s*rank\s*:\s*(?P<rank>\d+)\s*\(local_rank:\s*(?P<local>\d+)\)"
    r".*?exitcode\s*:\s*(?P<code>-?\d+)\s*\(pid:\s*(?P<pid>\d+)\)",
    re.DOTALL | re.MULTILINE,
)
"""A row of torchrun's table. Rows are numbered in the order in which torchrun saw processes end; This order is more
exact than the root cause that torchrun names, which it chooses by times in whole seconds."""
_SPAWNED = re.compile(r"\bprocess (?P<local>\d+) terminated with (?:signal (?P<signal>SIG\w+)|exit code (?P<code>\d+))")
"""Pattern of torch.multiprocessing's words about the first process that ended badly without a Python exception."""
FALL = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)")
"""Pattern of the line that torchrun logs when the first rank of an attempt fails."""


@dataclass(frozen=True)
class LauncherWarning:
    """A warning or an error that a launcher logged, perhaps several times with different numbers in the text."""

    text: str
    """Text of the latest repetition."""
    count: int

    @property
    def topic(self) -> str:
        """Return the text without its numbers, which is the same for every repetition."""
        return _without_numbers(self.text)


def latest_warning(printed: str) -> LauncherWarning | None:
    """Return the last warning in a launcher's output; None if there is none. Ignore the warning of every start
    (_ROUTINE).
    """
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


@dataclass(frozen=True)
class Ended:
    """A row of torchrun's failure table."""

    rank: int
    local_rank: int
    pid: int
    exitcode: int
    """The exit code; if it is negative, the number of the signal that killed the process."""
    root: bool
    """True if the launcher saw this rank end before all others that ended badly."""
    line: str = ""
    """The script's line in which compiled code crashed or raised the last exception; "": unknown."""

    @property
    def code(self) -> int | None:
        return self.exitcode if self.exitcode >= 0 else None

    @property
    def signal(self) -> str | None:
        """Return the name of the signal that ended the rank; None if no signal ended it."""
        if self.exitcode >= 0:
            return None
        try:
            return signal.Signals(-self.exitcode).name
        except ValueError:
            return f"signal {-self.exitcode}"


def read_table(text: str) -> list[Ended]:
    """Return the rows of the last failure table in torchrun's output; empty if there is none."""
    table = text[text.rfind("Failures:") :] if "Failures:" in text else ""
    if not table and "Root Cause" in text:
        table = text[text.rfind("Root Cause") :]
    rows: dict[int, Ended] = {}
    for match in _ENTRY.finditer(table):
        seen, rank, local, pid, code = (int(match[name]) for name in ("seen", "rank", "local", "pid", "code"))
        rows[rank] = Ended(rank, local, pid, code, root=seen == 0)
    return list(rows.values())


def read_spawned(text: str) -> list[Ended]:
    """Return the first process that torch.multiprocessing saw end badly, as a row of torchrun's failure table.

    The rank in the row is the local rank. The list is empty if the process raised an exception, because the rank itself
    reports exceptions.
    """
    matches = list(_SPAWNED.finditer(text))
    if not matches:
        return []
    match = matches[-1]
    local = int(match["local"])
    code = int(match["code"]) if match["code"] else -getattr(signal, match["signal"], 0)
    return [Ended(local, local, 0, code, root=True)] if code else []


def read_falls(text: str) -> dict[int, Ended]:
    """Return, by pid, the rank that torchrun saw fail first in each attempt in its output. Ranks in the rows are local
    ranks.
    """
    rows = ({name: int(value) for name, value in match.groupdict().items()} for match in FALL.finditer(text))
    return {row["pid"]: Ended(row["local"], row["local"], row["pid"], row["code"], root=True) for row in rows}
