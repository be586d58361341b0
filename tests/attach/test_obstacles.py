"""What cannot be attached to is said in one line with the way out, before anything is touched."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ddpmon import proc
from ddpmon.attach import obstacles, process_entry
from ddpmon.attach.jobs import RankProcess
from ddpmon.runs import Process

PTRACE_SEIZE, PTRACE_DETACH = 0x4206, 17


@pytest.fixture
def rank():
    """A Python process, as a rank that trains would be found."""
    started: list[subprocess.Popen[bytes]] = []

    def call(*words: str, has_group: bool = True, **variables: str) -> RankProcess:
        words = words or (sys.executable, "-c", "import time; print(1, flush=True); time.sleep(600)")
        process = subprocess.Popen(words, stdout=subprocess.PIPE, env={**os.environ, **variables})
        started.append(process)
        process.stdout.readline()
        return RankProcess(Process.of(process.pid), os.getpid(), words, None, False, has_group)

    yield call
    for process in started:
        process.kill()
        with process:  # closes its output
            pass


def test_nothing_is_in_the_way_of_a_python_of_the_same_version(rank):
    if sys.version_info < (3, 14) and shutil.which("gdb") is None:
        pytest.skip("gdb is not here")
    assert obstacles.to_enter(rank()) == ""


def test_a_rank_that_only_imports_yet(rank):
    assert "try again when it trains" in obstacles.to_enter(rank(has_group=False))


def test_another_debugger(rank):
    traced = rank()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_SEIZE, traced.process.pid, 0, 0):
        pytest.skip("this process may trace no other")
    try:
        assert f"process {os.getpid()} already debugs this process" in obstacles.to_enter(traced)
    finally:
        libc.ptrace(PTRACE_DETACH, traced.process.pid, 0, 0)


def test_no_debugger(rank, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    if sys.version_info < (3, 14):
        assert "apt install gdb" in obstacles.to_enter(rank())


@pytest.mark.skipif(sys.version_info < process_entry.REMOTE, reason="Python below 3.14 has no such variable")
def test_a_python_whose_environment_forbids_it(rank):
    assert "start the job without this variable" in obstacles.to_enter(rank(PYTHON_DISABLE_REMOTE_DEBUG="1"))
    assert obstacles.to_enter(rank(PYTHON_DISABLE_REMOTE_DEBUG="")) == ""


def test_no_permission(rank, monkeypatch, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    pid = rank().process.pid
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setuid(65534)
        os.write(writing, obstacles.tracing_denied(pid).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as told:
        assert told.read() == (
            "no permission to trace the process; if this is a container, start it with --cap-add=SYS_PTRACE"
        )
    os.wait()
    for scope, way_out in (("1", "sudo sysctl"), ("2", "only root may"), ("3", "restart of the machine")):
        (tmp_path / "scope").write_text(f"{scope}\n")
        monkeypatch.setattr(proc, "PTRACE_SCOPE", tmp_path / "scope")
        assert way_out in obstacles.way_out()


def test_another_version_of_python(rank):
    code = "import time, _ctypes, _datetime, _json; print(1, flush=True); time.sleep(600)"
    for python in sorted(Path(sys.base_prefix).parent.glob("3.1?.*/bin/python3")):
        if python.resolve().name != f"python{sys.version_info.major}.{sys.version_info.minor}":
            why = obstacles.to_enter(rank(str(python), "-c", code))
            assert f"{python} -m pip install ddpmon" in why
            return
    pytest.skip("no other Python is beside this one")


def test_a_process_that_ended(rank):
    ended = rank()
    os.kill(ended.process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, ended.process.pid, os.WEXITED | os.WNOWAIT)
    assert obstacles.to_enter(ended).endswith("the process has just ended")


def test_no_job(cli):
    for pid, why in ((2**22 + 1, "does not exist"), (os.getpid(), "a rank with a process group")):
        told = cli("attach", "--pid", str(pid))
        assert (told.returncode, why in told.stderr) == (2, True)
        assert len(told.stderr.splitlines()) == 1


def test_nothing_to_detach_from(cli):
    assert "not attached to any job" in cli("detach").stderr
