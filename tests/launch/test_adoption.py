"""Runs whose supervisor was killed or stopped, and what the next command that touches them makes of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from ddpmon import runs, source
from ddpmon.export import report
from ddpmon.launch import exit_traces, processes, start, stop
from ddpmon.launch.adoption import adopt_run, take_over
from ddpmon.launch.prepare import Asked, prepare_run
from tests.conftest import Started, ddpmon_program, wait_for
from tests.launch.conftest import WAITS
from tests.probe.conftest import SCRIPTS


@pytest.fixture
def waiting(launch, tmp_path) -> Started:
    """A run that ends with 7 once there is a file `go`."""
    started = launch(sys.executable, "-c", WAITS, str(tmp_path / "go"))
    wait_for((runs.socket_dir(started.id) / "view.sock").exists)
    wait_for(lambda: started.run.hub and started.run.agent)
    return started


def kill(*killed: runs.Process) -> None:
    for process in killed:
        processes.send_signal(process, signal.SIGKILL)
    for process in killed:
        wait_for(lambda process=process: not process.alive())


def the_kernel_tells(code: int) -> bool:
    """Return whether a process's exit code can be asked for once it is gone."""
    with subprocess.Popen([sys.executable, "-c", f"input(); raise SystemExit({code})"], stdin=subprocess.PIPE) as ended:
        stranger = exit_traces.Stranger(runs.Process.of(ended.pid))
        ended.communicate(b"\n")
    return stranger.exit_code() == code


def test_a_run_without_a_supervisor_is_watched_again_to_its_end(waiting, cli, tmp_path):
    run = waiting.run
    kill(run.supervisor)
    told = cli("status")
    assert (told.returncode, told.stdout.split()[1]) == (0, "WAITING")
    assert "was killed; a new one replaces it" in told.stderr
    again = waiting.run
    assert again.supervisor != run.supervisor
    assert (again.state(), again.hub, again.agent) == ("running", run.hub, run.agent)
    assert run.agent.alive()
    assert cli("status").stderr == ""
    wait_for(
        lambda: "this supervisor replaces" in waiting.log("supervisor")
    )  # from then on it sees how the command ends
    (tmp_path / "go").touch()
    ended = waiting.until_gone()
    assert (ended.state(), ended.exit_code) == (("failed", 7) if the_kernel_tells(7) else ("lost", None))
    assert cli("status").returncode == 2
    assert (waiting.folder / "report.json").exists()
    assert not run.hub.alive()
    assert not runs.socket_dir(run.id).exists()


@pytest.mark.usefixtures("fresh_programs")
def test_commands_at_one_moment_start_one_supervisor(waiting, tmp_path):
    run = waiting.run
    kill(run.supervisor)
    found: list[runs.Run] = []
    seeing = [threading.Thread(target=lambda: found.append(adopt_run(run))) for _ in range(4)]
    for each in seeing:
        each.start()
    for each in seeing:
        each.join()
    assert [each.supervisor for each in found] == [waiting.run.supervisor] * 4
    assert waiting.log("supervisor").count("this supervisor replaces") == 1
    (tmp_path / "go").touch()
    waiting.until_gone()


def test_who_comes_second_waits_until_the_next_supervisor_can_be_asked(waiting, tmp_path):
    """A successor has the run's lock before its name stands in run.json: a stop in between would reach nobody."""
    kill(waiting.run.supervisor)
    lock = runs.hold(waiting.id)
    try:
        taken: list[runs.Run] = []
        second = threading.Thread(target=lambda: taken.append(take_over(waiting.run)))
        second.start()
        second.join(0.5)
        assert second.is_alive()
        myself = runs.Process.of(os.getpid())
        runs.update(waiting.id, supervisor=myself)
        second.join(10)
        assert [run.supervisor for run in taken] == [myself]
    finally:
        os.close(lock)
        runs.update(waiting.id, supervisor=runs.Process(1 << 22, 1))
    adopt_run(waiting.run)
    (tmp_path / "go").touch()
    waiting.until_gone()


