"""Test that output is logged whatever becomes of the drain, the supervisor and the disk."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from ddpmon import runs
from ddpmon.export.last_words import last_words
from ddpmon.launch import stop
from ddpmon.runs import rotated_logs
from tests.conftest import wait_for

MISSING = re.compile(r"\[ddpmon\] ([\d,]+) bytes (?:after this|of output) are missing[^\n]*\n")


@pytest.fixture
def said(tmp_path):
    """Wait for what the script says."""
    return lambda what: wait_for((tmp_path / what).exists)


def drain_of(run_id: str) -> int:
    """The pid of the drain that is at work."""
    lock = runs.socket_dir(run_id) / "drain.lock"
    return int(wait_for(lambda: lock.exists() and lock.read_text()))


def another_drain(run_id: str, before: int) -> int:
    return wait_for(lambda: (pid := drain_of(run_id)) != before and runs.Process.of(pid) and pid)


def printed(started) -> str:
    path = started.folder / "logs" / "launcher.log"
    return path.read_text() if path.exists() else ""


def test_much_output_takes_what_the_run_may_and_the_rest_is_counted(python, monkeypatch):
    monkeypatch.setenv("DDPMON_LOGS", "8M")
    started = python(
        """
        line = "x" * 999 + "\\n"
        for number in range(20):
            sys.stdout.write(line * 1_000)
        print("the end")
        """
    )
    wait_for(lambda: started.run.ended)  # whoever learns of that may read the logs at once
    path = started.folder / "logs" / "launcher.log"
    files = [rotated_logs.first(path), rotated_logs.older(path), path]
    assert sum(file.stat().st_size for file in files) <= (8 << 20) + (70 << 10)
    text = "".join(file.read_text() for file in files if file.exists())
    missing = sum(int(found[1].replace(",", "")) for found in MISSING.finditer(text))
    whole = 20_000_000 + len("the end\n")
    assert len(MISSING.sub("", text)) + missing - whole in {0, 1}  # a newline before the sentence
    assert text.endswith("the end\n")
    assert len(text) > 2 << 20
    assert started.until_gone().exit_code == 0


def test_a_killed_drain_is_replaced_and_nothing_is_lost_or_told_twice(python, tmp_path):
    started = python(
        """
        print("before", flush=True)
        until("killed")
        for number in range(1_000):
            print("meanwhile", number, flush=True)
        until("replaced")
        print("after")
        """
    )
    wait_for(lambda: printed(started) == "before\n")
    drain = drain_of(started.id)
    os.kill(drain, signal.SIGKILL)
    (tmp_path / "killed").touch()
    another_drain(started.id, drain)
    (tmp_path / "replaced").touch()
    assert started.until_gone().exit_code == 0
    assert printed(started) == "before\n" + "".join(f"meanwhile {n}\n" for n in range(1_000)) + "after\n"


def test_a_stopped_drain_is_woken(python, tmp_path):
    started = python(
        """
        print("before", flush=True)
        until("stopped")
        print("after", flush=True)
        until("seen")
        """
    )
    wait_for(lambda: printed(started) == "before\n")
    os.kill(drain_of(started.id), signal.SIGSTOP)
    (tmp_path / "stopped").touch()
    wait_for(lambda: printed(started) == "before\nafter\n")
    (tmp_path / "seen").touch()
    assert started.until_gone().exit_code == 0


def test_without_drain_and_supervisor_printing_neither_fails_nor_blocks_until_a_pipe_is_full(python, said, tmp_path):
    started = python(
        """
        print("before", flush=True)
        until("gone")
        os.write(1, b"x" * 199_999 + b"\\n")
        subprocess.run(["sh", "-c", "echo a child"], check=True)
        done("printed")
        time.sleep(600)
        """
    )
    wait_for(lambda: printed(started) == "before\n")
    supervisor = started.run.supervisor
    for pid in (supervisor.pid, drain_of(started.id)):
        os.kill(pid, signal.SIGKILL)
    (tmp_path / "gone").touch()
    said("printed")
    wait_for(lambda: not supervisor.alive())  # else it is still the one that is asked to stop the run
    stop.request_stop(started.run)
    started.until_gone(60)
    assert "x\na child\n" in printed(started)


def test_without_its_supervisor_a_drain_goes_on_as_long_as_somebody_prints(python, tmp_path):
    started = python(
        """
        print("before", flush=True)
        until("killed")
        print("after", flush=True)
        until("seen")
        print("the end")
        """
    )
    wait_for(lambda: printed(started) == "before\n")
    drain = drain_of(started.id)
    os.kill(started.run.supervisor.pid, signal.SIGKILL)
    (tmp_path / "killed").touch()
    wait_for(lambda: printed(started) == "before\nafter\n")
    (tmp_path / "seen").touch()
    wait_for(lambda: runs.Process.of(drain) is None)
    assert printed(started) == "before\nafter\nthe end\n"


def test_the_last_line_before_a_crash_is_in_the_log(python):
    started = python("print('last words', file=sys.stderr)\nos.kill(os.getpid(), signal.SIGKILL)")
    ended = wait_for(lambda: (run := started.run).ended and run)
    assert ended.exit_code == 128 + signal.SIGKILL
    assert last_words(ended).lines == ["last words"]
    started.until_gone()


def test_children_print_however_they_are_started(python):
    """And a shell that opens /dev/stderr for writing, which would empty a file, takes nothing away."""
    started = python(
        """
        import contextlib, io, multiprocessing
        print("parent", flush=True)
        with contextlib.redirect_stdout(io.StringIO()) as kept:
            print("not to be seen")
        if os.fork() == 0:
            print("forked", flush=True)
            os._exit(0)
        os.wait()
        worker = multiprocessing.get_context("fork").Process(target=print, args=("of multiprocessing",))
        worker.start(); worker.join()
        subprocess.run("echo of a shell; echo appended >> /dev/stdout; echo kept aside > aside", shell=True, cwd=here)
        subprocess.run("echo of another shell > /dev/stderr", shell=True)
        print("after")
        assert (here / "aside").read_text() == "kept aside\\n" and kept.getvalue() == "not to be seen\\n"
        """
    )
    assert started.until_gone().exit_code == 0
    shells = ["of a shell", "appended", "of another shell"]
    assert printed(started).splitlines() == ["parent", "forked", "of multiprocessing", *shells, "after"]


def test_what_torchrun_redirects_from_a_rank_without_the_probe_is_taken_too(python, tmp_path):
    """With `python -E` the rank prints into torchrun's own file, without appending."""
    started = python(
        """
        print("before", flush=True)
        until("drained")
        folder = Path(os.environ["DDPMON_SOCKET"].removeprefix("ipc://")).parent / "ranks" / "x_y" / "attempt_0" / "1"
        folder.mkdir(parents=True)
        with (folder / "stdout.log").open("w") as file:
            for number in range(20_000):
                print("line", number, file=file, flush=True)
            done("printed")
            until("seen")
            print("the end", file=file)
        """
    )
    wait_for(lambda: printed(started) == "before\n")
    (tmp_path / "drained").touch()
    path = started.folder / "logs" / "ranks" / "x_y" / "attempt_0" / "1" / "stdout.log"
    before = "".join(f"line {number}\n" for number in range(20_000))
    wait_for(lambda: path.exists() and path.read_text() == before)
    spool = runs.socket_dir(started.id) / "ranks" / "x_y" / "attempt_0" / "1" / "stdout.log"
    wait_for(lambda: spool.stat().st_blocks * 512 <= 8_192)
    (tmp_path / "seen").touch()
    assert started.until_gone().exit_code == 0
    assert path.read_text() == before + "the end\n"


@pytest.mark.parametrize("gone", ["logs", "sockets"])
def test_a_folder_that_is_deleted_harms_no_printing(python, tmp_path, gone):
    started = python(
        """
        print("before", flush=True)
        until("deleted")
        for _ in range(20):
            os.write(1, b"x" * 999_999 + b"\\n")
        subprocess.run(["sh", "-c", "echo a child"], check=True)
        """
    )
    wait_for(lambda: printed(started) == "before\n")
    shutil.rmtree(started.folder / "logs" if gone == "logs" else runs.socket_dir(started.id))
    (tmp_path / "deleted").touch()
    assert started.until_gone().exit_code == 0
    if gone == "sockets":
        assert printed(started).endswith("a child\n")


def test_one_whose_supervisor_was_killed_before_it_began_ends(python):
    run = python("pass").until_gone()
    with subprocess.Popen(["true"]) as supervisor:
        pass
    command = [sys.executable, "-P", "-m", "ddpmon.launch.drain", run.id, str(supervisor.pid)]
    with subprocess.Popen(command) as drain:
        try:
            assert drain.wait(30) == 0
        finally:
            drain.kill()
