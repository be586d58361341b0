"""--notify and DDPMON_NOTIFY, from the command line to the terminal."""

from __future__ import annotations

import sys

import pytest

from ddpmon import runs
from tests.tui.terminal import Terminal


@pytest.fixture
def failing(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("raise ValueError('no data;\\x1b]0;owned\\x07')\n")
    return [sys.executable, str(path)]


@pytest.mark.parametrize("by_environment", [False, True], ids=["option", "environment"])
@pytest.mark.parametrize("command", ["run", "exec", "attach"])
def test_a_way_that_nobody_knows_is_refused_in_one_line(cli, command, by_environment, failing, monkeypatch):
    rest = {"run": failing[1:], "exec": ["--", *failing], "attach": []}[command]
    if by_environment:
        monkeypatch.setenv("DDPMON_NOTIFY", "loud")
    result = cli(command, *(() if by_environment else ("--notify", "loud")), *rest)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert "'loud' is not one of 'off', 'bell', 'desktop', 'both'" in result.stderr
    if by_environment:
        assert "DDPMON_NOTIFY" in result.stderr


@pytest.mark.parametrize(("arguments", "told"), [
    ((), True), (("--notify", "off"), False),
])  # fmt: skip
def test_a_run_that_fails_is_told_of_as_the_environment_says_unless_the_option_says_otherwise(
    home, failing, monkeypatch, arguments, told
):
    for name in ("TMUX", "TERM_PROGRAM", "VTE_VERSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DDPMON_NOTIFY", "desktop")
    with Terminal("ddpmon", "exec", "--name", "doomed", *arguments, "--", *failing) as terminal:
        terminal.wait_for("q quit")
        terminal.wait_for("FAILED")
        if told:
            terminal.wait_for_output(b"\x1b]9;ddpmon doomed: ")
        terminal.press(b"q")
        assert terminal.wait_end() == 1
        assert terminal.raw.count(b"\x1b]9;") == terminal.raw.count(b"\x1b]777;notify;") == int(told)
        assert b"\x1b]0;owned" not in terminal.raw
    assert runs.find(None).state() == "failed"
