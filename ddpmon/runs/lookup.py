"""Lists runs and finds the one that a word names. Standard library only."""

from __future__ import annotations

from ddpmon.errors import RunNotFoundError
from ddpmon.runs.folders import run_dir, runs_dir
from ddpmon.runs.run import Run, load


def all_ids() -> list[str]:
    """The ids of all runs of this user, readable or not, oldest first. What begins with a dot is being deleted."""
    try:
        entries = [entry for entry in runs_dir().iterdir() if not entry.name.startswith(".")]
    except OSError:
        return []
    return sorted(entry.name for entry in entries if (entry / "run.json").exists())


def all_runs() -> list[Run]:
    """Every readable run of this user, oldest first: a damaged one hides no other; naming it shows its error."""
    return all_and_damaged()[0]


def all_and_damaged() -> tuple[list[Run], list[str]]:
    """Every readable run of this user, oldest first; and what is wrong with each of the others."""
    readable, damaged = [], []
    for run_id in all_ids():
        try:
            readable.append(load(run_id))
        except RunNotFoundError as error:
            if (run_dir(run_id) / "run.json").exists():  # else it was deleted just now
                damaged.append(str(error))
    return sorted(readable, key=lambda run: run.created_at), damaged


def find(wanted_name: str | None) -> Run:
    """A run by name (the latest of that name), by the beginning of its id, or the latest of all."""
    runs = all_runs()
    if wanted_name is None:
        if not runs:
            raise RunNotFoundError("no runs yet; ddpmon run --nproc 4 SCRIPT starts one")
        return runs[-1]
    named = [run for run in runs if run.name == wanted_name]
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
