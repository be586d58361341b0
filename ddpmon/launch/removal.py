"""Deletes a run that the user chose, or the oldest ended runs if the stored runs exceed a limit of size or age.

A run is never half deleted: its folder is renamed first.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpmon import numbers, runs
from ddpmon.errors import DdpmonError, RunNotFoundError, UsageError
from ddpmon.launch import run_processes
from ddpmon.runs import Run

_ASIDE = ".deleted-"
KEEP_VARIABLE = "DDPMON_KEEP"
GRAMMAR = "a total size (20GB, 500MB, 2TB) or an age (90d, 12w, 36h)"
NEAR_LIMIT_SHARE = 0.8
"""Share of the limit from which on ddpmon warns that the limit is near."""
_BOUND = re.compile(r"(\d+(?:\.\d+)?) *(MB|GB|TB|h|d|w)", re.IGNORECASE)
_BYTES = {"mb": 10**6, "gb": 10**9, "tb": 10**12}
_SECONDS = {"h": 3600, "d": 86_400, "w": 7 * 86_400}


def folder_bytes(folder: Path) -> int:
    """Return the size of a folder's files in bytes."""
    total = 0
    for inside, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(inside, name)).st_size
    return total


def size_text(run: Run) -> str:
    """Return the size of a run's folder as text, such as "12.0 MB"."""
    return numbers.disk_size(folder_bytes(runs.run_dir(run.id)))


def check_removable(run: Run, *, force: bool = False) -> Run:
    """Return the run's current state if no process of the run is alive; raise UsageError otherwise.

    Args:
        run: The run.
        force: Accept a run whose processes are not visible from here, because the user knows that it has ended.

    """
    run = runs.load(run.id)
    state, elsewhere = run.state(), run.elsewhere()
    if state == "running" and run.attached and not elsewhere:
        raise UsageError(f"{run.name} ({run.id}) is still attached to a job; run ddpmon detach {run.id} first")
    if state == "running":
        raise UsageError(
            f"{run.name} ({run.id}) {elsewhere or 'is running'}; stop it{' there' if elsewhere else ''} first"
        )
    if elsewhere and not force:
        raise UsageError(
            f"{run.name} ({run.id}) {elsewhere}; delete the run there, or use ddpmon rm --force if the run "
            "has certainly ended"
        )
    if run.supervised():
        raise UsageError(f"{run.name} ({run.id}) is ending; try again in a moment")
    if not elsewhere and (alive := run_processes.of_run(run.id)):
        noun, pronoun = ("process", "it") if len(alive) == 1 else ("processes", "them")
        raise UsageError(f"{run.name} ({run.id}) still has {len(alive)} {noun}; ddpmon stop {run.id} ends {pronoun}")
    return run


def delete_run(run: Run, *, force: bool = False) -> None:
    """Delete a run's folder and its sockets.

    The folder is renamed first, so that a run is never half deleted.

    Args:
        run: The run.
        force: As for `check_removable`.

    Raises:
        UsageError: `check_removable` refuses; then nothing is deleted.
        DdpmonError: The folder cannot be renamed, or some files of the deleted run remain on the disk.

    """
    run = check_removable(run, force=force)
    folder = runs.run_dir(run.id)
    aside = folder.with_name(_ASIDE + run.id)
    try:
        folder.rename(aside)
    except OSError as error:
        raise DdpmonError(f"{folder} cannot be deleted: {error.strerror}") from None
    runs.remove_sockets(run.id)
    _remove_folder(aside)
    for abandoned in folder.parent.glob(f"{_ASIDE}*"):  # Another command began to delete these and did not finish.
        shutil.rmtree(abandoned, ignore_errors=True)


def _remove_folder(aside: Path) -> None:
    try:
        shutil.rmtree(aside)
    except OSError as error:
        if not aside.exists():  # Another command deleted the folder first.
            return
        raise DdpmonError(
            f"the run is deleted, except for some files in {aside}, which ddpmon could not delete: "
            f"{error.strerror or error}"
        ) from None


@dataclass(frozen=True)
class Bound:
    """The limit of stored runs: a total size in bytes, or the age of ended runs in seconds."""

    text: str
    """The limit as the user wrote it."""
    size_bytes: float = float("inf")
    age_s: float = float("inf")


