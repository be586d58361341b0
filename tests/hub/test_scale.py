"""A short piece of benchmarks/scale.py: what a root has of many ranks, with links that fail and ranks that restart."""

from benchmarks.scale import Wanted, play

RANKS = 32


def test_of_many_ranks_nothing_is_lost_and_the_late_one_is_told(home):
    result = play(RANKS, Wanted(seconds=14, faults=True))
    assert result.left_over == 0, "every node has been heard to its end"
    assert (result.lost, result.bounds_wrong) == (0, 0)
    assert result.records > RANKS * 50
    assert result.blamed == [RANKS // 2 + 1]
    told, played = result.since
    assert abs(told - played) <= 5
    told, played = result.gain
    assert abs(told - played) < 0.01
    assert result.kinds == ["straggler"]
