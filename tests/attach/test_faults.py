"""A fault while ddpmon attaches, watches or detaches harms no job, which computes what it computes alone."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from ddpmon import proc, runs
from tests import ranks
from tests.attach.conftest import SCRIPT, Job, environment, needs_gdb, training
from tests.conftest import ddpmon_program, wait_for
from tests.disks import SmallDisk

pytestmark = [pytest.mark.e2e, needs_gdb, pytest.mark.timeout(600)]

LONG = 240


@pytest.fixture(scope="module")
def job_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A job that outlives all faults, one after the other."""
    with training(tmp_path_factory.mktemp("job")) as start:
        yield start("torchrun")


@pytest.fixture
def survives(job_of_all: Job) -> Iterator[Job]:
    """The job, which must go on after the test."""
    yield job_of_all
    job_of_all.goes_on()


@pytest.fixture
def attach(fresh_programs: None) -> Iterator[Callable[[Job], subprocess.Popen]]:
    """Start `ddpmon attach --pid` for a job."""
    started: list[subprocess.Popen] = []

    def call(job: Job) -> subprocess.Popen:
        command = [ddpmon_program(), "attach", "--pid", str(job.pids[0]), "--headless"]
        output = (job.folder / "attach").open("wb")
        started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output))
        output.close()
        return started[-1]

    yield call
    for process in started:
        process.kill()
        process.wait()


def said(job: Job) -> str:
    return (job.folder / "attach").read_text()


def begun() -> runs.Run | None:
    """The run, once its supervisor is at work."""
    return next((run for run in runs.all_runs() if run.supervisor), None)


def entered() -> runs.Run | None:
    """The run, once the probe is in all its ranks."""
    return next((run for run in runs.all_runs() if {each.state for each in run.attached} == {"in"}), None)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python enters by itself, without a debugger")
def test_the_successor_of_a_killed_supervisor_waits_for_the_debugger_that_is_still_at_work(survives, attach, cli):
    ranks = survives.pids
    attach(survives)
    gdb = wait_for(lambda: next(filter(None, (int(proc.status(pid, "TracerPid")) for pid in ranks)), None), LONG, 0)
    os.kill(gdb, signal.SIGSTOP)
    run = wait_for(begun, LONG)
    os.kill(run.supervisor.pid, signal.SIGKILL)
    assert cli("status", run.id).returncode in {0, 1}
    wait_for(lambda: runs.load(run.id).supervisor not in {run.supervisor, None}, LONG)
    os.kill(gdb, signal.SIGCONT)
    wait_for(entered, LONG)
    assert cli("detach").returncode == 0


def test_a_stopped_rank_is_not_entered_and_the_line_says_how_to_continue_it(survives, attach):
    pid = survives.pids[1]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert attach(survives).wait(LONG) == 2
    finally:
        os.kill(pid, signal.SIGCONT)
    (line,) = said(survives).splitlines()
    assert f"attach again after kill -CONT {pid}" in line


def test_on_a_full_disk_it_says_so_in_one_line(small_disk: Callable[[float], SmallDisk], survives, attach, monkeypatch):
    disk = small_disk(8)
    monkeypatch.setenv("DDPMON_HOME", str(disk.path / "home"))
    disk.fill()
    assert attach(survives).wait(LONG) in {1, 2}
    (line,) = said(survives).splitlines()
    assert "No space left" in line


def test_a_killed_hub_gets_a_successor_and_a_rank_in_c_code_is_left_when_it_returns(survives, attach, cli):
    rank, folder = survives.pids[1], survives.folder
    before = threads(rank)
    attach(survives)
    run = wait_for(lambda: (run := entered()) and run.hub and run, LONG)
    os.kill(run.hub.pid, signal.SIGKILL)
    wait_for(lambda: runs.load(run.id).hub not in {run.hub, None}, LONG)
    wait_for(lambda: "RUNNING" in cli("status", run.id).stdout or "SLOW" in cli("status", run.id).stdout, LONG)
    with (folder / "draft").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (folder / "draft").rename(folder / "nap")
        wait_for((folder / "napping").exists, LONG)
        (folder / "nap").unlink()
        left = cli("detach")
        assert left.returncode == 0, left.stderr
        assert threads(rank) != before
    wait_for(lambda: threads(rank) == before, LONG)


def threads(pid: int) -> list[str]:
    return sorted(proc.thread_names(pid))


def test_after_all_of_it_a_supervisor_that_is_killed_while_it_enters_gets_a_successor_that_sees_the_same_end(
    job_of_all, attach, cli, tmp_path
):
    attach(job_of_all)
    run = wait_for(
        lambda: (run := begun()) and "entering" in {each.state for each in run.attached} and run, LONG, every_s=0
    )
    os.kill(run.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: cli("status", run.id).returncode in {0, 1} and entered(), LONG)
    assert set(job_of_all.end()) == {0}
    ended = wait_for(lambda: (last := runs.load(run.id)).ended and last)
    assert (ended.state(), ended.exit_code) == ("done", 0)
    steps = [(job_of_all.folder / f"steps-{rank}").read_text().splitlines() for rank in range(2)]
    alone = environment(STEP_S="0", STEPS=str(len(steps[0])))
    done = ranks.run(2, SCRIPT, str(tmp_path), "hand", environment=alone, modules=ranks.LIGHT, timeout_s=LONG)
    assert done.returncode == 0, done.stderr
    assert len(steps[0]) > 50
    assert steps == [(tmp_path / f"steps-{rank}").read_text().splitlines() for rank in range(2)]


def test_a_rank_that_is_killed_while_it_is_entered_ends_the_attach_with_one_line(job, attach):
    started = job("hand")
    watching = attach(started)
    wait_for(begun, LONG, every_s=0)
    os.kill(started.started[1].pid, signal.SIGKILL)
    assert watching.wait(LONG) != 0
    assert "Traceback" not in said(started)
    assert all(run.ended for run in runs.all_runs())
