"""Reads the output of a run's ranks as it grows, and folds identical lines of several ranks into one.

    <run>/logs/ranks/<rendezvous>/attempt_<n>/<local rank>/{stdout,stderr}.log     each rank of this machine
    <run>/logs/ranks/exec/attempt_<n>/<rank>/{stdout,stderr}.log                   a rank that another launcher started
    <run>/logs/launcher.log                                                        the launcher of the ranks

The lines of one rank keep their order. Lines of different ranks are ordered only by the time of reading. Memory is
bounded: only the last `MAX_KEPT_LINES` lines are held, each cut to `MAX_LINE_CHARS` characters. If a file grew by more
than `CHUNK` bytes between two readings, only its end is read.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ddpmon.plain import plain
from ddpmon.runs import Run, run_dir
from ddpmon.runs.plain_file import opened
from ddpmon.runs.rotated_logs import older

MAX_KEPT_LINES = 5_000
CHUNK = 64 * 1024
MAX_LINE_CHARS = 1_000
_BREAK = re.compile(r"\r\n|\n")
_AHEAD = 64
"""Number of entries in which `fold` searches for a line with the same text."""
LAUNCHER = -1
"""Number that stands for the launcher in place of a rank."""
STREAMS = ("out", "err", "launcher")
"""The streams, in the order in which lines from the same reading are shown, as their real order is unknown."""


@dataclass(frozen=True)
class Said:
    """New lines of one rank on one stream, in their order."""

    rank: int
    stream: str
    """One of STREAMS."""
    lines: list[str]


@dataclass
class FoldedLine:
    """A line, and the ranks that printed it."""

    text: str
    stream: str
    ranks: set[int] = field(default_factory=set)


def who(ranks: Iterable[int], world_size: int = 0) -> str:
    """Return ranks as text, such as "0", "1-3,8" or "all"."""
    numbers = sorted(ranks)
    if numbers == [LAUNCHER]:
        return "launcher"
    if world_size > 1 and len(numbers) == world_size:
        return "all"
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def written(entry: FoldedLine, world_size: int, *, labelled: bool = True) -> str:
    """Return a line as text, with its ranks if it is labelled, and with ! before it if it was printed on stderr."""
    label = f"{who(entry.ranks, world_size):>8} " if labelled else ""
    return f"{label}{'!' if entry.stream == 'err' else ' '} {entry.text}".rstrip()


def fold(before: list[FoldedLine], new: list[Said]) -> list[FoldedLine]:
    """Fold new lines into the entries `before`, which may get more ranks; return the entries that are added.

    Each rank moves through the entries in their order. A line joins the next entry with the same text after the rank's
    last entry. If there is none, the line becomes a new entry, before the next entry that one of the rank's later lines
    joins. Streams are folded one by one, because their order in time is unknown.
    """
    entries = list(before)
    first = len(before)
    starts: dict[str, int] = {}
    places: dict[tuple[int, str], int] = {}
    for said in sorted(new, key=lambda said: STREAMS.index(said.stream)):
        key = said.rank, said.stream
        start = starts.setdefault(said.stream, len(entries))
        if key not in places:
            passed = (at + 1 for at in range(first - 1, -1, -1) if _is_of(before[at], key))
            places[key] = next(passed, 0)
        place = places[key]
        unmatched = Counter(said.lines)
        for text in said.lines:
            unmatched[text] -= 1
            joined = next((
                at for at in range(place, min(len(entries), max(place, start) + _AHEAD))
                if entries[at].text == text and entries[at].stream == said.stream and said.rank not in entries[at].ranks
            ), None)  # fmt: skip
            if joined is None:
                joined = max(place, start)
                while joined < len(entries) and not unmatched[entries[joined].text]:
                    joined += 1
                entries.insert(joined, FoldedLine(text, said.stream, {said.rank}))
                for line_of, at in places.items():
                    if at > joined:
                        places[line_of] = at + 1
            else:
                entries[joined].ranks.add(said.rank)
            place = joined + 1
        places[key] = place
    return entries[first:]


def _is_of(entry: FoldedLine, key: tuple[int, str]) -> bool:
    return key[0] in entry.ranks and entry.stream == key[1]


class _File:
    """One log file; each reading continues where the last one ended."""

    def __init__(self, path: Path, rank: int, stream: str) -> None:
        self.path, self.rank, self.stream = path, rank, stream
        self._inode = 0
        self._offset = 0
        self._unfinished = b""
        self._has_read = False

    def read(self) -> Said | None:
        """Return the complete lines since the last call; None if there are none."""
        try:
            data, left_out = self._new()
        except OSError:
            return None
        if not data:
            return None
        lines = []
        if left_out:
            lines = [f"… {left_out:,} earlier bytes are not shown" if self._has_read else "…"]
            self._unfinished, data = b"", data.partition(b"\n")[2]
        self._has_read = True
        data = self._unfinished + data
        whole, newline, tail = data.rpartition(b"\n")
        if not newline and len(tail) > CHUNK:
            whole, tail = tail, b""
        self._unfinished = tail
        if whole:
            lines += [_tidy(line) for line in _BREAK.split(whole.decode(errors="replace"))]
        return Said(self.rank, self.stream, lines) if lines else None

    def _new(self) -> tuple[bytes, int]:
        """Return the bytes written since the last reading, and how many bytes before them are left out."""
        with contextlib.ExitStack() as files:
            file = files.enter_context(opened(self.path))
            status = os.fstat(file.fileno())
            parts = [(file, self._offset)]
            if status.st_ino != self._inode:  # This is the first reading, or the log was rotated.
                parts = [(file, 0)]
                with contextlib.suppress(OSError):
                    before = files.enter_context(opened(older(self.path)))
                    goes_on = os.fstat(before.fileno()).st_ino == self._inode
                    parts.insert(0, (before, self._offset if goes_on else 0))
            elif status.st_size < self._offset:  # The file was written anew.
                self._unfinished = b""
                parts = [(file, 0)]
            self._inode, self._offset = status.st_ino, status.st_size
            lengths = [max(0, os.fstat(each.fileno()).st_size - begin) for each, begin in parts[:-1]]
            lengths.append(status.st_size - parts[-1][1])
            left_out = max(0, sum(lengths) - CHUNK)
            data, skip = b"", left_out
            for (each, begin), length in zip(parts, lengths, strict=True):
                passed = min(skip, length)
                skip -= passed
                each.seek(begin + passed)
                data += each.read(length - passed)
        return data, left_out


def _tidy(line: str) -> str:
    """Return a line as a terminal shows it: only the text after the last carriage return, cut to MAX_LINE_CHARS."""
    last = next((part for part in reversed(line.split("\r")) if part.strip()), "")
    text = plain(last[: 4 * MAX_LINE_CHARS]).rstrip()
    return text if len(text) <= MAX_LINE_CHARS else text[: MAX_LINE_CHARS - 1] + "…"


class Reader:
    """Finds a run's logs and reads their new lines."""

    def __init__(self, run: Run) -> None:
        self._folder = run_dir(run.id) / "logs"
        self._first = _first_rank(run)
        self._files: dict[Path, _File] = {}

    def __call__(self) -> list[Said]:
        """Return the lines printed since the last call, by rank and stream."""
        for path in sorted(self._folder.glob("ranks/*/attempt_*/*/std*.log"), key=_attempt):
            name, local = path.name, path.parent.name
            if path not in self._files and name in {"stdout.log", "stderr.log"} and local.isdecimal():
                self._files[path] = _File(path, self._first + int(local), name[3:6])
        launcher = self._folder / "launcher.log"
        if launcher not in self._files and launcher.exists():
            self._files[launcher] = _File(launcher, LAUNCHER, "launcher")
        return [said for file in self._files.values() if (said := file.read()) is not None]


