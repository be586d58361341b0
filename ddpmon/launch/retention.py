"""Bounds the folder of all runs: when it is too large, the oldest runs that have ended go."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpmon import runs
from ddpmon.errors import DdpmonError, RunNotFoundError, UsageError
from ddpmon.launch import removal
from ddpmon.runs import Run

VARIABLE = "DDPMON_KEEP"
GRAMMAR = "a total size (20GB, 500MB, 2TB) or an age (90d, 12w, 36h)"
NEAR = 0.8
"""Share of the bound from which on a line warns that it comes near."""
_BOUND = re.compile(r"(\d+(?:\.\d+)?) *(MB|GB|TB|h|d|w)", re.IGNORECASE)
_BYTES = {"mb": 10**6, "gb": 10**9, "tb": 10**12}
_SECONDS = {"h": 3600, "d": 86_400, "w": 7 * 86_400}


@dataclass(frozen=True)
class Bound:
    """Bound of the folder: so many bytes, or runs that ended at most so many seconds ago."""

    text: str
    """The bound as it was given."""
    size_bytes: float = float("inf")
    age_s: float = float("inf")


@dataclass(frozen=True)
class Stored:
    """A run on the disk."""

    run: Run
    size_bytes: int
    ended_at: float
    """Unix time; of one that did not say so, when something of it was last written."""

    def __str__(self) -> str:
        size = removal.bytes_text(self.size_bytes)
        return f"{self.run.name} ({self.run.id}), {self.run.state()}, {size}, ended {_ago(time.time() - self.ended_at)}"


@dataclass(frozen=True)
class Pruning:
    """Effect of a bound on the runs that there are."""

    bound: Bound
    going: Sequence[Stored]
    """The oldest first."""
    count: int
    size_bytes: int
    """Bytes of all runs, those that go included."""
    near: str
    """One line where it comes near; "" where it does not, or something goes already."""


def parse(text: str, name: str) -> Bound:
    """A bound from what a person wrote. UsageError says what is wrong; name: of the option or variable."""
    bound = _BOUND.fullmatch(text.strip())
    if bound is None or float(bound[1]) <= 0:
        raise UsageError(f"{name} {text!r}: give {GRAMMAR}")
    value, unit = float(bound[1]), bound[2].lower()
    if unit in _BYTES:
        return Bound(text, size_bytes=value * _BYTES[unit])
    return Bound(text, age_s=value * _SECONDS[unit])


def from_environment() -> Bound | None:
    """Return what $DDPMON_KEEP says; None: all is kept. UsageError if it is no bound."""
    text = os.environ.get(VARIABLE, "")
    return parse(text, VARIABLE) if text else None


def plan(bound: Bound) -> Pruning:
    """Return which runs a bound lets go: the oldest that have ended. Never one that runs, or of which that cannot be
    seen.
    """
    now = time.time()
    readable = runs.all_runs()
    unreadable = set(runs.all_ids()).difference(run.id for run in readable)
    stored_runs = sorted(map(_stored, readable), key=lambda stored: stored.ended_at)
    total = sum(stored.size_bytes for stored in stored_runs)
    total += sum(removal.folder_bytes(runs.run_dir(run_id)) for run_id in unreadable)
    going: list[Stored] = []
    bytes_left = total
    for stored in stored_runs:
        if (bytes_left > bound.size_bytes or now - stored.ended_at > bound.age_s) and _is_over(stored.run):
            going.append(stored)
            bytes_left -= stored.size_bytes
    near = ""
    old = sum(now - stored.ended_at > NEAR * bound.age_s and stored.run.ended for stored in stored_runs)
    if going:
        pass
    elif total > NEAR * bound.size_bytes:
        near = (
            f"all runs together take {removal.bytes_text(total)} of the limit of {bound.text} "
            f"({VARIABLE}); above the limit, ddpmon run deletes the oldest ended runs"
        )
    elif old:
        near = f"{count_text(old)} ended nearly {bound.text} ago; ddpmon run deletes runs above this age ({VARIABLE})"
    return Pruning(bound, going, len(stored_runs), total, near)


def delete(going: Sequence[Stored]) -> Iterator[tuple[Stored, str]]:
    """Delete runs one by one; yields each with "", or with why it stays."""
    for stored in going:
        try:
            removal.delete(stored.run)
        except DdpmonError as error:
            deleted = not runs.run_dir(stored.run.id).exists()  # another command was faster
            yield stored, "" if deleted else str(error)
        else:
            yield stored, ""


def sum_text(going: Sequence[Stored]) -> str:
    """Return how many runs, and what they take: 3 runs, 4.2 GB."""
    return f"{count_text(len(going))}, {removal.bytes_text(sum(stored.size_bytes for stored in going))}"


def count_text(count: int) -> str:
    """1 run, 2 runs."""
    return f"{count} run{'' if count == 1 else 's'}"


def _stored(run: Run) -> Stored:
    folder = runs.run_dir(run.id)
    ended_at = run.ended_at
    if ended_at is None:
        ended_at = max([run.created_at, *(_written_at(path) for path in folder.glob("*"))])
    return Stored(run, removal.folder_bytes(folder), ended_at)


def _is_over(run: Run) -> bool:
    try:
        removal.check(run)
    except (UsageError, RunNotFoundError):
        return False
    return True


def _written_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _ago(seconds: float) -> str:
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"
