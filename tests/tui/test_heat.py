"""Heat: ranks through time, swept and not scrolled, folded without hiding the worst."""

import pytest

from ddpmon.hub.parts import with_parts
from ddpmon.messages import HEAT_METRICS, HEAT_STEPS, HeatRow, HeatView, HeatWish
from ddpmon.source import FakeSource
from ddpmon.tui.widgets.heatmap import cell_looks, in_words, labels, sweep
from tests.tui import golden, snapshots, through_time
from tests.tui.driving import drive
from tests.worlds import own_times, records, world_of

SIZES = ((80, 24), (160, 50))
sizes = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")


@sizes
@pytest.mark.parametrize("presses", range(len(HEAT_METRICS)), ids=HEAT_METRICS)
def test_each_metric(presses, size):
    _, text = drive(through_time.slow(), "3", *["m"] * presses, size=size)
    golden.check(f"heat-{HEAT_METRICS[presses]}-{size[0]}x{size[1]}", text)


@sizes
def test_a_thousand_ranks_fold_and_keep_the_worst(size):
    source = through_time.slow(1024, late=813, steps=60, begin=30, per_host=8)
    _, text = drive(source, "3", size=size)
    golden.check(f"heat-many-{size[0]}x{size[1]}", text)
    assert "█" in "".join(row for row in text.splitlines() if "node101" in row or "-node10" in row)
    assert "rank 813, worst of" in text


def test_columns_of_several_steps():
    _, text = drive(through_time.slow(), "3", "w")
    assert "8 steps/column" in text
    assert drive(through_time.slow(), "3", *["w"] * len(HEAT_STEPS))[1] == drive(through_time.slow(), "3")[1]


def view(cells, *, first=0, metric="own", low=-0.25, high=1.0):
    row = HeatRow(("n0", "n0"), (0, 0), 1, 0)
    return HeatView(metric, 1, first, len(cells), first + len(cells) - 1, low, high, [row], bytes(cells))


def swept(shown, width):
    return "".join(text for text, _ in sweep(shown, 0, width, cell_looks(shown)))


def test_the_newest_column_moves_and_what_is_old_stays_where_it_was():
    before = swept(view(range(1, 9), first=10, metric="wait", low=0.0), 9)
    after = swept(view(range(2, 10), first=11, metric="wait", low=0.0), 9)
    assert before.index("│") == 0
    assert after.index("│") == 1
    assert sum(a != b for a, b in zip(before, after, strict=True)) <= 2


def test_every_step_is_shown_once_in_its_own_column():
    for width in (5, 9, 20):
        for first in (0, 3, 17):
            shown = view([200] * 4, first=first)
            line = swept(shown, width)
            assert line.count("█") == min(4, width - 1)
            assert line.count("│") == 1
            assert len(line) == width


def test_marks_tell_how_far_over_the_median():
    looks = cell_looks(view([0]))
    assert len(looks) == 256
    over = [looks[1 + round((value + 0.25) / 1.25 * 253)][0] for value in (-0.2, 0.0, 0.04, 0.06, 0.11, 0.2, 1.0)]
    assert over == ["·", "·", "·", "▃", "▆", "█", "█"]
    assert (looks[0], looks[255]) == ((" ", "text"), ("✖", "bad"))


def test_a_row_says_whose_it_is_how_often_and_since_when():
    one = HeatRow(("node01.cluster", "node01.cluster"), (5, 5), 1, 5, 0.42, 141)
    assert in_words(view([0]), one) == ("rank 5 on node01: 5%+ over the median in 42% of columns, since step 141")
    many = HeatRow(("n0", "n1"), (0, 19), 20, 13, 0.0, None)
    assert in_words(view([0]), many) == ("rank 13, worst of 0-19: never 5%+ over the median")
    assert labels([one, many], 30) == ["node01    5", "n0-n1  0-19"]


def test_the_cursor_goes_from_row_to_row_and_opens_its_worst_rank():
    app, text = drive(through_time.slow(), "3")
    assert "rank 5 on node01" in text
    app, text = drive(through_time.slow(), "3", "g", "j", "j")
    assert "rank 2 on node00: 5%+ over the median in 9%" in text
    app, text = drive(through_time.slow(), "3", "g", "j", "j", "enter")
    assert app.current_mode == "inspect"
    assert "─rank 2 ·" in text
    app, text = drive(through_time.slow(), "3", "enter", "escape")
    assert app.current_mode == "heat"
    assert app.heat.map.chosen == 5


def test_a_click_chooses_a_row():
    async def click(app, pilot):
        await pilot.click(app.heat.map, offset=(20, 2))

    app, _ = drive(through_time.slow(), "3", click)
    assert app.heat.map.chosen == 0


def test_it_asks_for_what_fits_and_other_screens_for_nothing():
    source = through_time.slow()
    drive(source, "3", "m", size=(100, 30))
    assert source.wished.heat == HeatWish("wait", 1, 23, 96)
    drive(source, "3", "1")
    assert source.wished.heat is None


@pytest.mark.parametrize(("make", "said"), [(snapshots.waiting, "no step yet"), (snapshots.slow, "coming…")])
def test_before_there_is_something_it_says_so(make, said):
    assert said in drive(FakeSource(make()), "3")[1]


def test_any_size_can_be_drawn():
    for size in [(1, 1), (60, 12), (61, 13), (300, 100), (80, 14)]:
        app, _ = drive(through_time.slow(), "3", "m", "w", "j", size=size)
        assert app._exception is None


def test_a_new_column_repaints_that_column_alone():
    source = through_time.slow()
    store = source.store
    painted = []

    def one_more(app, _):
        app.heat.map.refresh = lambda *regions, **more: painted.extend(regions)
        own = own_times(1, 8)
        store.heat.append(world_of(records(own, first=241)))
        source.current = with_parts(source.plain, store, source.wished)
        app.tick()

    drive(source, "3", one_more)
    assert source.current.heat.last_step == 241
    rows = [region for region in painted if 1 <= region.y <= 16]
    assert len(rows) == 16
    assert max(region.width for region in rows) <= 2
