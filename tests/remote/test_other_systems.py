"""A machine without Linux can be the viewer: no /proc, and no name in Python's modules that macOS lacks."""

from __future__ import annotations

import os
import subprocess

import pytest

from ddpmon.cli.commands.replaying import unpack
from tests.conftest import ddpmon_program
from tests.deadlines import busy_factor
from tests.namespaces import unshared
from tests.tui.terminal import Terminal

LINUX_ALONE = {
    "fcntl": ("F_ADD_SEALS", "F_GETPIPE_SZ", "F_SETPIPE_SZ"),
    "os": (
        *("O_PATH", "O_TMPFILE", "copy_file_range", "eventfd", "getrandom", "memfd_create", "pidfd_open"),
        *("posix_fadvise", "sched_getaffinity", "sched_setaffinity", "setns", "splice", "unshare", "waitid"),
    ),
    "select": ("epoll",),
    "signal": ("SIGRTMAX", "SIGRTMIN", "pidfd_send_signal", "sigtimedwait", "sigwaitinfo"),
    "socket": ("AF_NETLINK", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_PEERCRED"),
    "time": ("CLOCK_BOOTTIME",),
}
"""What typeshed says of Python on Linux and not of it on macOS."""
CUSTOMIZE = f"""
import importlib
import sys

for module, names in {LINUX_ALONE!r}.items():
    for name in names:
        vars(importlib.import_module(module)).pop(name, None)


def refuse(event, arguments):
    if event == "ctypes.dlopen" and arguments[0] and ".so" in str(arguments[0]):
        raise OSError(f"no library {{arguments[0]}} here")


sys.addaudithook(refuse)
"""


@pytest.fixture
def no_linux(tmp_path, monkeypatch):
    """Return what to put before a command line: it sees no /proc, and its Python no name of Linux alone."""
    (tmp_path / "customized").mkdir()
    (tmp_path / "customized" / "sitecustomize.py").write_text(CUSTOMIZE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "customized"))
    hide = 'mount -t tmpfs none /proc && exec "$@"'
    return unshared("mount", *([] if os.getuid() == 0 else ["-Ur"]), "-m", "sh", "-c", hide, "sh")


@pytest.fixture
def here(no_linux):
    """Run a command line to its end, away from any terminal; return what it printed."""

    def call(*words, code=0, **environment):
        done = subprocess.run(
            [*no_linux, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            env={**os.environ, **environment}, timeout=60 * busy_factor(),
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (code, ""), (words, done.stderr)
        return done.stdout

    return call


def test_there_is_indeed_nothing_of_linux(here):
    code = "import os, select; print(os.listdir('/proc'), hasattr(os, 'pidfd_open'), hasattr(select, 'epoll'))"
    assert here("python3", "-c", code) == "[] False False\n"


def test_a_recording_is_listed_read_compared_exported_and_played(home, here, no_linux):
    run = unpack()
    assert run.name in here(ddpmon_program(), "ls")
    assert "was slow from step 450 to 796" in here(ddpmon_program(), "report")
    assert here(ddpmon_program(), "report", "--format", "html").startswith("<!doctype html>")
    assert "no significant difference" in here(ddpmon_program(), "diff", run.name, run.name)
    assert here(ddpmon_program(), "export", "--format", "csv", "--last", "3").startswith("attempt,")
    here(ddpmon_program(), "status", code=1)
    with Terminal("replay", program=(*no_linux, ddpmon_program()), columns=120, rows=30) as terminal:
        for key, shown in ((b"1", "step "), (b"2", "own ms"), (b"7", "rank"), (b"8", "run"), (b"9", "finding")):
            terminal.press(key)
            terminal.wait_for(shown)
        terminal.press(b"q")
        assert terminal.wait_end() == 0


def test_a_run_on_another_machine_is_watched_over_ssh(far, training, here, no_linux):
    assert "mnist" in here(ddpmon_program(), "ls", "there:", **far.near)
    program = (*no_linux, ddpmon_program())
    with Terminal("attach", "there:mnist", program=program, columns=120, rows=30, environment=far.near) as terminal:
        terminal.wait_until(lambda shown: "mnist on there" in shown and "step 30" in shown, "the run")
        terminal.press(b"2")
        terminal.wait_for("own ms")
        terminal.press(b"q")
        assert terminal.wait_end() == 0
