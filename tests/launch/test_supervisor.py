"""The supervisor with real processes: exit codes pass, stops are polite first, and nothing is ever left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from ddpmon import proc, runs
from ddpmon.errors import RunNotFoundError
from ddpmon.launch import stop, supervisor
from ddpmon.launch.run_file import RunFile
from tests.conftest import ddpmon_program, wait_for

READY = "(here / 'ready').write_text(str(os.getpid()))\n"
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
STUBBORN_CHILD = f"""
child = subprocess.Popen(
    [sys.executable, "-c", "import os, signal, time\\n{STUBBORN.strip()}\\nprint(1, flush=True); time.sleep(600)"],
    stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
(here / "child").write_text(str(child.pid))
"""


def ready(tmp_path: Path) -> int:
    return int(wait_for(lambda: (path := tmp_path / "ready").exists() and path.read_text()))


def alive(pid: int) -> bool:
    return runs.Process.of(pid) is not None


def test_the_exit_code_of_the_command_is_the_runs(python):
    ended = python("sys.exit(7)").until_gone()
    assert (ended.state(), ended.exit_code, ended.stopping, ended.error) == ("failed", 7, False, None)


def test_a_command_that_cannot_be_started_is_a_failed_run_that_says_why(launch, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o700)
    ended = launch(str(script)).until_gone()
    assert (ended.state(), ended.exit_code) == ("failed", 127)
    assert "No such file" in ended.error


@pytest.mark.usefixtures("fresh_programs")
def test_the_command_sees_the_probes_environment_an_empty_stdin_and_default_signals(python, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a background job of a shell
    try:
        started = python(
            """
            print(os.environ["PYTHONPATH"], os.environ["DDPMON_RUN_ID"], os.environ["DDPMON_SOCKET"], sep="\\n")
            print(sys.stdin.read() == "", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
            print(signal.getsignal(signal.SIGHUP) is signal.SIG_DFL, signal.pthread_sigmask(signal.SIG_BLOCK, ()))
            print(os.environ["DDPMON_RUN_DIR"])
            """
        )
    finally:
        signal.signal(signal.SIGINT, before)
    started.until_gone()
    path, run_id, socket, first, second, folder = started.log("launcher").splitlines()[:6]
    assert folder == str(started.folder)
    assert path.endswith("/ddpmon/inject:/somewhere")
    assert run_id == started.id
    assert socket == runs.ingest_address(started.id)
    assert (first, second) == ("True True", "True set()")


def test_stop_is_ctrl_c_for_a_script_without_a_handler(python, tmp_path):
    """finally-blocks run, in children of its process group too."""
    started = python(
        f"""
        pid = os.fork()
        (here / f"start-{{'child' if pid == 0 else 'parent'}}").touch()
        try:
            if pid:
                while not (here / "start-child").exists():
                    time.sleep(0.01)
                {READY}
            time.sleep(600)
        finally:
            (here / f"finally-{{'child' if pid == 0 else 'parent'}}").touch()
        """
    )
    ready(tmp_path)
    stop.request_stop(started.run)
    started.until_gone()
    assert (tmp_path / "finally-parent").exists()
    assert (tmp_path / "finally-child").exists()


def test_stop_now_does_not_wait_for_the_grace(python, tmp_path):
    started = python(STUBBORN + STUBBORN_CHILD + READY + "time.sleep(600)", grace_s=600.0)
    ready(tmp_path)
    child = int((tmp_path / "child").read_text())
    stop.request_stop(started.run, now=True)
    started.until_gone(15)
    assert not alive(child)
    assert runs.load(started.run.id).grace_left_s() == 0.0
    assert runs.load(started.run.id).grace_s == 600.0, "a run that is started again has its whole grace"


def test_a_second_stop_joins_the_first_and_tells_how_long_is_left(python, cli, tmp_path):
    """A second dashboard or another shell may ask: the checkpoint that is being written is whole."""
    started = python(
        f"""
        def save(*_):
            (here / "saving").touch()
            while not (here / "go").exists():
                time.sleep(0.05)
            (here / "checkpoint").write_text("whole")
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        {READY}
        time.sleep(600)
        """,
        grace_s=600.0,
    )
    ready(tmp_path)
    stop.request_stop(started.run)
    wait_for((tmp_path / "saving").exists)
    with subprocess.Popen([ddpmon_program(), "stop"], stdout=subprocess.PIPE, text=True) as second:
        line = second.stdout.readline()
        wait_for(lambda: re.search(r"requested the stop again; [56]\d\d s", started.log("supervisor")))
        (tmp_path / "go").touch()
        assert second.wait(30) == 0
    assert re.search(r"already stopping test .*; its ranks have [56]\d\d s left; press Ctrl-C to kill them", line)
    assert started.until_gone().state() == "stopped"
    assert (tmp_path / "checkpoint").read_text() == "whole"


def test_a_stop_has_a_stopped_supervisor_go_on_once_the_folder_of_the_run_is_back(python, tmp_path):
    started = python(READY + "time.sleep(600)")
    pid = ready(tmp_path)
    run, written = started.run, started.folder / "run.json"
    moved = written.rename(tmp_path / "moved.json")
    try:
        with pytest.raises(RunNotFoundError, match=f"if you moved its folder, move it to {started.folder}"):
            stop.request_stop(run)
    finally:
        moved.rename(written)
    os.kill(run.supervisor.pid, signal.SIGSTOP)
    wait_for(lambda: proc.is_stopped(run.supervisor.pid))
    stop.request_stop(run)
    assert started.until_gone().state() == "stopped"
    assert not alive(pid)


def test_a_stop_has_stopped_processes_of_the_run_go_on_to_save(python, tmp_path):
    started = python(
        f"""
        def save(*_):
            (here / "checkpoint").touch()
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        {READY}
        while True:  # not one long sleep: a signal just before it began would be answered after it
            time.sleep(0.05)
        """,
        grace_s=600.0,
    )
    pid = ready(tmp_path)
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: proc.is_stopped(pid))
    stop.request_stop(started.run)
    assert started.until_gone().state() == "stopped"
    assert (tmp_path / "checkpoint").exists()


def test_ranks_whose_launcher_takes_no_signal_are_signalled_themselves(python, tmp_path):
    started = python(
        f"""
        if "RANK" not in os.environ:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
            os.posix_spawn(
                sys.executable, [sys.executable, __file__], os.environ | {{"RANK": "0"}},
                setsigmask=(), setsid=True)
            while not (here / "checkpoint").exists():
                time.sleep(0.05)
            sys.exit(0)
        def save(*_):
            (here / "checkpoint").touch()
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        {READY}
        time.sleep(600)
        """,
        grace_s=600.0,
    )
    ready(tmp_path)
    stop.request_stop(started.run)
    assert started.until_gone().state() == "stopped"
    assert (tmp_path / "checkpoint").exists()
    assert "the launcher does not handle SIGTERM" in started.log("supervisor")


def test_ranks_that_an_asked_launcher_leaves_behind_while_it_forks_them_are_asked_at_once(python, tmp_path):
    """torchrun notes its ranks only once it has forked them all."""
    started = python(
        f"""
        if "RANK" not in os.environ:
            signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
            os.posix_spawn(sys.executable, [sys.executable, __file__], os.environ | {{"RANK": "0"}}, setsid=True)
            time.sleep(600)
        {READY}
        time.sleep(600)
        """,
        grace_s=600.0,
    )
    ready(tmp_path)
    stop.request_stop(started.run)
    assert started.until_gone().state() == "stopped"
    assert "sending SIGTERM to the ranks that the launcher did not end" in started.log("supervisor")


def test_what_a_run_leaves_behind_is_swept_away(python, tmp_path):
    """A daemon of the script, forked twice and in a session of its own, ends with the run."""
    started = python(
        """
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            (here / "daemon").write_text(str(os.getpid()))
            time.sleep(600)
        while not (here / "daemon").exists() or not (here / "daemon").read_text():
            time.sleep(0.01)
        """
    )
    ended = started.until_gone()
    assert not alive(int((tmp_path / "daemon").read_text()))
    assert (ended.state(), ended.exit_code) == ("done", 0)


@pytest.mark.usefixtures("fresh_programs")
def test_a_file_of_the_working_directory_does_not_stand_in_for_a_module_of_ours(launch, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("json", "argparse", "dataclasses", "zmq"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    started = launch("true")
    assert started.until_gone().state() == "done"
    assert "the wrong one" not in started.log("supervisor") + started.log("hub")
    assert (started.folder / "report.json").exists()


def test_an_error_of_its_own_does_not_end_a_supervisor_and_is_told_once(monkeypatch):
    told: list[str] = []
    monkeypatch.setattr(supervisor, "say", told.append)
    run = runs.Run("20260101-000001-0001", "test", ["true"], "true", [], "/", "here", "", 0.0, 0)
    watching = supervisor.Supervisor(RunFile(run, told.append))
    looks = iter([OSError("one"), OSError("one"), True])

    def look() -> bool:
        if isinstance(found := next(looks), OSError):
            raise found
        return found

    monkeypatch.setattr(watching, "_is_over", look)
    watching._until_over()
    assert next(looks, None) is None
    assert [text.splitlines()[-1] for text in told] == ["OSError: one"]