def _attempt(path: Path) -> tuple[int, str]:
    number = path.parts[-3].removeprefix("attempt_")
    return int(number) if number.isdecimal() else 0, str(path)


def _first_rank(run: Run) -> int:
    """Return the rank of this machine's local rank 0."""
    node = next((word.partition("=")[2] for word in run.argv if word.startswith("--node-rank=")), "0")
    return int(node) * (run.world_size // max(1, run.nnodes)) if node.isdecimal() else 0


class Log:
    """The last lines of a run, folded. `total` counts all entries so far; only the last `MAX_KEPT_LINES` are held."""

    def __init__(self, read: Callable[[], list[Said]]) -> None:
        self._read = read
        self.entries: list[FoldedLine] = []
        self.total = 0
        self.changes = 0
        """A counter that grows with every change."""
        self.elsewhere: set[int] = set()
        """Ranks of other machines whose lines are fetched."""
        self._newest = 0
        """Number of entries from the last reading, into which later lines of other ranks may still be folded."""

    def poll(self) -> list[FoldedLine]:
        """Read and fold new lines; return the added entries."""
        printed = self._read()
        if not printed:
            return []
        new = fold(self.entries[len(self.entries) - self._newest :], printed)
        self._newest = min(MAX_KEPT_LINES, len(new))
        self.entries += new
        del self.entries[:-MAX_KEPT_LINES]
        self.total += len(new)
        self.changes += 1
        return new

    def clear(self) -> None:
        """Delete all entries. Called when the reader will return all lines again."""
        self.entries.clear()
        self._newest = 0
        self.changes += 1
