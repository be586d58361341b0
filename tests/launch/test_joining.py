"""Several `ddpmon exec` of one job on one machine: one run, in which each ends as its own command does."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from ddpmon import runs
from ddpmon.runs import jobs
from tests.conftest import ddpmon_program, wait_for
from tests.forked import Forked

STEP = {"SLURM_JOB_ID": "41877", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3", "SLURM_STEP_NUM_NODES": "1"}
WAIT = "while [ ! -e end{0} ]; do sleep 0.05; done; echo over {0}; exit {0}"
"""Until the test has it end, with its rank as the exit code."""


@pytest.fixture
def tasks(home):
    """Starts a task of a job step: its rank, what it runs; with `--headless`, as away from any terminal."""
    started = []
    with open(os.devnull, "r+b") as nothing:
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), nothing.fileno())

        def start(rank, script=None, *options, **variables):
            environment = os.environ | STEP | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} | variables
            line = ["exec", *options, "--", "sh", "-c", script or WAIT.format(rank)]
            started.append(Forked("ddpmon", *line, **streams, environment=environment, folder=str(home)))
            return started[-1]

        yield start
    for rank in range(3):
        (home / f"end{rank}").touch()
    for process in started:
        process.kill()
        process.wait()


def the_run(members):
    """The one run there is, once so many have joined it."""

    def joined():
        (run,) = runs.all_runs() or [None]
        return run and run.agent and len(jobs.members(run.id)) == members and run

    return wait_for(joined)


def gone(run):
    return wait_for(lambda: (now := runs.load(run.id)).ended and not now.supervised() and now)


def test_tasks_of_a_node_are_one_run_and_each_ends_with_its_own_code(tasks, home):
    """The first one to fail says so while the others go on."""
    fails = tasks(0, "while [ ! -e end0 ]; do sleep 0.05; done; echo over 0; exit 7")
    others = {rank: tasks(rank) for rank in (1, 2)}
    run = the_run(2)
    assert run.job_rank == 0, "the first task of the machine"
    (home / "end0").touch()
    assert fails.wait(60) == 7
    assert [other.poll() for other in others.values()] == [None, None]
    assert runs.load(run.id).state() == "running"
    for rank in (2, 1):
        (home / f"end{rank}").touch()
        assert others[rank].wait(60) == rank
    ended = gone(run)
    assert (ended.state(), ended.exit_code) == ("failed", 7)
    output = (runs.run_dir(run.id) / "logs" / "launcher.log").read_text()
    assert sorted(output.split("\n")) == ["", "over 0", "over 1", "over 2"]
    assert not list((home / "s" / "jobs").iterdir()), "nothing is left of the job"


def test_a_task_that_comes_after_all_is_over_begins_another_run(cli):
    for rank in (1, 2):
        environment = os.environ | STEP | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
        assert cli("exec", "--", "sh", "-c", f"exit {rank}", env=environment).returncode == rank
    assert [run.exit_code for run in runs.all_runs()] == [1, 2]


def test_killed_tasks_and_a_killed_supervisor_hurt_no_other(tasks, home, cli):
    started = {rank: tasks(rank) for rank in range(3)}
    run = the_run(2)
    started[1].kill()
    assert started[1].wait(30) == -signal.SIGKILL
    os.kill(run.supervisor.pid, signal.SIGKILL)
    assert cli("status").returncode in {0, 1}
    assert runs.load(run.id).supervised(), "by another one"
    (home / "end0").touch()
    wait_for(lambda: runs.load(run.id).state() == "running")
    assert started[2].poll() is None
    (home / "end2").touch()
    assert started[2].wait(30) == 2
    assert gone(run).ended_at
    started[0].wait(60)


def test_a_stop_ends_every_task(tasks, cli):
    started = [tasks(rank, "sleep 600") for rank in range(3)]
    run = the_run(2)
    stopped = cli("stop", run.id)
    assert stopped.returncode == 0, stopped
    assert started[0].wait(30) == 130
    for task in started[1:]:
        assert task.wait(30) in {-signal.SIGTERM, -signal.SIGINT}
    assert gone(run).state() == "stopped"


def test_a_rank_that_is_there_already_and_one_that_is_to_be_apart_have_runs_of_their_own(tasks):
    tasks(0)
    first = the_run(0)
    tasks(0)
    wait_for(lambda: len(runs.all_runs()) == 2)
    tasks(1, None, "--apart")
    wait_for(lambda: len(runs.all_runs()) == 3)
    tasks(2)
    second = wait_for(lambda: [run for run in runs.all_runs() if jobs.members(run.id)])
    assert [run.id for run in second] == [run.id for run in runs.all_runs() if run.job and run.id != first.id]


def test_a_command_that_cannot_be_started_is_one_line(tasks, home):
    tasks(0)
    the_run(0)
    program = home / "no-format"
    program.write_bytes(b"\x7fELF nonsense")
    program.chmod(0o700)
    environment = os.environ | STEP | {"SLURM_PROCID": "1", "SLURM_LOCALID": "1"}
    command = [ddpmon_program(), "exec", "--", str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    log = runs.run_dir(runs.all_runs()[0].id) / "logs" / "launcher.log"
    wait_for(lambda: "cannot start" in log.read_text())
