"""Creates and changes run.json atomically, one writer at a time. Standard library only."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddpmon.errors import DdpmonError, RunNotFoundError, UsageError
from ddpmon.runs.folders import home, private_dir, run_dir, runs_dir
from ddpmon.runs.lock import lock_within
from ddpmon.runs.lookup import all_runs
from ddpmon.runs.private_files import write
from ddpmon.runs.run import Run, load
from ddpmon.runs.secrets_file import keep_secrets, without_secrets

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LOCK_S = 2.0
"""Longest time, in seconds, that a writer waits for another one."""


def check_name(name: str, argument: str = "--name") -> str:
    """Return the name if it is valid as an argument and as part of a path; raise UsageError otherwise."""
    if not NAME_PATTERN.fullmatch(name):
        raise UsageError(f"{argument} {name!r}: use at most 64 letters, digits, '.', '_' and '-'")
    return name


def create(run: Run) -> Path:
    """Create a run's folder and its run.json without secrets; return the folder. Raise UsageError if it exists."""
    check_name(run.name)
    private_dir(home())
    private_dir(runs_dir())
    path = private_dir(run_dir(run.id))
    private_dir(path / "logs")
    shown = without_secrets(run)
    try:
        write(path / "run.json", dataclasses.asdict(shown), new=True)
    except FileExistsError:
        raise UsageError(f"a run {run.id} already exists") from None
    if shown.hides:
        keep_secrets(run)
    return path


def text(run: Run) -> str:
    """Return the contents of run.json for a run."""
    return json.dumps(dataclasses.asdict(run), indent=1)


def save(run: Run) -> None:
    """Write run.json atomically."""
    write(run_dir(run.id) / "run.json", dataclasses.asdict(run))


def update(run_id: str, **changes: Any) -> Run:
    """Change fields of run.json, and leave other writers' changes of other fields; return the changed run.

    Raises:
        RunNotFoundError: run.json is missing or damaged.
        OSError: run.json cannot be written.

    """
    with _alone(run_id):
        run = dataclasses.replace(load(run_id), **changes)
        save(run)
    return run


@contextlib.contextmanager
def _alone(run_id: str) -> Iterator[None]:
    """Lock run.json against every other writer."""
    path = run_dir(run_id) / "run.json.lock"
    try:
        lock = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW, 0o600)
    except FileNotFoundError:
        raise RunNotFoundError(f"no run {run_id}; ddpmon ls lists all runs") from None
    try:
        lock_within(lock, LOCK_S)  # Continue without the lock: a supervisor must not hang on a stopped writer.
        yield
    finally:
        os.close(lock)


def rename(run: Run, name: str) -> Run:
    """Rename a run, which may be running or may have ended; return the changed run.

    Raises:
        UsageError: The name is invalid, or another run has it.
        DdpmonError: run.json cannot be written.

    """
    check_name(name, "NAME")
    for other in all_runs():
        if other.name == name and other.id != run.id:
            raise UsageError(
                f"run {other.id} already has the name {name}; rename that run first, or choose another name"
            )
    try:
        return update(run.id, name=name)
    except OSError as error:
        raise DdpmonError(f"{run.name} ({run.id}) cannot be renamed: {error.strerror}") from None
