"""`ddpmon attach --pid` watches a job that trains already, and `ddpmon detach` leaves it as it was."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess

import pytest

from ddpmon import proc, runs
from ddpmon.attach import jobs, stacks
from ddpmon.launch import processes
from ddpmon.source.place import Here
from tests.attach.conftest import Program, needs_gdb, training
from tests.conftest import ddpmon_program, wait_for
from tests.tui.terminal import Terminal

pytestmark = [pytest.mark.e2e, needs_gdb]


@pytest.fixture
def attached(fresh_programs, tmp_path):
    """Start `ddpmon attach --pid` for a process; the run, once its ranks are in."""
    watching: list[subprocess.Popen[bytes]] = []

    def call(pid: int, *options: str) -> runs.Run:
        with (tmp_path / f"attach-{pid}").open("wb") as output:
            command = [ddpmon_program(), "attach", "--pid", str(pid), "--headless", *options]
            watching.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output))

        def run() -> runs.Run | None:
            latest = [one for one in runs.all_runs() if not one.ended]
            assert watching[-1].poll() is None, (tmp_path / f"attach-{pid}").read_text()
            return next((one for one in latest if all(rank.state == "in" for rank in one.attached)), None)

        return wait_for(run, 120)

    yield call
    for process in watching:
        process.kill()
        process.wait()


def status(cli, run):
    return json.loads(cli("status", run.id, "--json").stdout)


def trains(cli, run):
    """Wait until the hub has steps of all ranks."""
    return wait_for(lambda: (told := status(cli, run)).get("step", 0) > 5 and told, 120, 0.5)


@pytest.fixture(scope="module")
def torchrun(tmp_path_factory):
    """A job that torchrun started: what attaches leaves it, and only the last one stops it."""
    with training(tmp_path_factory.mktemp("job")) as start:
        yield start("torchrun")


def test_enter_on_an_unwatched_job_asks_and_then_attaches(torchrun, fresh_programs, cli):
    pid = torchrun.started[0].pid
    a_dashboard_that_changes_nothing_names_the_command_instead(pid)
    question = r"Attach to train \(pid (\d+),"
    with Terminal("tests.tui.show", "slow", columns=160, rows=50) as dashboard:
        open_runs(dashboard)
        press_enter(dashboard, pid, question)
        dashboard.press(b"n")
        dashboard.wait_until(lambda text: not re.search(question, text), "the screen without the question")
        assert runs.all_runs() == []
        press_enter(dashboard, pid, question)
        dashboard.press(b"y")
        dashboard.wait_until(lambda text: re.match(r".*\btrain  2 ranks  step \d", text), "the steps of the job", 120)
        dashboard.press(b"q")
        assert dashboard.wait_end() == 0
    (run,) = runs.all_runs()
    assert cli("detach", run.id).returncode == 0


def a_dashboard_that_changes_nothing_names_the_command_instead(pid):
    with Terminal("ddpmon", "demo", columns=160, rows=50) as dashboard:
        open_runs(dashboard)
        press_enter(dashboard, pid, r"read-only: cannot attach from here; ddpmon attach --pid (\d+) in a shell can")
        dashboard.press(b"q")
        dashboard.wait_end()
    assert runs.all_runs() == []


def open_runs(dashboard):
    dashboard.press(b"8")
    dashboard.wait_for("UNWATCHED")
    dashboard.press(b"g")


def press_enter(dashboard, pid, answer):
    """Move the cursor to a job in Runs, and press Enter there. answer: what is shown then, with the pid in group 1."""
    asked = []
    for _ in range(30):  # other jobs of this machine may stand before it
        dashboard.press(b"\r")
        shown = re.search(answer, dashboard.wait_until(lambda text: re.search(answer, text), answer))
        if int(shown[1]) == pid:
            return
        dashboard.press(b"n")
        dashboard.wait_until(lambda text: not re.search(answer, text), "the screen without the question")
        dashboard.press(b"g" if shown[1] in asked else b"j")
        asked.append(shown[1])
    raise AssertionError(pid)


def test_a_job_is_watched_left_and_watched_again_also_as_its_launcher_starts_ranks_again(torchrun, attached, cli):
    one_job_which_its_launcher_names(torchrun, cli)
    pids = torchrun.pids
    before = descriptors(pids)
    run = attached(pids[1])
    assert [rank.process.pid for rank in run.attached] == pids
    assert run.agent.pid == torchrun.started[0].pid
    assert trains(cli, run)["world_size"] == 2
    assert json.loads(cli("report", run.id, "--format", "json").stdout)["run"]["attached"] is True
    assert str(run.agent.pid) not in cli("ls").stdout.partition("without ddpmon")[2]
    again = cli("attach", "--pid", str(pids[0]), "--headless")
    assert (again.returncode, run.id in again.stderr) == (2, True)

    assert f"print to {torchrun.folder / 'out-0'}" in cli("logs", run.id).stdout
    left = cli("detach")
    assert (left.returncode, "continues without the probe" in left.stdout) == (0, True), left.stderr
    assert runs.load(run.id).state() == "detached"
    assert "the job continues without ddpmon" in cli("report", run.id).stdout
    torchrun.goes_on()
    assert wait_for(lambda: descriptors(pids) == before)
    assert f"\n{run.agent.pid} " in cli("ls").stdout

    shown = cli("attach", "--pid", str(pids[0]), "--once")
    assert "WAITING" not in shown.stdout, shown.stderr
    assert cli("detach").returncode == 0
    second = attached(run.agent.pid, "--name", "again")
    assert second.name == "again"
    trains(cli, second)
    ranks_that_the_launcher_starts_again_are_watched(second)
    torchrun.goes_on()
    a_stop_asks_and_then_signals_the_launcher(second, torchrun.started[0], cli)


def one_job_which_its_launcher_names(started, cli):
    (launcher,) = started.started
    found = started.found()
    assert (found.launcher.pid, found.world_size) == (launcher.pid, 2)
    assert [rank.rank for rank in found.ranks] == [0, 1]
    assert found.command[0].endswith("train.py")
    assert not found.watched
    listed = cli("ls").stdout
    assert f"\n{launcher.pid} " in listed
    assert "ddpmon attach --pid" in listed
    (row,) = [row for row in json.loads(cli("ls", "--json").stdout) if row["pid"] == launcher.pid]
    assert (row["id"], row["state"], row["world_size"], row["exit_code"]) == (None, "unwatched", 2, None)
    assert launcher.pid in [listed.pid for listed in Here().read()]


def descriptors(pids):
    return {pid: sorted(link.partition(":")[0] for _, link in proc.descriptors(pid)) for pid in pids}


def threads(pids):
    return {pid: sorted(proc.thread_names(pid)) for pid in pids}


def ranks_that_the_launcher_starts_again_are_watched(run):
    os.kill(run.attached[1].process.pid, signal.SIGKILL)

    def again() -> bool:
        now = runs.load(run.id)
        assert not now.ended, now.error
        return now.attached != run.attached and all(rank.state == "in" for rank in now.attached)

    wait_for(again, 180)


def a_stop_asks_and_then_signals_the_launcher(run, launcher, cli):
    refused = cli("stop", run.id)
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    below = [process for _, process in processes.descendants(launcher.pid)]
    stopped = cli("stop", run.id, "--yes")
    assert stopped.returncode == 0, stopped.stderr
    wait_for(lambda: not any(process.alive() for process in below))
    assert runs.load(run.id).state() == "stopped"
    assert launcher.wait(60) != 0
    assert "1 restart" in cli("report", run.id).stdout


def test_a_rank_that_cannot_be_entered_has_all_ranks_left(job, cli, fresh_programs):
    started = job("hand", REFUSES="1")
    pids = started.pids
    before = descriptors(pids), threads(pids)
    refused = cli("attach", "--pid", str(pids[0]), "--headless")
    assert refused.returncode == 1, refused.stdout
    (line,) = refused.stderr.splitlines()
    assert "rank 1" in line
    assert "ddpmon" in line
    assert runs.all_runs() == []
    started.goes_on()
    assert wait_for(lambda: (descriptors(pids), threads(pids)) == before)


def test_a_rank_in_c_code_is_entered_when_it_returns_and_a_killed_supervisor_gets_a_successor(job, fresh_programs, cli):
    started = job("hand")
    ranks_that_were_started_by_hand_are_one_job_by_their_meeting_place(started)
    draft, nap = started.folder / "draft", started.folder / "nap"
    with draft.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        draft.rename(nap)
        wait_for((started.folder / "napping").exists)
        nap.unlink()
        with Program(
            [ddpmon_program(), "attach", "--pid", str(started.pids[0]), "--headless"], stdout=subprocess.PIPE, text=True
        ) as watching:
            lines = iter(watching.stdout.readline, "")
            assert any("rank 1" in line and "has not answered yet" in line for line in lines)
            (run,) = runs.all_runs()
            where = "in nap (train.py:" if stacks.py_spy() else "pip install py-spy"
            told = wait_for(lambda: where in (text := cli("status", run.id, "--json").stdout) and text, every_s=0.5)
            assert "the probe is in no rank yet; no answer from rank 0 (pid" in told
            assert stacks.py_spy() is None or "train (train.py:" in cli("logs", run.id).stdout
            held.close()
            trains(cli, run)
            os.kill(run.supervisor.pid, signal.SIGKILL)
            wait_for(lambda: runs.load(run.id).supervisor not in {run.supervisor, None})
            wait_for(lambda: status(cli, run)["state"] in {"running", "slow"})
            os.kill(started.pids[1], signal.SIGKILL)
            started.started[0].wait(60)
            ended = wait_for(lambda: (last := runs.load(run.id)).ended and last)
    assert (ended.state(), ended.exit_code) in {("failed", 137), ("failed", 1), ("failed", 134)}


def ranks_that_were_started_by_hand_are_one_job_by_their_meeting_place(started):
    found = started.found()
    assert found.launcher is None
    assert [rank.process.pid for rank in found.ranks] == [process.pid for process in started.started]
    assert found in jobs.of_process(os.getpid(), jobs.find_all()), "it runs below this process"
