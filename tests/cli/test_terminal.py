"""ddpmon run and attach in a real terminal: how the dashboard is left, and what that does to the run."""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace

import pytest

from ddpmon import runs
from ddpmon.cli import watching
from tests.conftest import Started
from tests.tui.terminal import Terminal


@pytest.fixture
def terminal(home):
    """Open a terminal with a command line of ddpmon in it."""
    with contextlib.ExitStack() as opened:
        yield lambda *arguments, **size: opened.enter_context(Terminal("ddpmon", *arguments, **size))


@pytest.fixture
def watched(terminal, tmp_path):
    """A command under `ddpmon exec` with its dashboard, which has been painted."""

    def call(source: str = "import time; time.sleep(600)", **size) -> tuple[Terminal, Started]:
        script = tmp_path / "train.py"
        script.write_text(source)
        opened = terminal("exec", "--", sys.executable, str(script), **size)
        opened.wait_for("WAITING")
        return opened, Started(runs.find(None).id)

    return call


def still_runs(started: Started) -> bool:
    return started.run.state() == "running" and started.run.agent is not None and started.run.agent.alive()


def test_q_leaves_the_run_running_and_says_how_to_come_back(watched, terminal):
    dashboard, started = watched()
    dashboard.press(b"q")
    assert dashboard.wait_end() == 0
    assert f"ddpmon attach {started.id}" in dashboard.raw.decode().replace("\r\n", "")
    assert still_runs(started)
    again = terminal("attach")
    again.wait_for("WAITING")
    again.press(b"q")
    assert again.wait_end() == 0
    assert still_runs(started)


def test_a_closed_terminal_leaves_a_headless_run_running(terminal):
    lines = terminal("exec", "--headless", "--", "sleep", "600")
    lines.wait_for("waiting")
    started = Started(runs.find(None).id)
    lines.hang_up()
    lines.process.wait(10)
    assert still_runs(started)


def test_the_dashboard_stays_on_the_end_until_it_is_left_and_the_exit_code_is_the_runs(watched, tmp_path):
    go = tmp_path / "go"
    dashboard, started = watched(
        f"import os, sys, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)\nsys.exit('out of luck')"
    )
    go.touch()
    dashboard.wait_for("FAILED")
    started.until_gone()
    dashboard.press(b"q")
    assert dashboard.wait_end() == 1
    said = dashboard.raw.decode().replace("\r\n", "")
    assert "out of luck" in said
    assert str(started.folder) in said


@pytest.mark.parametrize(
    ("name", "terminals", "dashboard"),
    [
        ("xterm", (True, True), True),
        ("dumb", (True, True), False),
        ("xterm", (True, False), False),
        ("xterm", (False, True), False),
    ],
)
def test_the_dashboard_needs_a_terminal_for_keys_and_one_for_the_picture(monkeypatch, name, terminals, dashboard):
    monkeypatch.setenv("TERM", name)
    for stream, there in zip(("stdin", "stdout"), terminals, strict=True):
        monkeypatch.setattr(f"sys.{stream}", SimpleNamespace(isatty=lambda there=there: there))
    assert watching.interactive() is dashboard
