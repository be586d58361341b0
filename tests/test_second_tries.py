"""Only what says nothing about ddpmon is tried again, and only so often."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]


@pytest.fixture
def outcomes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Run a test file with the plugin; how many of each outcome."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(source: str) -> dict[str, int]:
        pytester.makepyfile(source)
        options = ["-p", "tests.second_tries", "--max-suite-reruns", "5", "-p", "no:cacheprovider", "-raR"]
        result = pytester.run(sys.executable, "-m", "pytest", *options)
        return result.parseoutcomes()

    return run


def test_a_wrong_diagnosis_is_not_tried_again(outcomes):
    assert outcomes("def test_it(): assert 'rank 1 is slow' == 'rank 0 is slow'") == {"failed": 1}


@pytest.mark.parametrize("words", ["not within 60 s: it", "the file was never written"])
def test_what_waited_in_vain_is_tried_again(outcomes, words):
    source = f"""
        tries = []

        def test_it():
            tries.append(1)
            assert len(tries) > 1, {words!r}
    """
    assert outcomes(source) == {"passed": 1, "rerun": 1}


@pytest.mark.parametrize("where", ["printed", "in a log"])
def test_what_gloo_aborted_is_tried_again(outcomes, where):
    source = f"""
        import sys

        tries = []

        def test_it(tmp_path):
            said = "terminate called after throwing an instance of 'gloo::IoException'"
            tries.append(1)
            if {where!r} == "printed":
                print(said, file=sys.stderr)
            else:
                (tmp_path / "logs").mkdir()
                (tmp_path / "logs" / "rank0.log").write_text(said)
            assert len(tries) > 1
    """
    assert outcomes(source) == {"passed": 1, "rerun": 1}


def test_a_run_has_at_most_five_and_counts_them(outcomes):
    source = """
        import pytest

        @pytest.mark.parametrize("number", range(8))
        def test_it(number):
            raise AssertionError("not within 1 s: it")
    """
    assert outcomes(source) == {"failed": 8, "rerun": 5}
