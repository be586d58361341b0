"""The inner loop leaves out what starts processes and all but a few examples of a property."""

import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]


def test_it_leaves_out_processes_and_further_examples(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    pytester.makeini("[pytest]\nmarkers =\n    e2e\n    terminal\n")
    pytester.makepyfile("""
        import signal

        import pytest
        from hypothesis import given, settings, strategies as st

        tried = []

        @pytest.fixture
        def home(): pass

        @pytest.mark.e2e
        def test_ranks(): pass

        @pytest.mark.terminal
        def test_terminal(): pass

        def test_hub(home): pass

        @pytest.mark.parametrize("seed", [12, 17, 38])
        def test_seed(seed): pass

        @pytest.mark.parametrize(("ranks", "seed"), [(2, 0), (8, 1), (40, 2)])
        def test_ranks_and_seed(ranks, seed): pass

        @settings(max_examples=500)
        @given(st.integers())
        def test_asks_for_many(number): tried.append(number)

        def test_few_were_tried(): assert 2 <= len(tried) <= 10

        def test_hangs_are_ended_by_a_timer_and_not_by_a_thread(): assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    """)
    options = ("-p", "tests.quick", "-p", "no:cacheprovider", "-v", "--timeout", "150", "--quick")
    done = pytester.run(sys.executable, "-m", "pytest", *options)
    done.assert_outcomes(passed=8, deselected=4)
    done.stdout.fnmatch_lines(["*test_seed?17? PASSED*"])
