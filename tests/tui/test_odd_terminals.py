"""Terminals other than today's usual one, and what happens to a terminal while the dashboard is in it."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
import uuid

import psutil
import pytest
from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers._writer_thread import WriterThread

from ddpmon import runs
from ddpmon.tui import workarounds
from tests.conftest import Started, ddpmon_program
from tests.tui.terminal import DEADLINE_S, Terminal

pytestmark = pytest.mark.terminal

SHOW = "tests.tui.show"
LEAVES = b"\x1b[?1049l"
FULL_S = 2.0
"""So many keys paint more than the terminal and what is before it hold."""
TRUE_COLOUR, PALETTE = b"38;2;", b"38;5;"


def resize(terminal: Terminal, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    terminal.screen.resize(rows, columns)
    os.kill(terminal.process.pid, signal.SIGWINCH)


@pytest.mark.parametrize("name", ["linux", "screen-256color"])
def test_colours_come_down_to_what_the_terminal_has(name):
    with Terminal(SHOW, "slow", environment={"TERM": name, "COLORTERM": ""}) as terminal:
        shown = terminal.wait_for("q detach")
        assert "rank 13 (node01 gpu5) is slow" in shown
        terminal.press(b"2")
        terminal.wait_for("problems first, then own time")
        terminal.leave()
        assert TRUE_COLOUR not in terminal.raw
        assert PALETTE not in terminal.raw or "256color" in name
        assert LEAVES in terminal.raw


@pytest.mark.parametrize(
    "given", [["LC_ALL=de_DE.ISO-8859-1"], ["LC_ALL=C.UTF-8", "TERM=linux"], ["STY=1.x"]],
    ids=["latin1", "console", "screen without a locale"],
)  # fmt: skip
def test_where_there_is_no_utf8_everything_is_drawn_in_ascii(given):
    unset = [word for name in ("LC_ALL", "LC_CTYPE", "LANG") for word in ("-u", name)]
    with Terminal(SHOW, "slow", program=("env", *unset, *given, sys.executable, "-m")) as terminal:
        for text in ("! SLOW", "-loss", "'.", "#", "X dead", "space freeze"):
            terminal.wait_for(text)
        for key in b"23456781?":
            terminal.press(bytes([key]))
        terminal.wait_for("-keys")
        terminal.press(b"q")
        terminal.wait_for("space freeze")
        terminal.leave()
        assert terminal.raw.isascii()


def test_a_terminal_that_can_only_print_gets_lines_and_one_sentence(home):
    with Terminal(
        "exec", "--", "sleep", "600", program=(ddpmon_program(),), columns=200, environment={"TERM": "dumb"}
    ) as terminal:
        terminal.wait_for("waiting")
        shown = "\n".join(terminal.screen.display)
        assert shown.count("opens no dashboard; try TERM=xterm-256color") == 1
        assert b"\x1b" not in terminal.raw
        terminal.press(b"\x03")
        terminal.wait_end()
    Started(runs.find(None).id).until_gone()


def test_any_size_that_a_terminal_takes_meanwhile():
    with Terminal(SHOW, "slow", columns=80, rows=24) as terminal:
        terminal.wait_for("q detach")
        for columns, rows in ((1, 1), (500, 200), (2, 60), (300, 1), (20, 5), (60, 12), (1, 1)):
            resize(terminal, columns, rows)
            for key in b"123456789":
                terminal.press(bytes([key]))
                terminal.read()
        terminal.press(b"1")
        resize(terminal, 100, 30)
        terminal.wait_for("node01")
        terminal.wait_for("q detach")
        terminal.leave()


def test_ctrl_l_draws_over_what_something_else_wrote():
    with Terminal(SHOW, "slow") as terminal:
        terminal.wait_for("q detach")
        terminal.screen.erase_in_display(2)
        terminal.press(b"\x0c")
        terminal.wait_for("node01")
        terminal.wait_for("q detach")
        terminal.leave()


def test_ctrl_z_goes_back_to_the_shell_and_fg_shows_it_again():
    command = f"{sys.executable} -m {SHOW} slow; echo code $?"
    with Terminal("--norc", "-i", program=("bash",), environment={"PS1": "prompt> "}) as terminal:
        terminal.wait_for("prompt>")
        terminal.press(command.encode() + b"\r")
        terminal.wait_for("q detach")
        terminal.press(b"\x1a")
        terminal.wait_for_output(LEAVES)
        terminal.wait_for("Stopped")
        terminal.press(b"fg\r")
        terminal.wait_for("q detach")
        terminal.press(b"q")
        terminal.wait_for("left: detached")
        terminal.press(b"exit\r")
        terminal.wait_end()


def ranks_after_odd_byte(terminal: Terminal, shown: str) -> bool:
    """Press an é of a latin-1 terminal and 2: what is typed while a terminal changes its mode may be lost."""
    if "problems first, then own time" in shown:
        return True
    terminal.press(b"\xe92")
    return False


def test_stopped_and_continued_it_draws_anew_takes_any_byte_and_gives_the_terminal_back():
    with Terminal(SHOW, "slow") as terminal:
        terminal.wait_for("q detach")
        os.kill(terminal.process.pid, signal.SIGSTOP)
        terminal.screen.erase_in_display(2)
        os.kill(terminal.process.pid, signal.SIGCONT)
        terminal.wait_until(lambda shown: "SLOW" in shown and "q detach" in shown, "the whole screen")
        terminal.wait_until(lambda shown: ranks_after_odd_byte(terminal, shown), "the Ranks screen")
        terminal.leave()
        assert terminal.settings() == terminal.before


@pytest.mark.parametrize("name", ["SIGCONT", "SIGTSTP"])
def test_a_signal_that_comes_while_something_is_written_hangs_nothing(name):
    with Terminal(SHOW, "slow", "--interrupted", name) as terminal:
        if name == "SIGTSTP":
            process = psutil.Process(terminal.process.pid)
            terminal.wait_until(lambda _: process.status() == psutil.STATUS_STOPPED, "a stopped dashboard")
            os.kill(terminal.process.pid, signal.SIGCONT)
        terminal.wait_for("q detach")
        terminal.wait_until(lambda shown: ranks_after_odd_byte(terminal, shown), "the Ranks screen")
        terminal.leave()
        assert terminal.settings() == terminal.before


def test_the_output_thread_ends_where_only_its_last_flush_finds_the_terminal_gone():
    assert workarounds
    master, slave = os.openpty()
    os.close(master)
    with contextlib.suppress(OSError), os.fdopen(slave, "w") as file:
        thread = WriterThread(file)
        thread.write("x")
        thread._queue.put(None)
        thread.start()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "sequence", ["\x1b[1114112u", "\x1b[99999999999u", "\x1b[97:65;2u", "\x1b[48;0;0;0;0t\x1b[<0;9;9M"]
)
def test_sequences_that_make_no_sense_do_not_end_the_reading_of_keys(sequence):
    assert workarounds
    parser = XTermParser()
    list(parser.feed(sequence))
    assert [event.key for event in parser.feed("q") if isinstance(event, events.Key)] == ["q"]


def test_ctrl_z_where_no_shell_is_changes_nothing():
    with Terminal(SHOW, "slow") as terminal:
        terminal.wait_for("q detach")
        terminal.press(b"\x1a")
        terminal.wait_for("cannot suspend: this terminal has no job control")
        terminal.leave()


def fill(terminal: Terminal) -> None:
    """Read nothing, and press keys that paint, until all that the dashboard could write is waiting."""
    unread, since = -1, time.monotonic()
    deadline = since + DEADLINE_S
    pressed = itertools.cycle(b"123456789")
    while time.monotonic() - since < FULL_S:
        assert time.monotonic() < deadline, "the terminal never was full"
        now = struct.unpack("i", fcntl.ioctl(terminal.master, termios.FIONREAD, bytes(4)))[0]
        if now != unread:
            unread, since = now, time.monotonic()
        terminal.press(bytes([next(pressed)]))
        time.sleep(0.05)


@pytest.mark.parametrize("ends", ["closed", "terminated", "read again"])
def test_a_terminal_that_nobody_reads_for_a_while(ends):
    with Terminal(SHOW, "slow", columns=160, rows=50) as terminal:
        terminal.wait_for("space freeze")
        fill(terminal)
        if ends == "closed":
            terminal.hang_up()
            assert terminal.process.wait(DEADLINE_S) == 0
            return
        if ends == "terminated":
            terminal.process.terminate()
        else:
            terminal.press(b"1")
            terminal.wait_for("ranks, slowest first")
            terminal.press(b"q")
        assert terminal.wait_end() == 0
        assert LEAVES in terminal.raw
        assert terminal.settings() == terminal.before


needs_screen = pytest.mark.skipif(shutil.which("screen") is None, reason="screen is not installed")


@needs_screen
def test_in_screen(tmp_path):
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    locale = {"LC_ALL": "C.UTF-8", "SCREENDIR": str(folder)}
    name = f"ddpmon-{uuid.uuid4().hex[:8]}"
    arguments = ["-U", "-c", "/dev/null", "-S", name, sys.executable, "-m", SHOW, "slow"]
    try:
        with Terminal(*arguments, program=("screen",), environment=locale) as terminal:
            shown = terminal.wait_for("q detach")
            assert "▲ SLOW" in shown
            terminal.press(b"2")
            terminal.wait_for("problems first, then own time")
            terminal.press(b"q")
            terminal.wait_end()
    finally:
        end = ["screen", "-S", name, "-X", "quit"]
        subprocess.run(end, check=False, capture_output=True, env={**os.environ, **locale})
