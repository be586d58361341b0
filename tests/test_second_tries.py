"""Only what says nothing about ddpmon is tried again, and only so often."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]
ABORT = "terminate called after throwing an instance of 'gloo::IoException'"


@pytest.fixture
def summary(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Run a test file with the plugin; each (outcome, test) that the summary lists, and its last line."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(source: str, at_most: int = 5) -> tuple[list[tuple[str, str]], str]:
        pytester.makepyfile(source)
        options = ["-p", "tests.second_tries", "--max-suite-reruns", str(at_most), "-p", "no:cacheprovider", "-rAR"]
        result = pytester.run(sys.executable, "-m", "pytest", *options)
        listed = [re.match(r"(FAILED|PASSED|RERUN|ERROR) \S+::(\w+)", line) for line in result.outlines]
        return sorted({found.groups() for found in listed if found}), result.outlines[-1]

    return run


@pytest.fixture
def home_of_another_worker():
    """What its ranks print now says nothing about these tests."""
    folder = Path(tempfile.mkdtemp(prefix="dm-1-", dir="/tmp"))
    log = folder / "rank0.log"
    log.write_text(ABORT)
    os.utime(log, (time.time() + 600,) * 2)
    yield
    shutil.rmtree(folder)


def test_what_gloo_aborted_or_waited_in_vain_is_tried_again_and_a_wrong_diagnosis_is_not(
    summary, home_of_another_worker
):
    listed, last = summary(
        f"""
        import os, pathlib, shutil, subprocess, sys, tempfile
        import pytest

        tries = []

        @pytest.fixture(autouse=True)
        def second(request):
            tries.append(request.node.name)
            return tries.count(request.node.name) > 1

        def test_wrong(second): assert 'rank 1 is slow' == 'rank 0 is slow'

        def test_waited(second): assert second, "not within 60 s: it"

        def test_never_written(second): assert second, "the file was never written"

        def test_expired(second):
            if not second:
                raise subprocess.TimeoutExpired("ddpmon", 60)

        def test_printed(second):
            print({ABORT!r}, file=sys.stderr)
            assert second

        def test_in_a_log(second, tmp_path):
            (tmp_path / "logs").mkdir()
            (tmp_path / "logs" / "rank0.log").write_text({ABORT!r})
            assert second

        @pytest.fixture
        def home():
            folder = pathlib.Path(tempfile.mkdtemp(prefix=f"dm-{{os.getpid()}}-", dir="/tmp"))
            yield folder
            shutil.rmtree(folder)

        def test_in_a_home(second, home):
            (home / "rank0.log").write_text({ABORT!r})
            assert second
    """,
        at_most=6,
    )
    again = ("expired", "in_a_home", "in_a_log", "never_written", "printed", "waited")
    expected = [("FAILED", "test_wrong"), *((how, f"test_{one}") for how in ("PASSED", "RERUN") for one in again)]
    assert listed == expected
    assert "1 failed, 6 passed, 6 rerun" in last


def test_a_run_has_at_most_five_and_counts_them(summary):
    _, last = summary("""
        import pytest

        @pytest.mark.parametrize("number", range(8))
        def test_it(number):
            raise AssertionError("not within 1 s: it")
    """)
    assert "8 failed, 5 rerun" in last
