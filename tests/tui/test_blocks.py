"""How blocks share out a screen: nothing overlaps or sticks out, the first block is whole, and World is filled."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from ddpmon.tui.blocks import AIR, ALL, LEAST_HEIGHT, LEAST_WIDTH, Block, Box, arrange_blocks
from ddpmon.tui.screens.view import HEAD_AND_KEYS
from ddpmon.tui.screens.world import divide_lines, most_map_lines

sizes = st.integers(0, 260)
view_requests = st.one_of(st.integers(1, 300), st.just(ALL))
blocks = st.builds(Block, st.integers(1, 200), st.integers(1, 60), view_requests, view_requests)
TABLE = Block(60, 3, 160, 6)
DETAIL = Block(50, 8, ALL, 30)
SIDE = Block(40, 4, 40, 10)


@given(st.lists(blocks, min_size=1, max_size=6), sizes, st.integers(0, 80))
def test_blocks_stay_inside_do_not_overlap_and_have_what_they_need(wanted, width, height):
    boxes = arrange_blocks(wanted, width, height)
    assert len(boxes) == len(wanted)
    placed = [box for box in boxes if box is not None]
    for box in placed:
        assert 0 <= box.x <= box.x + box.width <= width
        assert 0 <= box.y <= box.y + box.height <= height
    for place, one in enumerate(placed):
        for other in placed[:place]:
            apart = one.x >= other.x + other.width + AIR or other.x >= one.x + one.width + AIR
            assert apart or one.y >= other.y + other.height or other.y >= one.y + one.height
    for block, box in zip(wanted[1:], boxes[1:], strict=True):
        if box is not None:
            assert box.width >= block.least_width
            assert box.height >= min(block.least_height, block.height)


@given(st.lists(blocks, min_size=1, max_size=6), sizes, st.integers(0, 80))
def test_the_first_block_is_always_whole(wanted, width, height):
    first = arrange_blocks(wanted, width, height)[0]
    assert first.height == min(height, wanted[0].height)
    assert first.width >= min(width, wanted[0].least_width)
    assert (first.x, first.y) == (0, 0)


def test_it_stands_beside_a_first_block_that_takes_all_lines_and_is_not_there_where_it_is_too_narrow():
    long = Block(60, 3, 160, 1024)
    assert arrange_blocks([long, DETAIL], 240, 66) == [Box(0, 0, 160, 66), Box(161, 0, 79, 30)]
    assert arrange_blocks([long, DETAIL], 120, 36) == [Box(0, 0, 69, 36), Box(70, 0, 50, 30)]
    assert arrange_blocks([long, DETAIL], 110, 36) == [Box(0, 0, 110, 36), None]


def test_lines_that_a_band_cannot_use_go_to_the_next():
    lanes = Block(40, 2, used=lambda lines: lines // 8 * 8)
    assert arrange_blocks([TABLE, lanes, replace(DETAIL, least_width=80)], 80, 40)[1:] == [
        Box(0, 6, 80, 24),
        Box(0, 30, 80, 10),
    ]
    assert arrange_blocks([TABLE, lanes], 80, 10)[1] == Box(0, 6, 80, 2)


def test_the_last_in_the_list_is_the_first_to_go():
    assert arrange_blocks([TABLE, DETAIL, DETAIL], 80, 23)[1:] == [Box(0, 6, 80, 9), Box(0, 15, 80, 8)]
    assert arrange_blocks([TABLE, DETAIL, DETAIL], 80, 21)[1:] == [Box(0, 6, 80, 15), None]
    assert arrange_blocks([TABLE, DETAIL, SIDE], 80, 18)[1:] == [Box(0, 6, 80, 8), Box(0, 14, 80, 4)]


@given(
    st.tuples(st.integers(LEAST_WIDTH, 300), st.integers(LEAST_HEIGHT - HEAD_AND_KEYS, 96)),
    st.integers(1, 2000),
    st.integers(1, 8),
    st.booleans(),
    st.integers(0, 80),
)
@example((160, 46), 4, 1, False, 5)
def test_a_screen_is_filled_and_no_more(size, ranks, map_lines, arriving, findings):
    width, height = size
    shared = divide_lines(
        width, height, ranks, min(map_lines, most_map_lines(height)), arriving=arriving, findings=findings
    )
    parts = shared.upper, shared.world, shared.table, shared.findings, shared.phases
    assert min(parts) >= 0
    assert sum(parts) == height
    assert shared.table >= min(ranks + 2, 3)


def test_charts_are_no_higher_than_they_tell_something_and_findings_get_the_rest():
    calm = divide_lines(240, 66, 4, 1)
    assert (calm.upper, calm.findings, calm.phases) == (24, 0, 34)
    shared = divide_lines(160, 46, 4, 1, findings=7)
    assert (shared.upper, shared.table, shared.findings, shared.phases) == (20, 6, 7, 11)
    assert divide_lines(160, 46, 4, 1, findings=40).upper == 18
    assert [divide_lines(240, 66, ranks, 1, findings=4).detail for ranks in (16, 17)] == [True, False]
    assert divide_lines(80, 20, 4, 1, findings=9).findings == 0
    assert divide_lines(160, 46, 64, 1, findings=9).findings == 0
