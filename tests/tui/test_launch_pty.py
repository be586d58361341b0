"""A run from its form to its end, in a real terminal with real ranks."""

from functools import partial

import pytest

from ddpmon import runs
from ddpmon.launch import stop
from tests.conftest import wait_for
from tests.tui.terminal import Terminal

SCRIPT = """
import os, sys, time
here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "rank" + os.environ["RANK"]), "w") as file:
    file.write(f"{os.environ['GREETING']} {os.environ['WORLD_SIZE']} {sys.argv[1:]} {os.getcwd()}")
time.sleep(600)
"""


def written(terminal, path):
    """What is in a file by now, if it is there; the terminal is read meanwhile, as a real one is."""
    terminal.read()
    return path.exists() and path.read_text()


@pytest.mark.e2e
def test_a_run_is_started_from_the_form_watched_and_stopped(home):
    """torchrun has to import torch before there is a rank: that may take a while on a busy machine."""
    folder = home / "work"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    with Terminal("tests.tui.show", "slow", columns=120) as terminal:
        terminal.wait_for("q detach")
        terminal.press(b"n")
        terminal.wait_for("Start a run")
        terminal.press(b"train.py\t--lr '0 1'\t2\tfrom-the-form\tGREETING=hello\t")  # as fast as it can be typed
        terminal.wait_for("hello")
        terminal.press(b"\r")
        terminal.wait_for("no script train.py in")  # the folder is still the dashboard's own
        terminal.press(str(folder).encode() + b"\r")
        (run,) = wait_for(runs.all_runs)
        terminal.wait_for("WAITING")
        assert "from-the-form" in terminal.screen.display[0]
        told = [wait_for(partial(written, terminal, folder / f"rank{rank}"), 120) for rank in (0, 1)]
        assert told == [f"hello 2 ['--lr', '0 1'] {folder}"] * 2
        assert runs.load(run.id).environment == {"GREETING": "hello"}
        terminal.press(b"8")
        terminal.wait_for("● RUNNING")
        terminal.press(b"x")
        terminal.wait_for("Stop the run?")
        terminal.press(b"s")
        terminal.wait_for("STOPPED", 90)
        gone = stop.wait_until_gone(run, 60)
        assert gone is not None
        assert gone.state() == "stopped"
        terminal.leave()
