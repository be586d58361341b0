"""A fault while ddpmon attaches, watches or detaches harms no job, which computes what it computes alone."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from benchmarks.ports import free_port
from ddpmon import runs
from ddpmon.runs import proc
from tests.attach.conftest import SCRIPT, Job, environment, kill_job, needs_gdb
from tests.conftest import ddpmon_program, wait_for
from tests.disks import SmallDisk

pytestmark = [pytest.mark.e2e, needs_gdb, pytest.mark.timeout(600)]

LONG = 240
STEPS_ALONE = 2000


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The losses and weights of each step of the job without ddpmon."""
    folder = tmp_path_factory.mktemp("alone")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    script, variables = [str(SCRIPT), str(folder), "torchrun"], environment(STEP_S="0", STEPS=str(STEPS_ALONE))
    started = Job(folder, [subprocess.Popen([*command, *script], env=variables, process_group=0)])
    try:
        assert started.started[0].wait(LONG) == 0
    finally:
        kill_job(started)
    return (folder / "steps-0").read_text().splitlines()


def assert_unharmed(job: Job, alone: list[str]) -> None:
    """Check that the job trains, ends well, and has computed in each step what it computes alone."""
    job.goes_on()
    assert set(job.end()) == {0}
    for rank in range(2):
        steps = (job.folder / f"steps-{rank}").read_text().splitlines()
        both = list(zip(steps, alone, strict=False))
        assert len(both) > 5
        assert all(ours == theirs for ours, theirs in both)


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


def test_a_supervisor_that_is_killed_while_it_enters_gets_a_successor_that_enters(job, attach, cli, alone):
    started = job("torchrun")
    attach(started)
    run = wait_for(
        lambda: (run := begun()) and "entering" in {each.state for each in run.attached} and run, LONG, every_s=0
    )
    os.kill(run.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: cli("status", run.id).returncode in {0, 1} and entered(), LONG)
    assert cli("detach").returncode == 0
    assert_unharmed(started, alone)


def test_a_rank_that_is_killed_while_it_is_entered_ends_the_attach_with_one_line(job, attach):
    started = job("hand")
    watching = attach(started)
    wait_for(begun, LONG, every_s=0)
    os.kill(started.started[1].pid, signal.SIGKILL)
    assert watching.wait(LONG) != 0
    assert "Traceback" not in said(started)
    assert all(run.ended for run in runs.all_runs())


def test_a_stopped_rank_is_not_entered_and_on_a_full_disk_nothing_is(
    small_disk: Callable[[float], SmallDisk], job, attach, monkeypatch, alone
):
    disk = small_disk(8)
    monkeypatch.setenv("DDPMON_HOME", str(disk.path / "home"))
    started = job("torchrun")
    pid = started.pids[1]
    os.kill(pid, signal.SIGSTOP)
    assert attach(started).wait(LONG) == 2
    (line,) = said(started).splitlines()
    assert f"attach again after kill -CONT {pid}" in line
    os.kill(pid, signal.SIGCONT)
    disk.fill()
    assert attach(started).wait(LONG) in {1, 2}
    (line,) = said(started).splitlines()
    assert "No space left" in line
    assert_unharmed(started, alone)


def test_a_killed_hub_gets_a_successor_and_a_rank_in_c_code_is_left_when_it_returns(job, attach, cli, alone):
    started = job("torchrun")
    rank = started.pids[1]
    before = threads(rank)
    attach(started)
    run = wait_for(lambda: (run := entered()) and run.hub and run, LONG)
    os.kill(run.hub.pid, signal.SIGKILL)
    wait_for(lambda: runs.load(run.id).hub not in {run.hub, None}, LONG)
    wait_for(lambda: "RUNNING" in cli("status", run.id).stdout or "SLOW" in cli("status", run.id).stdout, LONG)
    draft, nap = started.folder / "draft", started.folder / "nap"
    with draft.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        draft.rename(nap)
        wait_for((started.folder / "napping").exists, LONG)
        nap.unlink()
        left = cli("detach")
        assert left.returncode == 0, left.stderr
        assert threads(rank) != before
    wait_for(lambda: threads(rank) == before, LONG)
    assert_unharmed(started, alone)


def threads(pid: int) -> list[str]:
    return sorted(proc.thread_names(pid))
