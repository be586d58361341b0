"""How World shares out a screen."""

from hypothesis import example, given
from hypothesis import strategies as st

from ddpmon.tui.blocks import LEAST_HEIGHT, LEAST_WIDTH
from ddpmon.tui.screens.world import most_map_lines, plan

sizes = st.tuples(st.integers(1, 300), st.integers(1, 100))


@given(sizes, st.integers(1, 2000), st.integers(1, 8), st.booleans(), st.integers(0, 80))
@example((160, 50), 4, 1, False, 5)
def test_a_screen_is_filled_and_no_more(size, ranks, map_lines, arriving, findings):
    width, height = size
    shared = plan(width, height, ranks, min(map_lines, most_map_lines(height)), arriving=arriving, findings=findings)
    parts = shared.head, shared.upper, shared.world, shared.table, shared.findings, shared.phases, shared.keys
    assert min(parts) >= 0
    assert sum(parts) == height
    if width >= LEAST_WIDTH and height >= LEAST_HEIGHT:
        assert shared.table >= min(ranks + 2, 3)


def test_charts_are_no_higher_than_they_tell_something_and_findings_get_the_rest():
    calm = plan(240, 70, 4, 1)
    assert (calm.upper, calm.findings, calm.phases) == (24, 0, 34)
    shared = plan(160, 50, 4, 1, findings=7)
    assert (shared.upper, shared.table, shared.findings, shared.phases) == (20, 6, 7, 11)
    assert plan(160, 50, 4, 1, findings=40).upper == 18
    assert [plan(240, 70, ranks, 1, findings=4).detail for ranks in (16, 17)] == [True, False]
    assert plan(80, 24, 4, 1, findings=9).findings == 0
    assert plan(160, 50, 64, 1, findings=9).findings == 0
