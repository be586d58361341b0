"""ddpmon run and exec without a terminal: lines, signals, exit codes; and ddpmon stop from elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace

import pytest

from ddpmon import runs
from ddpmon.cli import watching
from ddpmon.errors import RecordingError
from ddpmon.launch import stop
from tests.conftest import Started, ddpmon_program, wait_for


@pytest.fixture
def headless(home, tmp_path):
    """Start a Python script under `ddpmon exec`, which prints lines, and wait for its file `ready`."""
    begun = []

    def call(source: str, *options: str) -> tuple[subprocess.Popen[str], Started]:
        script = tmp_path / "train.py"
        prelude = f"import os, signal, sys, time\nfrom pathlib import Path\nhere = Path({str(tmp_path)!r})\n"
        script.write_text(prelude + textwrap.dedent(source))
        command = [ddpmon_program(), "exec", *options, "--", sys.executable, str(script)]
        watcher = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        begun.append(watcher)
        wait_for((tmp_path / "ready").exists)
        return watcher, Started(runs.find(None).id)

    yield call
    for watcher in begun:
        watcher.kill()
        watcher.communicate()


SLEEP = "(here / 'ready').touch(); time.sleep(600)"
CLEAN_UP = """
try:
    (here / "ready").touch()
    time.sleep(600)
finally:
    (here / "cleaned").touch()
"""
STUBBORN = "signal.signal(signal.SIGINT, signal.SIG_IGN); " + SLEEP


def test_a_run_tells_what_is_run_how_it_ends_and_where_it_is_kept(cli):
    told = cli("exec", "--name", "mine", "--", "sh", "-c", "exit 5")
    assert told.returncode == 5
    assert told.stderr == ""
    lines = told.stdout.splitlines()
    run = runs.find("mine")
    assert lines[0] == f"mine ({run.id}): sh -c exit 5"
    assert any("failed, exit code 5" in line for line in lines)
    assert lines[-1] == f"recording: {runs.run_dir(run.id)}"
    report = json.loads(cli("report", "mine", "--format", "json").stdout)
    assert (report["schema"], report["run"]["state"], report["run"]["exit_code"]) == (1, "failed", 5)
    assert "failed, exit code 5" in cli("report").stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_run_and_is_told_by_the_exit_code(headless, tmp_path, number, code):
    watcher, started = headless(CLEAN_UP)
    watcher.send_signal(number)
    told, _ = watcher.communicate(timeout=30)
    assert watcher.returncode == code
    assert (tmp_path / "cleaned").exists()
    assert started.run.state() == "stopped"
    assert "Traceback" not in told


def test_a_second_ctrl_c_does_not_wait_for_the_grace(headless):
    watcher, started = headless(STUBBORN, "--grace", "600")
    watcher.send_signal(signal.SIGINT)
    wait_for(lambda: started.run.stopping)
    watcher.send_signal(signal.SIGINT)
    watcher.communicate(timeout=30)
    assert watcher.returncode == 130
    assert started.run.exit_code == 128 + signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_what_a_scheduler_sends_is_for_the_ranks_only_of_who_started_them(number):
    before = signal.getsignal(number)
    with watching.Signals(owns_run=False) as signals:
        assert signal.getsignal(number) == before
    with watching.Signals(owns_run=True) as signals:
        os.kill(os.getpid(), number)
        assert signals.for_ranks == [number]
    assert signal.getsignal(number) == before


def test_a_ctrl_c_that_comes_while_the_first_is_passed_on_counts(launch, monkeypatch):
    started = launch(sys.executable, "-c", "import time; time.sleep(600)")
    passed_on = []

    def request(run, now):
        passed_on.append(now)
        if now:
            stop.request_stop(run, now=True)
        else:
            signals.stops += 1

    signals = watching.Signals(owns_run=True)
    signals.stops = 1
    monkeypatch.setattr(watching, "_ask", request)
    assert watching.follow(started.run, 1.0, signals) == 130
    assert passed_on == [False, True]


def test_a_supervisor_that_is_killed_while_somebody_attaches_gets_a_successor(launch, monkeypatch):
    """It died before its hub had recorded anything: the run is lost and has no recording, but it goes on."""
    started = launch(sys.executable, "-c", "import time; time.sleep(600)")
    wait_for(lambda: started.run.agent)
    os.kill(started.run.supervisor.pid, signal.SIGKILL)
    wait_for(started.run.lost)
    adopted, attach, calls = watching.adopted, watching.attach, []
    monkeypatch.setattr(watching, "adopted", lambda run: adopted(run) if calls else run)

    def nothing_recorded_yet(run):
        calls.append(run)
        if len(calls) == 1:
            raise RecordingError("no recording yet")
        return attach(run)

    monkeypatch.setattr(watching, "attach", nothing_recorded_yet)
    run, source = watching._attached(started.run)
    source.close()
    assert run.supervisor.alive()
    assert run.supervisor == started.run.supervisor


def test_a_run_that_fails_at_once_is_shown_when_its_hub_has_written_that_down(launch, monkeypatch):
    """A script with an error in its first line ends before there is more of its recording than an empty file."""
    started = launch(sys.executable, "-c", "raise SystemExit(3)")
    wait_for(lambda: started.run.ended)
    attach, calls = watching.attach, []

    def still_empty(run):
        calls.append(run.supervised())
        if len(calls) == 1:
            raise RecordingError("telemetry.db is empty, because ddpmon recorded nothing")
        return attach(run)

    monkeypatch.setattr(watching, "attach", still_empty)
    run, source = watching._attached(started.run)
    source.close()
    assert (run.state(), run.exit_code) == ("failed", 3)
    assert calls[1:] == [False], "looked again once nobody writes any more"


def test_a_hang_up_and_a_kill_leave_the_run_running(headless):
    watcher, started = headless(SLEEP)
    watcher.send_signal(signal.SIGHUP)
    watcher.communicate(timeout=30)
    assert watcher.returncode == 129
    attached = subprocess.Popen([ddpmon_program(), "attach", started.id], stdout=subprocess.PIPE, text=True)
    assert "waiting" in attached.stdout.readline()
    attached.kill()
    attached.communicate()
    assert started.run.state() == "running"
    assert started.run.agent.alive()


def test_ctrl_c_in_attach_only_leaves_and_a_stop_from_elsewhere_is_learnt_by_every_viewer(headless, cli):
    watcher, started = headless(CLEAN_UP)
    attached = subprocess.Popen([ddpmon_program(), "attach"], stdout=subprocess.PIPE, text=True)
    attached.stdout.readline()
    attached.send_signal(signal.SIGINT)
    attached.communicate(timeout=30)
    assert attached.returncode == 130
    assert started.run.state() == "running"
    stopped = cli("stop")
    assert stopped.returncode == 0
    assert f"({started.id}) is stopped; all its processes have ended" in stopped.stdout
    watcher.communicate(timeout=30)
    assert watcher.returncode == 130
    again = cli("stop", started.id)
    assert (again.returncode, again.stdout) == (0, f"train ({started.id}) has ended already\n")


def test_stop_ends_a_run_whose_supervisor_was_killed_and_who_waits_for_it_learns_of_it(headless, cli):
    watcher, started = headless(CLEAN_UP)
    supervisor, agent = started.run.supervisor, started.run.agent
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not supervisor.alive())
    assert agent.alive()
    assert cli("stop").returncode == 0
    assert not agent.alive()
    assert started.run.state() == "stopped"
    watcher.communicate(timeout=60)
    assert watcher.returncode == 130


@pytest.mark.e2e
def test_the_options_before_the_script_are_ours_and_a_rank_that_raises_is_named_with_its_last_words(cli, tmp_path):
    """All words after the script are the script's."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text(
        "import os, sys, time\n"
        "print(os.environ['WORLD_SIZE'], __name__, sys.argv[1:], flush=True)\n"
        "if os.environ['RANK'] == '1':\n"
        "    raise ValueError('bad \\x1b[31mluck')\n"
        "time.sleep(600)\n"
    )
    told = cli("run", "--nproc", "2", "-m", "pkg.train", "--nproc", "9", "--", "--help", cwd=tmp_path)
    (out,) = runs.run_dir(runs.find("train").id).glob("logs/ranks/*/attempt_0/1/stdout.log")
    assert out.read_text() == "2 __main__ ['--nproc', '9', '--', '--help']\n"
    assert told.returncode == 1
    assert told.stderr == ""
    assert "\x1b" not in told.stdout
    assert "rank 1 failed" in told.stdout
    assert told.stdout.count("  ValueError: bad luck\n") == 1
    made = json.loads(cli("report", "--format", "json").stdout)
    assert made["verdict"].startswith("rank 1 failed first: ValueError: bad")
    assert "exit 1; 1 other then stopped" in made["verdict"]
    assert (made["run"]["state"], made["ranks"][1]["exit"]["code"]) == ("failed", 1)


