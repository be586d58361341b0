"""When a test worker crashes, one test fails, and the suite runs all others and ends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]
ONE_THAT_CRASHES = """
import os, pathlib, time
import pytest

@pytest.mark.parametrize("number", range(16))
def test_crashes_once(number):
    time.sleep(0.1)  # longer than it takes to hand out a test: both workers run about half of them
    if number == 11 and not pathlib.Path("crashed").exists():
        pathlib.Path("crashed").touch()
        os._exit(1)
"""


def test_the_suite_ends_after_a_crash_and_runs_every_test(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    folder = pytester.mkdir("tests") / "tui"
    folder.mkdir()
    (folder / "test_crash.py").write_text(ONE_THAT_CRASHES)
    scheduler = ["-n", "2", "--dist", "loadscope", "--no-loadscope-reorder", "-p", "tests.order"]
    result = pytester.run(sys.executable, "-m", "pytest", *scheduler, "-p", "no:cacheprovider", "tests", timeout=60)
    result.assert_outcomes(passed=16, failed=1)
