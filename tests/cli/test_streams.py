"""Standard streams that take nothing: a command says so in one line at most, and never with a traceback."""

from __future__ import annotations

import os
import subprocess

import pytest

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
@pytest.mark.parametrize(
    ("to", "says"), [(">/dev/full", "No space left on device"), (">&- <&-", "Bad file descriptor")]
)
def test_a_run_goes_on_watched_and_its_exit_code_stays(home, to: str, says: str) -> None:
    done = in_a_shell(f"$d exec --headless -- sh -c 'exit 3' {to}")
    assert done.returncode == 3
    assert done.stderr == f"ddpmon: standard output: {says}; the run goes on, and this command ends with it\n"
