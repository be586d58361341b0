"""A short piece of benchmarks/starts_and_stops.py: whatever is killed, nothing of a run is left."""

from __future__ import annotations

from benchmarks.starts_and_stops import many


def test_nothing_is_left_of_runs_whatever_was_killed(home):
    outcome = many(3, 2, home)
    assert outcome.left == []
    assert outcome.killed
    assert outcome.states.total() == 3
