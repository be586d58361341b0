"""Enter on a job that trains without ddpmon asks, and then attaches: the Runs screen in a real terminal."""

from __future__ import annotations

import re

import pytest

from ddpmon import runs
from tests.attach.conftest import needs_gdb
from tests.tui.terminal import Terminal

pytestmark = [pytest.mark.e2e, needs_gdb]


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


def open_runs(dashboard):
    dashboard.press(b"8")
    dashboard.wait_for("UNWATCHED")
    dashboard.press(b"g")


def attached(dashboard):
    """The run that is attached to a job, once all ranks have the probe."""
    dashboard.wait_until(lambda _: runs.all_runs(), "a run")
    (run,) = runs.all_runs()
    dashboard.wait_until(lambda _: all(rank.state == "in" for rank in runs.load(run.id).attached), "all ranks", 120)
    return run


def a_dashboard_that_changes_nothing_names_the_command_instead(pid):
    with Terminal("ddpmon", "demo", columns=160, rows=50, fresh=True) as dashboard:
        open_runs(dashboard)
        press_enter(dashboard, pid, r"read-only: cannot attach from here; ddpmon attach --pid (\d+) in a shell can")
        dashboard.press(b"q")
        dashboard.wait_end()
    assert runs.all_runs() == []


def test_enter_on_an_unwatched_job_asks_and_then_attaches(job, fresh_programs, cli):
    started = job("torchrun")
    pid = started.started[0].pid
    a_dashboard_that_changes_nothing_names_the_command_instead(pid)
    question = r"Attach to train \(pid (\d+),"
    with Terminal("tests.tui.show", "slow", columns=160, rows=50, fresh=True) as dashboard:
        open_runs(dashboard)
        press_enter(dashboard, pid, question)
        dashboard.press(b"n")
        dashboard.wait_until(lambda text: not re.search(question, text), "the screen without the question")
        assert runs.all_runs() == []
        press_enter(dashboard, pid, question)
        dashboard.press(b"y")
        run = attached(dashboard)
        dashboard.wait_until(lambda text: re.match(r".*\btrain  2 ranks  step \d", text), "the steps of the job", 120)
        dashboard.press(b"q")
        assert dashboard.wait_end() == 0
    assert cli("detach", run.id).returncode == 0
    assert started.end() == [0]
