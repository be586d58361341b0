"""Delete a run: all that is kept of it, or nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from ddpmon import runs
from ddpmon.errors import DdpmonError, UsageError
from ddpmon.launch import remaining_processes
from ddpmon.runs import Run

_ASIDE = ".deleted-"


def folder_bytes(folder: Path) -> int:
    """Return what a folder takes on the disk."""
    total = 0
    for inside, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(inside, name)).st_size
    return total


def size_text(run: Run) -> str:
    """Return what a run takes on the disk, for people: 12 MB."""
    return bytes_text(folder_bytes(runs.run_dir(run.id)))


def bytes_text(size_bytes: float) -> str:
    """A number of bytes for people: 12 MB."""
    size = float(size_bytes)
    for unit in ("bytes", "kB", "MB"):
        if size < 999.5:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def check(run: Run, *, force: bool = False) -> Run:
    """The run as it is now, if nothing of it lives any more; UsageError says what does.

    force: whoever asks knows that of a run which cannot be seen from here.
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


def delete(run: Run, *, force: bool = False) -> None:
    """Delete a run's folder and its sockets. UsageError where `check` says so: then nothing is deleted.

    The folder is renamed first, so that there is never half of a run. DdpmonError if it cannot be, or if the disk
    keeps what is no run any more.
    """
    run = check(run, force=force)
    folder = runs.run_dir(run.id)
    aside = folder.with_name(_ASIDE + run.id)
    try:
        folder.rename(aside)
    except OSError as error:
        raise DdpmonError(f"{folder} cannot be deleted: {error.strerror}") from None
    runs.remove_sockets(run.id)
    _remove(aside)
    for abandoned in folder.parent.glob(f"{_ASIDE}*"):  # what somebody else began and did not end
        shutil.rmtree(abandoned, ignore_errors=True)


def _remove(aside: Path) -> None:
    try:
        shutil.rmtree(aside)
    except OSError as error:
        if not aside.exists():  # somebody else was faster
            return
        raise DdpmonError(
            f"the run is deleted, except for some files in {aside}, which ddpmon could not delete: "
            f"{error.strerror or error}"
        ) from None
