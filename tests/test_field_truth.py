"""Test which steps benchmarks/field_scripts.py reads from the notes of a program's witness."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # its programs import each other by their names

from field_program import Program
from field_runs import Run
from field_truth import false_findings, pauses, step_ms


def program(**more):
    return Program(**dict(name="", repository="", entry="", batch=1, steps=9) | more)


def run(gaps_ms, *, paused=(), told_ms=()):
    """A run with these times between updates. paused: gaps in which the script did something else."""
    stamps = list(itertools.accumulate([0.0, *(ms / 1000 for ms in gaps_ms)]))
    rows = [{"rank": "0", "length_ms": str(ms)} for ms in told_ms]
    return Run(0, {}, {}, stamps=[stamps], pauses=[stamps[i] + 1e-4 for i in paused], rows=rows)


def test_a_long_step_counts_and_a_pause_does_not():
    made = run([20, 20, 20, 100, 20, 20, 20, 100], paused=[3])
    assert step_ms(program(), made) == pytest.approx((20, 220 / 7))


def test_an_optimizer_that_is_called_twice_in_a_step_makes_no_more_steps():
    made = run([20, 20, 5, 20, 20, 5, 20, 20])
    assert step_ms(program(steps=7, calls=9), made)[1] == pytest.approx(130 / 6)


def test_only_a_pause_that_is_taken_for_a_step_is_told():
    gaps = [20, 20, 20, 100, 20, 20, 20, 100]
    assert not pauses(run(gaps, told_ms=gaps))
    assert pauses(run(gaps, paused=[3], told_ms=gaps)) == "2 steps told over 3 times the usual, 1 were"


def test_a_finding_about_pauses_is_false_where_the_script_made_none():
    for paused, false in (((), ["workers start", "--headless said slow 1 times"]), ((2,), [])):
        made = run([20, 20, 20, 20], paused=paused)
        made.report = {"findings": [{"kind": "pauses", "severity": "warn", "ranks": [], "text": "workers start"}]}
        made.headless = ["10:00:00  slow     step 4"]
        assert false_findings(made) == false
