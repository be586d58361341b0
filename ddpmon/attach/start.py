"""Creates a run for a job that is already training. Standard library only."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence

from ddpmon import proc, runs
from ddpmon.attach import jobs, obstacles
from ddpmon.attach.jobs import TrainingJob, attached_processes, find_all, of_process
from ddpmon.errors import UsageError
from ddpmon.launch import spec
from ddpmon.launch.given_hub import GivenHub
from ddpmon.launch.start import new_run, start_run
from ddpmon.runs import Run
from ddpmon.runs.run import ENTERING, Attached

ELSEWHERE = (
    "this run has only the ranks of this machine; "
    "for one run with all ranks, attach on each machine with the same --hub"
)


def find(pid: int) -> TrainingJob:
    """Return the job that a process is part of. Raises UsageError with the reason if ddpmon cannot attach to it."""
    found = of_process(pid, find_all(attached_processes(runs.all_runs())))
    if not found:
        raise UsageError(obstacles.no_job(pid))
    if len(found) > 1:
        pids = ", ".join(str(job.pid) for job in found)
        raise UsageError(
            f"--pid {pid}: {len(found)} jobs train below this process; give the process id of one of them: {pids}"
        )
    job = found[0]
    if job.watched:
        which = f"the job {job.pid} below it" if (above := jobs.is_above(pid, job)) else "this job"
        nothing = "this process trains nothing; " if above else ""
        raise UsageError(
            f"--pid {pid}: {nothing}ddpmon already watches {which}; open its dashboard with ddpmon attach "
            f"{_run_of(job)}".rstrip()
        )
    for rank in job.ranks:
        if why := obstacles.to_enter(rank):
            raise UsageError(why)
    return job


def _run_of(job: TrainingJob) -> str:
    """Return the id of the run that watches a job; "" if it is unknown."""
    processes = {rank.process for rank in job.ranks}
    for run in runs.all_runs():
        if not run.ended and processes & {each.process for each in run.attached}:
            return run.id
    for rank in job.ranks:
        if run_id := proc.environment(rank.process.pid).get("DDPMON_RUN_ID"):
            return run_id
    return ""


def attach(
    job: TrainingJob,
    run_id: str,
    *,
    name: str | None = None,
    grace_s: float = 20.0,
    on_alert: Sequence[str] = (),
    notify: Sequence[str] = (),
    hub: GivenHub | None = None,
) -> Run:
    """Start a run for a job; the run's supervisor then enters the ranks.

    Args:
        job: The job to attach to.
        run_id: An id from `runs.new_id`.
        name: Name of the run; None for one made from the script's name.
        grace_s: Seconds between SIGTERM and SIGKILL when the job is stopped.
        on_alert: Program with its arguments to run when the run needs attention; empty for none.
        notify: URLs of services to notify when the run needs attention.
        hub: The root hub of a run over several machines, where one was given.

    Raises:
        DdpmonError: The run cannot be started.

    """
    if name is not None:
        runs.check_name(name)
    run = run_of(job, run_id)
    run = dataclasses.replace(run, grace_s=grace_s, on_alert=list(on_alert), notify=list(notify), name=name or run.name)
    if hub is not None:
        run = dataclasses.replace(run, notes=[])
    return start_run(run, hub)


def run_of(job: TrainingJob, run_id: str) -> Run:
    """Return a new run that describes the job; its supervisor has not started yet."""
    script, *args = job.command
    return new_run(
        run_id,
        name=spec.name_for(script),
        argv=list(job.words),
        script=script,
        script_args=args,
        cwd=_folder(job),
        world_size=job.world_size,
        nnodes=max(1, -(-job.world_size // len(job.ranks))),
        agent=job.launcher,
        notes=[ELSEWHERE] if job.world_size > len(job.ranks) else [],
        attached=[Attached(rank.process, rank.rank, ENTERING) for rank in job.ranks],
    )


def unwatched(of_user: Iterable[Run]) -> list[tuple[int, Run]]:
    """Return (pid, run) for each job that trains on this machine without ddpmon. of_user: all runs of this user."""
    return [
        (job.pid, dataclasses.replace(run_of(job, f"pid {job.pid}"), created_at=job.started_at, attached=[]))
        for job in jobs.unwatched(of_user)
    ]


def _folder(job: TrainingJob) -> str:
    """Return the folder in which the job runs; this command's folder if the job's is not accessible."""
    folder = proc.working_folder(job.ranks[0].process.pid)
    return folder if os.path.isdir(folder) else spec.current_folder()