@dataclass(frozen=True)
class Stored:
    """A stored run with its size and age."""

    run: Run
    size_bytes: int
    ended_at: float
    """Unix time at which the run ended. If the end was not recorded: Unix time of the last write to the run's files."""

    def __str__(self) -> str:
        size = numbers.disk_size(self.size_bytes)
        return f"{self.run.name} ({self.run.id}), {self.run.state()}, {size}, ended {_ago(time.time() - self.ended_at)}"


@dataclass(frozen=True)
class Pruning:
    """The effect of a limit on the stored runs."""

    bound: Bound
    going: Sequence[Stored]
    """The runs that the limit deletes, oldest first."""
    count: int
    size_bytes: int
    """Size of all runs in bytes, including those in `going`."""
    near: str
    """A line that warns of a near limit; "" if the limit is not near or `going` has runs."""


def parse_limit(text: str, name: str) -> Bound:
    """Parse a limit that a user wrote.

    Args:
        text: The limit.
        name: The option or variable that it comes from, for the error.

    Raises:
        UsageError: The text is not a limit.

    """
    bound = _BOUND.fullmatch(text.strip())
    if bound is None or float(bound[1]) <= 0:
        raise UsageError(f"{name} {text!r}: give {GRAMMAR}")
    value, unit = float(bound[1]), bound[2].lower()
    if unit in _BYTES:
        return Bound(text, size_bytes=value * _BYTES[unit])
    return Bound(text, age_s=value * _SECONDS[unit])


def limit_from_environment() -> Bound | None:
    """Return the limit in $DDPMON_KEEP; None if the variable is not set. Raise UsageError if it is not a limit."""
    text = os.environ.get(KEEP_VARIABLE, "")
    return parse_limit(text, KEEP_VARIABLE) if text else None


def plan_pruning(bound: Bound) -> Pruning:
    """Return the runs that a limit deletes: the oldest ended runs. A run that may still be running is never deleted."""
    now = time.time()
    readable = runs.all_runs()
    unreadable = set(runs.all_ids()).difference(run.id for run in readable)
    stored_runs = sorted(map(_stored_run, readable), key=lambda stored: stored.ended_at)
    total = sum(stored.size_bytes for stored in stored_runs)
    total += sum(folder_bytes(runs.run_dir(run_id)) for run_id in unreadable)
    going: list[Stored] = []
    bytes_left = total
    for stored in stored_runs:
        if (bytes_left > bound.size_bytes or now - stored.ended_at > bound.age_s) and _is_over(stored.run):
            going.append(stored)
            bytes_left -= stored.size_bytes
    near = ""
    old = sum(now - stored.ended_at > NEAR_LIMIT_SHARE * bound.age_s and stored.run.ended for stored in stored_runs)
    if going:
        pass
    elif total > NEAR_LIMIT_SHARE * bound.size_bytes:
        near = (
            f"all runs together take {numbers.disk_size(total)} of the limit of {bound.text} "
            f"({KEEP_VARIABLE}); above the limit, ddpmon run deletes the oldest ended runs"
        )
    elif old:
        near = (
            f"{count_text(old)} ended nearly {bound.text} ago; ddpmon run deletes runs above this age ({KEEP_VARIABLE})"
        )
    return Pruning(bound, going, len(stored_runs), total, near)


def delete_runs(going: Sequence[Stored]) -> Iterator[tuple[Stored, str]]:
    """Delete runs one by one; yield each run with "", or with the reason why ddpmon could not delete it."""
    for stored in going:
        try:
            delete_run(stored.run)
        except DdpmonError as error:
            deleted = not runs.run_dir(stored.run.id).exists()  # Another command may have deleted the run first.
            yield stored, "" if deleted else str(error)
        else:
            yield stored, ""


def sum_text(going: Sequence[Stored]) -> str:
    """Return the number of runs and their total size as text, such as "3 runs, 4.2 GB"."""
    return f"{count_text(len(going))}, {numbers.disk_size(sum(stored.size_bytes for stored in going))}"


def count_text(count: int) -> str:
    """Return a number of runs as text, such as "1 run" or "2 runs"."""
    return f"{count} run{'' if count == 1 else 's'}"


def _stored_run(run: Run) -> Stored:
    folder = runs.run_dir(run.id)
    ended_at = run.ended_at
    if ended_at is None:
        ended_at = max([run.created_at, *(_written_at(path) for path in folder.glob("*"))])
    return Stored(run, folder_bytes(folder), ended_at)


def _is_over(run: Run) -> bool:
    try:
        check_removable(run)
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
