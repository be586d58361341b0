"""Whatever stands in a foreign run.json, in logs and in arguments: nothing of it steers the terminal."""

from __future__ import annotations

import json
import re

import pytest

from ddpmon import runs
from ddpmon.cli.commands.replaying import unpack
from tests.conftest import ddpmon_program
from tests.in_process import called_in_a_terminal
from tests.tui.terminal import Terminal

FOREIGN = "a\x1b[31mred\x1b]0;title\x07\x1b]52;c;QQ==\x1b\\\x1bPq#0\x1b\\\x9b5m\x9d0;t\x9c\x1b[6n\x07\b\r\n\u202eb"
"""Colours, a window's title, the clipboard, a picture, the same in single bytes, a question that the terminal would
answer as if it was typed, and what moves back over what was written."""
STEERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
THEIRS = ("\x1b[31m", "\x1b]0;", "\x1b]52;", "\x1bPq", "\x9b5m", "\x9d0;", "\x1b[6n", "title\x07", "\b", "\u202e")


@pytest.fixture
def foreign(home):
    """The run that ships with ddpmon, as a stranger handed it on."""
    run = unpack()
    path = runs.run_dir(run.id) / "run.json"
    facts = json.loads(path.read_text())
    for name, value in facts.items():
        if isinstance(value, str) and name not in {"id", "boot_id"}:
            facts[name] = FOREIGN
    facts |= {
        "script_args": [FOREIGN, FOREIGN],
        "argv": [FOREIGN, FOREIGN],
        "notes": [FOREIGN],
        "error": FOREIGN,
        "environment": {"THEIRS": FOREIGN},
        "versions": {FOREIGN: FOREIGN},
    }
    path.write_text(json.dumps(facts))
    for log in (runs.run_dir(run.id) / "logs").glob("ranks/*/*/*/stdout.log"):
        log.write_text(f"{FOREIGN}\n{FOREIGN}\n")
    return run.id


def said(*arguments: str, answer: bytes = b"", code: tuple[int, ...] = (0, 1, 2)) -> str:
    """Return what a command writes to a terminal of its own, to its end."""
    ended, written = called_in_a_terminal(*arguments, answer=answer)
    assert ended in code
    return written


def test_a_foreign_run_steers_no_terminal(foreign):
    for command in (
        ["ls"], ["status", foreign], ["attach", "--once", foreign], ["attach", "--headless", foreign],
        ["report", foreign], ["report", "--format", "md", foreign], ["logs", foreign], ["logs", "--rank", "0", foreign],
        ["stop", foreign], ["stack", foreign], ["diff", foreign, foreign],
        ["export", "--format", "openmetrics", foreign], ["status", "--json", foreign], ["ls", "--json"],
    ):  # fmt: skip
        written = said(*command)
        assert written.strip(), command
        assert not STEERS.search(written), (command, written)
        assert "Traceback" not in written
    for command in (["rm", foreign], ["rename", foreign, FOREIGN]):
        written = said(*command, answer=b"n\n" if command[0] == "rm" else b"")
        assert not STEERS.search(written), (command, written)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", FOREIGN],
        ["run", "-m", FOREIGN],
        ["run", f"--{FOREIGN}", "x.py"],
        ["run", "--nproc", FOREIGN, "ddpmon"],
        ["run", "--grace", FOREIGN, "x.py"],
        ["exec", "--", FOREIGN],
        ["attach", FOREIGN],
        ["report", "--format", FOREIGN],
        ["export", "--format", "csv", "-o", FOREIGN],
        ["diff", FOREIGN, FOREIGN],
        [FOREIGN],
    ],
    ids=lambda words: "-".join(word for word in words if word != FOREIGN),
)
def test_what_was_mistyped_steers_no_terminal(home, arguments):
    written = said(*arguments, code=(1, 2))
    assert written.startswith("ddpmon: ")
    assert not STEERS.search(written), written


def test_a_foreign_run_steers_no_dashboard_and_no_program_of_its_own(foreign):
    with Terminal("status", foreign, program=(ddpmon_program(),), columns=200, rows=50) as terminal:
        assert terminal.wait_end() in {0, 1, 2}
        assert terminal.raw.strip()
        assert not STEERS.search(terminal.raw.decode())
    with Terminal("attach", foreign, program=(ddpmon_program(),), columns=120, rows=36) as terminal:
        terminal.wait_for("ranks, slowest first")
        visits = (b"8", "runs, the latest first"), (b"7", "output of"), (b"2\r", "this rank"), (b"?", "─keys")
        for key, shown in visits:
            terminal.press(key)
            terminal.wait_for(shown)
        terminal.press(b"q")
        terminal.wait_until(lambda shown: "─keys" not in shown, "the screen below the help")
        terminal.press(b"8e")
        terminal.wait_for("Another name for")
        terminal.press(b"\x1b")
        terminal.wait_until(lambda shown: "Another name for" not in shown, "the screen below the form")
        terminal.press(b"q")
        terminal.wait_end()
        written = terminal.raw.decode()
    for sequence in THEIRS:
        assert sequence not in written
