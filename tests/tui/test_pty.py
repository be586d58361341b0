"""The dashboard in a real terminal, in a process of its own."""

import os
import signal

import pytest

from tests.tui.terminal import Terminal

pytestmark = pytest.mark.terminal

SHOW = "tests.tui.show"


def test_q_ends_it_and_gives_the_terminal_back():
    with Terminal(SHOW, "slow", fresh=True) as terminal:
        shown = terminal.wait_for("q detach")
        assert "▲ SLOW" in shown
        assert "rank 13 (node01 gpu5) is slow" in shown
        terminal.leave()
        assert "left: detached" in "\n".join(terminal.screen.display)
        assert terminal.settings() == terminal.before
        for restored in (b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l", b"\x1b[?2004l"):
            assert restored in terminal.raw


def test_stopping_from_a_terminal():
    with Terminal(SHOW, "running", "--owns-run") as terminal:
        terminal.wait_for("q detach")
        terminal.press(b"\x03")
        terminal.wait_for("Ctrl-C: what should happen to the run?")
        terminal.press(b"s")
        terminal.wait_for("stopping")
        terminal.leave()
        assert "left: stopping" in "\n".join(terminal.screen.display)


@pytest.mark.parametrize("controlling", [True, False], ids=["hangup signal", "no signal"])
def test_a_terminal_that_goes_away_ends_it_quietly(tmp_path, controlling):
    told = tmp_path / "outcome"
    with Terminal(SHOW, "slow", "--outcome", str(told), controlling=controlling) as terminal:
        terminal.wait_for("q detach")
        terminal.hang_up()
        assert terminal.wait_end() == 0
    assert told.read_text() == "detached []"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_and_give_the_terminal_back(number):
    with Terminal(SHOW, "slow") as terminal:
        terminal.wait_for("q detach")
        os.kill(terminal.process.pid, number)
        assert terminal.wait_end() == 0
        assert "left: detached" in "\n".join(terminal.screen.display)
        assert terminal.settings() == terminal.before
        assert b"Traceback" not in terminal.raw
