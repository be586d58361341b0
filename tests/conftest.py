"""Shared parts of tests: a home of their own for runs, the command line, waiting with a deadline."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ddpmon import runs
from ddpmon.errors import DdpmonError
from ddpmon.launch import start, stop
from tests import forked
from tests.deadlines import Deadline, busy_factor
from tests.disks import module_disk, small_disk
from tests.namespaces import no_names, other_namespace

__all__ = ["module_disk", "no_names", "other_namespace", "small_disk"]  # fixtures

# Hundreds of processes would compile ddpmon anew, and torch where pip was told to leave that to who imports it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
gc.disable()  # until tests are collected: what is imported and collected stays

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a script; children would ignore it too
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.compiled", "tests.order", "tests.quick"]


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Send each test's result to the controlling process at once: TCP held the second small packet back for 40 ms."""
    connection = getattr(getattr(config, "failures_db", None), "sock", None)
    if connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Collect garbage seldom, and only among objects that tests make: it was a tenth of their time."""
    gc.freeze()
    gc.set_threshold(300_000, 20, 20)
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _nothing_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the runs of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDPMON_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.delenv("DDPMON_SOCKET", raising=False)
        patch.delenv("DDPMON_RUN_ID", raising=False)
        patch.setattr("ddpmon.store.store.SURVIVED", ())  # a fault in judging is to fail a test
        yield


def short_folder() -> Path:
    """A new folder with a short path, as a socket's path holds 107 bytes; its name says whose tests made it."""
    return Path(tempfile.mkdtemp(prefix=f"dm-{os.getpid()}-", dir="/tmp"))


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home for runs of this test's own; afterwards nothing that was started with it may still live."""
    folder = short_folder()
    monkeypatch.setenv("DDPMON_HOME", str(folder / "home"))
    monkeypatch.setenv("DDPMON_RUNTIME_DIR", str(folder / "s"))
    (folder / "s").mkdir(mode=0o700)
    monkeypatch.setattr(start, "subprocess", forked.Subprocess)
    yield folder
    for run in runs.all_runs():
        with contextlib.suppress(DdpmonError):  # as if started elsewhere
            stop.request_stop(run, now=True)
    deadline = Deadline(15)
    while (left := _started_with(folder / "home")) and not deadline.passed:
        time.sleep(0.05)
    alive = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in left]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
    assert not alive, f"still alive after the test: {alive}"


def _started_with(home: Path) -> list[int]:
    """The processes with this home in their environment, or, as a forked supervisor, with a log of it as stderr."""
    mark = f"DDPMON_HOME={home}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                given = (entry / "environ").read_bytes().split(b"\0")
                if mark in given or os.readlink(entry / "fd" / "2").startswith(f"{home}/"):
                    found.append(int(entry.name))
    return found


@pytest.fixture
def fresh_programs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start supervisors and hubs as people do, each by an interpreter of its own."""
    monkeypatch.setattr(start, "subprocess", subprocess)


def wait_for(what: Callable[[], Any], timeout_s: float = 60.0, every_s: float = 0.02) -> Any:
    """Return what `what` returns once that is true of it; fails the test when the time is over.

    every_s: how long to wait before asking again: longer where asking costs more than waiting.
    """
    deadline = Deadline(timeout_s)
    while not (found := what()):
        assert not deadline.passed, f"not within {timeout_s:g} s: {what}"
        time.sleep(every_s)
    return found


def ddpmon_program() -> str:
    """The installed program, as people call it."""
    return str(Path(sysconfig.get_path("scripts")) / "ddpmon")


Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli(home: Path) -> Cli:
    """Run a command line of ddpmon to its end in this process, away from any terminal."""
    from tests.in_process import called  # not at the top: it imports this file

    return called


@dataclass
class Started:
    """A run that a test started, with what tests look at."""

    id: str

    @property
    def run(self) -> runs.Run:
        return runs.load(self.id)

    @property
    def folder(self) -> Path:
        return runs.run_dir(self.id)

    def log(self, name: str) -> str:
        return (self.folder / "logs" / f"{name}.log").read_text()

    def until_gone(self, timeout_s: float = 30.0) -> runs.Run:
        ended = stop.wait_until_gone(self.run, timeout_s * busy_factor())
        assert ended is not None, f"still there after {timeout_s:g} s: {self.log('supervisor')}"
        return ended


@pytest.fixture
def launch(home: Path) -> Callable[..., Started]:
    """Start a command under a supervisor, as `ddpmon exec` does."""

    def call(*command: str, grace_s: float = 5.0) -> Started:
        wanted = start.new_run(
            runs.new_id(), name="test", argv=list(command), script=command[0], script_args=list(command[1:]),
            cwd=os.getcwd(), world_size=0, grace_s=grace_s,
        )  # fmt: skip
        return Started(start.start_run(wanted).id)

    return call
