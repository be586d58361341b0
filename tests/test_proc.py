"""Test the one place that reads /proc, and that it reports processes as the kernel means it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpmon import proc
from tests.conftest import wait_for


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    """A process that catches SIGUSR1, blocks SIGUSR2, and waits; its name would confuse who splits at spaces."""
    program = (
        "import ctypes, signal\n"
        "ctypes.CDLL(None).prctl(15, b') Z 1 2 3', 0, 0, 0)\n"
        "signal.signal(signal.SIGUSR1, lambda *_: None)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})\n"
        "print('ready', flush=True)\n"
        "while True: signal.pause()\n"
    )
    command = [sys.executable, "-c", program, "an argument"]
    environment = {**os.environ, "RANK": "3"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_a_live_process(child: subprocess.Popen[str]) -> None:
    its = proc.stat(child.pid)
    assert its is not None
    assert its.alive
    assert (its.parent, its.group, its.session) == (os.getpid(), os.getpgid(child.pid), os.getsid(child.pid))
    own = proc.stat(os.getpid())
    assert own is not None
    assert its.start_ticks >= own.start_ticks > 0
    assert own.cpu_ticks > 0
    assert proc.stats()[child.pid].start_ticks == its.start_ticks
    assert child.pid in proc.children()[os.getpid()]
    assert proc.parent(child.pid) == os.getpid()
    assert proc.innermost_pid(child.pid) == int(proc.status(child.pid, "NSpid").split()[-1])
    assert proc.owner(child.pid) == os.getuid()
    assert proc.exists(child.pid)
    assert proc.arguments(child.pid)[-1] == "an argument"
    assert proc.environment(child.pid)["RANK"] == "3"
    assert b"python" in proc.mapped(child.pid)
    assert proc.moved_bytes(child.pid) > 0


def test_its_signals(child: subprocess.Popen[str]) -> None:
    assert proc.catches(child.pid, signal.SIGUSR1)
    assert not proc.catches(child.pid, signal.SIGTERM)
    assert not proc.is_pending(child.pid, signal.SIGUSR2)
    child.send_signal(signal.SIGUSR2)
    assert proc.is_pending(child.pid, signal.SIGUSR2)
    assert not proc.is_stopped(child.pid)
    child.send_signal(signal.SIGSTOP)
    wait_for(lambda: proc.is_stopped(child.pid))
    its = proc.stat(child.pid)
    assert its is not None
    assert (its.state, its.alive) == ("T", True)


def test_its_open_files(child: subprocess.Popen[str], tmp_path: Path) -> None:
    assert child.stdout
    pipe = os.readlink(f"/dev/fd/{child.stdout.fileno()}")
    assert proc.descriptor_link(1, child.pid) == pipe
    assert (1, pipe) in proc.descriptors(child.pid)
    assert proc.descriptors_readable(child.pid)
    path = tmp_path / "file"
    path.write_text("what is in it")
    with path.open() as file:
        assert Path(proc.descriptor_path(file.fileno())).read_text() == "what is in it"
        assert proc.descriptor_link(file.fileno()) == str(path)


def test_a_zombie_tells_how_it_ended(child: subprocess.Popen[str]) -> None:
    child.send_signal(signal.SIGKILL)
    wait_for(lambda: (its := proc.stat(child.pid)) is not None and not its.alive)
    its = proc.stat(child.pid)
    assert its is not None
    assert (its.state, os.waitstatus_to_exitcode(its.wait_status)) == ("Z", -signal.SIGKILL)


def test_one_that_is_gone() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    gone = ended.pid
    assert proc.stat(gone) is None
    assert not proc.exists(gone)
    assert (proc.status(gone, "State"), proc.parent(gone), proc.innermost_pid(gone)) == ("", 0, 0)
    assert (proc.owner(gone), proc.moved_bytes(gone), proc.kernel_function(gone)) == (None, 0, "")
    assert list(proc.descriptors(gone)) == []
    assert not proc.catches(gone, signal.SIGTERM)
    assert not proc.is_pending(gone, signal.SIGTERM)
    assert not proc.is_stopped(gone)
    assert (proc.arguments(gone), proc.environment(gone), proc.mapped(gone)) == ([], {}, b"")
    assert (proc.executable(gone), proc.descriptor_link(1, gone), proc.core_wait_ns(gone)) == ("", "", None)


def test_a_process_lives_and_is_signalled_also_where_no_file_is_free_to_read_of_it() -> None:
    program = (
        "import resource, signal, subprocess\n"
        "from ddpmon.launch.processes import send_signal\n"
        "from ddpmon import proc\n"
        "from ddpmon.runs import Process\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "process, boot = Process.of(child.pid), proc.boot_id()\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))\n"
        "assert process.alive() and proc.boot_id() == boot != ''\n"
        "send_signal(process, signal.SIGTERM)\n"
        "assert child.wait(30) == -signal.SIGTERM\n"
        "assert not process.alive()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_this_machine_and_process() -> None:
    assert len(proc.boot_id()) == 36
    assert proc.namespace("pid").startswith("pid:[")
