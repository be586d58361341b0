"""Joins several `ddpmon exec` of one job on one machine: the first starts a run, the others join it.

A `ddpmon exec` that joins replaces itself by its command (exec), so that signals and the exit code pass directly
between the command and its launcher. The run only records the process (`runs.jobs`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import NoReturn

from ddpmon import runs, tasks
from ddpmon.errors import DdpmonError
from ddpmon.inject import ddpmon_spool
from ddpmon.launch import probe_environment
from ddpmon.launch.given_hub import GivenHub
from ddpmon.launch.start import start_run
from ddpmon.runs import Run, jobs
from ddpmon.runs.jobs import Job
from ddpmon.tasks import Task

FIRST_S = 3.0
"""Seconds that the other tasks on a machine wait for its first task to start the run, so that the first task prints."""
JOIN_POLL_S = 0.05
MAX_DRAIN_START_S = 5.0
"""Longest time, in seconds, for the run's drain to begin."""


def place_in_job(environment: Mapping[str, str]) -> Task | None:
    """Return the task that this command is in its launcher's job; None if the environment shows no job."""
    parent = runs.Process.of(os.getppid())
    task = tasks.task(environment, f"{parent.pid} {parent.start_ticks}" if parent else "")
    return task if task is not None and task.job else None


@contextlib.contextmanager
def joined_or_first(command: list[str], task: Task | None) -> Iterator[Job | None]:
    """Join the job's run if it exists on this machine. Otherwise hold the job's lock while this command starts the run.

    The lock keeps other tasks of the job from starting a second run before `begin` has recorded the first one. If the
    run exists, this function does not return, because the command replaces this process.

    Raises:
        DdpmonError: The job's folder cannot be used.

    """
    if task is None:
        yield None
        return
    deadline = time.monotonic() + (FIRST_S if task.local_rank else 0.0)
    while True:
        try:
            job = Job(task.job)
        except OSError as error:
            text = f"{runs.socket_dir('jobs')}: {error.strerror}"
            raise DdpmonError(
                f"{text}; set DDPMON_RUNTIME_DIR to another folder, or give --apart for a run of its own"
            ) from None
        try:
            if (run := job.run(task.rank)) is not None:
                _join_run(run, command, task)
            if time.monotonic() >= deadline:
                yield job
                return
        finally:
            job.close()
        time.sleep(JOIN_POLL_S)


def start_joinable(run: Run, hub: GivenHub | None, job: Job | None, stdin: int = subprocess.DEVNULL) -> Run:
    """Start a run, and let other tasks of its job join it.

    Args:
        run: The run to start.
        hub: The root hub of the job, if it was given.
        job: The locked job, if the run belongs to one.
        stdin: The descriptor of the command's standard input, as for `start`.

    """
    run = start_run(run, hub, stdin)
    if job is not None:
        job.begin(run.id)
        job.close()
    return run


def _join_run(run: Run, command: list[str], task: Task) -> NoReturn:
    jobs.join(run.id, task.rank)
    print(
        f"ddpmon: rank {task.rank} joins the run {run.name} ({run.id}), which another task of this job "
        "started on this machine",
        file=sys.stderr,
        flush=True,
    )
    with contextlib.suppress(OSError):  # Without the drain, the output goes to the launcher as before.
        _print_into_the_run(run.id)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these two; the command must not inherit that.
        signal.signal(number, signal.SIG_DFL)
    try:
        armed = probe_environment.rank_environment(run.id, os.environ, buckets=run.buckets, hub_given=bool(run.hub_at))
        os.execvpe(command[0], command, armed)
    except OSError as error:
        raise DdpmonError(f"cannot start {command[0]}: {error.strerror}") from None


def _print_into_the_run(run_id: str) -> None:
    """Redirect this process's output into the run's launcher.log. Raise OSError if that is impossible."""
    folder, deadline = str(runs.socket_dir(run_id)), time.monotonic() + MAX_DRAIN_START_S
    while not ddpmon_spool.drain_listens(folder) and time.monotonic() < deadline:
        time.sleep(JOIN_POLL_S)
    ddpmon_spool.replace(1, folder, run_id, "launcher.log")
    os.dup2(1, 2)
