"""Batches that are even, against all ways to deal them out."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpmon.analysis.steps.even_work import even_batches


@settings(max_examples=40, deadline=None)
@given(total=st.integers(0, 12), item_ms=st.lists(st.floats(0.1, 10), min_size=1, max_size=3))
def test_no_other_way_is_faster(total, item_ms):
    mine = even_batches(total, item_ms)
    assert sum(mine) == total
    ways = [way for way in itertools.product(range(total + 1), repeat=len(item_ms)) if sum(way) == total]
    best = min(max(m * ms for m, ms in zip(way, item_ms, strict=True)) for way in ways)
    assert max(m * ms for m, ms in zip(mine, item_ms, strict=True)) == pytest.approx(best)


def test_equal_ranks_get_equal_work_and_a_slow_one_less():
    assert even_batches(256, [0.5] * 4) == [64] * 4
    assert even_batches(100, [1.0, 1.0, 2.0]) == [40, 40, 20]
