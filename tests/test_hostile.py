"""Run a short piece of benchmarks/hostile.py."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import busy_factor

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "hostile.py"


@pytest.mark.e2e
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "words",
    [
        ("frames", "--count", "50", "--seed", "11"),
        ("recordings", "--only", "9", "12"),  # other values, other tables; tests/hub/test_salvage.py cuts the file
    ],
    ids=lambda words: words[0],
)
def test_a_short_hunt_finds_no_fault(words):
    """Every recording is read by every command, and the hub gets frames of every kind."""
    command = [sys.executable, PROGRAM, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250 * busy_factor(), check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["faults: 0"]), done.stdout + done.stderr
