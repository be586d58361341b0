"""Test what a terminal can show."""

from __future__ import annotations

import os

import pytest

from ddpmon.doctor import terminal
from ddpmon.doctor.check import Level
from ddpmon.tui.blocks import LEAST_HEIGHT, LEAST_WIDTH

GOOD = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}


def seen(environ: dict[str, str], columns: int = 160, rows: int = 50, **tmux: str) -> dict[str, tuple[Level, str]]:
    size = os.terminal_size((columns, rows))
    options = {name.replace("_", "-"): value for name, value in tmux.items()}
    checks = terminal.terminal(environ, size, lambda name: options.get(name, ""))
    return {check.about: (check.level, f"{check.text}; {check.way_out}") for check in checks}


def test_a_good_terminal_is_well():
    checks = seen(GOOD)
    assert set(checks) == {"size", "colours", "letters"}
    assert {level for level, _ in checks.values()} == {Level.OK}


def test_the_smallest_size_is_the_one_that_the_dashboard_goes_by():
    assert (LEAST_WIDTH, LEAST_HEIGHT) == terminal.SMALLEST_SCREEN


def test_without_a_terminal_lines_are_printed():
    [check] = terminal.terminal(GOOD, None)
    assert check.level is Level.OK
    assert "prints lines" in check.text


@pytest.mark.parametrize(
    ("change", "about", "words"),
    [
        ({"COLORTERM": "", "TERM": "xterm"}, "colours", "16 (TERM=xterm)"),
        ({"TERM": "dumb"}, "colours", "instead of the dashboard"),
        ({"TERM": ""}, "colours", "not set"),
        ({"LANG": "C"}, "letters", "only ASCII"),
        ({"TERM": "linux"}, "letters", "only ASCII"),
        ({"STY": "1.pts"}, "screen", "copies nothing"),
    ],
)
def test_what_it_cannot_show_is_a_note(change, about, words):
    level, text = seen(GOOD | change)[about]
    assert level is Level.NOTE
    assert words in text


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"COLORTERM": ""}])
def test_fewer_colours_that_were_meant_are_well(environ):
    assert seen(GOOD | environ)["colours"][0] is Level.OK


@pytest.mark.parametrize(("columns", "rows", "level"), [(80, 24, Level.OK), (79, 30, Level.NOTE), (40, 10, Level.NOTE)])
def test_a_small_terminal_is_a_note(columns, rows, level):
    assert seen(GOOD, columns, rows)["size"][0] is level


def test_tmux_is_asked_what_it_passes_on():
    inside = GOOD | {"TMUX": "/tmp/tmux-0/default,1,0"}
    assert seen(inside, allow_passthrough="on", set_clipboard="on")["tmux"][0] is Level.OK
    level, text = seen(inside, set_clipboard="on")["tmux"]
    assert level is Level.NOTE
    assert "allow-passthrough on" in text
    checks = terminal.terminal(inside, os.terminal_size((160, 50)), {"set-clipboard": "off"}.get)
    assert any("set-clipboard is off" in check.text for check in checks)
