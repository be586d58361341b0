"""Lists runs, and finds a run by its name or id. Standard library only."""

from __future__ import annotations

import sys

from ddpmon.errors import RunNotFoundError
from ddpmon.runs.folders import home, run_dir, runs_dir
from ddpmon.runs.run import Run, load


def all_ids() -> list[str]:
    """Return the ids of all runs of this user, oldest first. Unreadable runs are included.

    Runs that another command is deleting are left out.
    """
    try:
        entries = [entry for entry in runs_dir().iterdir() if not entry.name.startswith(".")]
    except OSError:
        return []
    return sorted(entry.name for entry in entries if (entry / "run.json").exists())


def all_runs() -> list[Run]:
    """Return every readable run of this user, oldest first."""
    return all_and_damaged()[0]


def all_and_damaged() -> tuple[list[Run], list[str]]:
    """Return every readable run of this user, oldest first, and an error message for each unreadable run."""
    readable, damaged = [], []
    for run_id in all_ids():
        try:
            readable.append(load(run_id))
        except RunNotFoundError as error:
            if (run_dir(run_id) / "run.json").exists():  # Otherwise the run was deleted at this moment.
                damaged.append(str(error))
    return sorted(readable, key=lambda run: run.created_at), damaged


def none_yet() -> str:
    """Return the message that there are no runs yet, with their folder."""
    return f"no runs yet in {home()}; ddpmon run --nproc 4 SCRIPT starts one"


def find(wanted_name: str | None, *, quiet: bool = False) -> Run:
    """Return the latest run with this name, or else the run whose id begins with it; with None, the latest run.

    If several runs have the name, a line on stderr says so, unless `quiet` is true.
    """
    runs = all_runs()
    if wanted_name is None:
        if not runs:
            raise RunNotFoundError(none_yet())
        return runs[-1]
    named = [run for run in runs if run.name == wanted_name]
    if len(named) > 1 and not quiet:
        note = f"{len(named)} runs have the name {wanted_name}; this is the latest, {named[-1].id}"
        print(f"ddpmon: {note}; ddpmon ls shows the ids of the others", file=sys.stderr)
    if named:
        return named[-1]
    matching = [run for run in runs if run.id.startswith(wanted_name)]
    damaged = [run_id for run_id in all_ids() if wanted_name and run_id.startswith(wanted_name)]
    if not matching and len(damaged) == 1:
        return load(damaged[0])
    if len(matching) > 1 and not any(run.id == wanted_name for run in matching):
        raise RunNotFoundError(
            f"{len(matching)} run ids begin with {wanted_name} (ddpmon ls lists them); give more characters"
        )
    if not matching:
        raise RunNotFoundError(f"no run {wanted_name!r}; ddpmon ls lists all runs")
    return matching[0]