def test_who_waits_for_a_run_goes_on_when_its_supervisor_is_killed(home, tmp_path):
    command = [ddpmon_program(), "exec", "--headless", "--", sys.executable, "-c", WAITS, str(tmp_path / "go")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as watcher:
        wait_for(lambda: (found := runs.all_runs()) and found[-1].agent)
        run = runs.all_runs()[-1]
        kill(run.supervisor)
        log = runs.run_dir(run.id) / "logs" / "supervisor.log"
        wait_for(lambda: "this supervisor replaces" in log.read_text() or watcher.poll() is not None)
        (tmp_path / "go").touch()
        told, _ = watcher.communicate(timeout=60)
    assert watcher.returncode == (7 if the_kernel_tells(7) else 1), told
    assert told.count("a new one replaces it") == 1


def test_a_run_of_which_nothing_is_left_has_ended_and_nobody_knows_how(waiting, cli):
    run = waiting.run
    kill(run.supervisor, run.agent, run.hub)
    told = cli("status")
    assert told.returncode == 2
    assert "exit code unknown: somebody killed the run's supervisor before the end" in told.stdout
    ended = waiting.run
    assert (ended.ended, ended.state(), ended.exit_code) == (True, "lost", None)
    assert not runs.socket_dir(run.id).exists()
    assert cli("attach", "--headless").returncode == 1


def test_a_supervisor_that_is_killed_during_a_stop_leaves_its_grace_to_the_next(launch, tmp_path):
    """The rank is not asked again, which would begin its checkpoint anew."""
    script = tmp_path / "saves.py"
    script.write_text(
        """
import pathlib, signal, sys, time
here = pathlib.Path(sys.argv[1])
def save(*_):
    with (here / "asked").open("a") as file:
        file.write("x")
    while not (here / "go").exists():
        time.sleep(0.05)
    (here / "checkpoint").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
(here / "ready").touch()
time.sleep(600)
"""
    )
    started = launch(sys.executable, str(script), str(tmp_path), grace_s=600.0)
    wait_for((tmp_path / "ready").exists)
    stop.request_stop(started.run)
    wait_for((tmp_path / "asked").exists)
    kill(started.run.supervisor)
    stop.request_stop(started.run)
    wait_for(lambda: re.search(r"requested the stop again; [56]\d\d s", started.log("supervisor")))
    (tmp_path / "go").touch()
    assert started.until_gone().state() == "stopped"
    assert (tmp_path / "checkpoint").exists()
    assert (tmp_path / "asked").read_text() == "x"


@pytest.mark.e2e
@pytest.mark.parametrize(("options", "state", "code"), [((), "done", 0), (("--fail", "20"), "failed", 1)])
def test_how_training_ended_that_nobody_saw_end_is_learnt_from_what_it_left(home, cli, tmp_path, options, state, code):
    """The supervisor and the hub are gone before the end: the ranks' goodbyes, or torchrun's failures, tell.

    And what ranks left because nobody took it is in the report.
    """
    run_id = runs.new_id()
    held = ["--steps", "30", "--hold", str(tmp_path / "go"), *options]
    asked = Asked(str(SCRIPTS / "small_ddp.py"), held, nproc="2")
    started = Started(start.start_run(prepare_run(asked, run_id)).id)
    live = source.LiveSource(started.run)
    wait_for(lambda: (shot := live.snapshot()) and shot.step >= 5, 90)
    live.close()
    run = started.run
    kill(run.supervisor, run.hub)
    (tmp_path / "go").touch()
    wait_for(lambda: not processes.with_run_id(run.id), 90, every_s=0.2)
    if state == "done":
        for _ in range(2):  # reading takes nothing away
            made = report.build(run)
            assert (made["steps"]["records_lost"], [rank["steps"] for rank in made["ranks"]]) == (0, [30, 30])
            assert len(list(started.folder.glob("tail/*-*[0-9]"))) == 2
    told = cli("report", "--format", "text")
    ended = started.run
    assert (ended.state(), ended.exit_code) == (state, code), told
    assert ended.ended_at >= run.created_at
    assert (cli("status").returncode == 2) == (code != 0)
