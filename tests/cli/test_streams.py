"""Standard streams that take nothing: a command says so in one line at most, and never with a traceback."""

from __future__ import annotations

import os
import subprocess

import pytest

from ddpmon.runs import rotated_logs
from tests.conftest import ddpmon_program


def in_a_shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of sh in which $d is ddpmon."""
    return subprocess.run(
        ["sh", "-c", line], env={**os.environ, "d": ddpmon_program()}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("line", "code", "complaint"),
    [
        ("$d ls >/dev/full", 1, "ddpmon: standard output: No space left on device\n"),
        ("$d --help >/dev/full", 1, "ddpmon: standard output: No space left on device\n"),
        ("$d ls >&-", 1, "ddpmon: standard output: Bad file descriptor\n"),
        ("$d ls >&- 2>&- <&-", 1, ""),
        ("$d ls 2>&-", 0, ""),
        ("$d ls nosuch 2>/dev/full", 2, ""),
    ],
)
def test_a_command_ends_with_one_line(home, line: str, code: int, complaint: str) -> None:
    done = in_a_shell(line)
    assert (done.returncode, done.stderr) == (code, complaint)


def test_a_reader_that_left_is_no_error_worth_a_line(home) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([ddpmon_program(), "ls"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.e2e
def test_a_run_whose_streams_are_closed_is_watched_and_its_exit_code_stays(home) -> None:
    done = in_a_shell("$d exec --headless -- sh -c 'exit 3' >&- <&-")
    complaint = "standard output: Bad file descriptor; the run continues, and this command ends when the run ends"
    assert (done.returncode, done.stderr) == (3, f"ddpmon: {complaint}\n")


@pytest.mark.e2e
def test_a_run_with_limits_that_prints_much_is_captured_whole_and_goes_on(home) -> None:
    """It reads what is piped in, prints more than a file may hold, opens /dev/stderr anew, and nobody reads of it."""
    command = """
        cat
        for number in 1 2 3 4 5 6 7 8; do
            head -c 199999 /dev/zero | tr "\\0" x || exit 1
            echo
            echo shell $number > /dev/stderr || exit 2
            [ $number = 4 ] && until grep -qs "shell 4" "$DDPMON_RUN_DIR/logs/launcher.log"; do sleep 0.05; done
        done
        exit 3
    """
    done = in_a_shell(f"ulimit -f 2000; echo typed | $d exec --headless -- sh -c '{command}' >/dev/full")
    complaint = "standard output: No space left on device; the run continues, and this command ends when the run ends"
    assert (done.returncode, done.stderr) == (3, f"ddpmon: {complaint}\n")
    (log,) = (home / "home").glob("runs/*/logs/launcher.log")
    text = (rotated_logs.older(log).read_text() if rotated_logs.older(log).exists() else "") + log.read_text()
    expected = "".join("x" * 199_999 + f"\nshell {number}\n" for number in range(1, 9))
    assert text == f"typed\n{expected}"