def test_a_run_that_another_start_deletes_as_it_ends_still_counts_by_how_it_ended(
    launch, tmp_path, monkeypatch, capsys
):
    wait = "import sys, time; from pathlib import Path\nwhile not Path(sys.argv[1]).exists(): time.sleep(0.02)"
    started = launch(sys.executable, "-c", wait, str(tmp_path / "go"))
    attach, sources = watching.attach, []

    def attached(run):
        sources.append(attach(run))
        return sources[-1]

    def delete_at_the_end(seconds):
        time.sleep(seconds)
        if runs.run_dir(started.id).exists() and sources[-1].snapshot() is not None:
            (tmp_path / "go").touch()
            wait_for(lambda: started.run.ended and not started.run.supervised())
            shutil.rmtree(runs.run_dir(started.id))

    monkeypatch.setattr(watching, "attach", attached)
    monkeypatch.setattr(watching, "time", SimpleNamespace(sleep=delete_at_the_end, monotonic=time.monotonic))
    with watching.Signals(owns_run=True) as signals:
        assert watching.follow(started.run, 10.0, signals) == 0
    assert "done; somebody has deleted or moved the run's folder" in capsys.readouterr().out


def test_without_ddpmons_files_at_the_end_the_exit_code_is_still_the_runs(launch, monkeypatch, capsys):
    started = launch(sys.executable, "-c", "raise SystemExit(3)")
    wait_for(lambda: not started.run.supervised() and started.run.ended)
    monkeypatch.setitem(sys.modules, "ddpmon.export", None)
    assert watching._conclude(started.run, None, report=True) == 3
    assert "failed; there is no report, because somebody has moved or removed ddpmon: " in capsys.readouterr().err
