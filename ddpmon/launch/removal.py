"""Deletes a run: either all of its files or none."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from ddpmon import numbers, runs
from ddpmon.errors import DdpmonError, UsageError
from ddpmon.launch import remaining_processes
from ddpmon.runs import Run

_ASIDE = ".deleted-"


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
    """Return the run as it is now if none of its processes lives; raise UsageError otherwise.

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
    if not elsewhere and (alive := remaining_processes.of_run(run.id)):
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
