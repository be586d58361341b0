"""Heat: ranks through time, swept and not scrolled, folded without hiding the worst."""

import pytest

from ddpmon.messages import HEAT_METRICS, HEAT_STEPS, HeatRow, HeatView, HeatWish
from ddpmon.store.parts import with_parts
from ddpmon.tui.widgets.heatmap import cell_looks, in_words, labels, sweep
from tests.tui import golden, through_time
from tests.tui.driving import drive
from tests.worlds import own_times, records, world_of

SIZES = ((80, 24), (160, 50))
sizes = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")


@sizes
@pytest.mark.parametrize("presses", range(len(HEAT_METRICS)), ids=HEAT_METRICS)
def test_each_metric(presses, size):
    _, text = drive(through_time.slow(gpu=True), "3", *["m"] * presses, size=size)
    golden.check(f"heat-{HEAT_METRICS[presses]}-{size[0]}x{size[1]}", text)


@sizes
def test_a_thousand_ranks_fold_and_keep_the_worst(size):
    source = through_time.slow(1024, late=813, steps=60, begin=30, per_host=8)
    _, text = drive(source, "3", size=size)
    golden.check(f"heat-many-{size[0]}x{size[1]}", text)
    assert "█" in "".join(row for row in text.splitlines() if "node101" in row or "-node10" in row)
    assert "rank 813, worst of" in text


def test_gpu_utilization_is_offered_where_a_gpu_tells_it_and_what_it_does_not_tell_is_blank():
    _, text = drive(through_time.slow(), "3", "M")
    assert "heat: loss" in text
    _, text = drive(through_time.slow(gpu=True), "3", "M")
    rows = {row[8]: row for row in text.splitlines()[4:] if row[8:9].isdigit()}
    assert set(rows["3"][10:]) <= set(" │")
    assert rows["5"].count("▆") > 10
    assert "█" not in rows["0"] + rows["4"]
    assert "rank 5 on node01: under 50% busy" in text
    _, text = drive(through_time.slow(gpu=True), "3", "M", "g", "j", "j", "j")
    assert "rank 3 on node00: nothing known" in text


def test_metrics_go_round_both_ways():
    for presses, metric in enumerate(HEAT_METRICS[:-1]):
        assert drive(through_time.slow(), "3", *"m" * presses)[0].views["heat"].pane.metric == metric
    assert drive(through_time.slow(), "3", *"mmM")[0].views["heat"].pane.metric == HEAT_METRICS[1]


def test_a_rule_parts_hosts_where_there_is_room():
    def ruled(source, **options):
        return sum(set(row) == {"─"} for row in drive(source, "3", **options)[1].splitlines())

    assert ruled(through_time.slow()) == 1
    assert ruled(through_time.slow(16, per_host=4)) == 0
    assert ruled(through_time.slow(16, per_host=4), size=(80, 26)) == 3
    assert ruled(through_time.slow(4, late=1, per_host=4)) == 0
    assert ruled(through_time.slow(6, per_host=1)) == 0


def test_f_folds_to_a_row_for_each_host():
    source = through_time.slow(24, per_host=4)
    app, text = drive(source, "3", "f", lambda app, _: app.tick())
    assert source.wished.heat.rows == 6
    assert "heat by host" in text
    assert "node01   4-7" in text
    assert "rank 5, worst of 4-7" in text
    assert app.views["heat"].pane.chosen_rank() == 5
    assert "heat by host" not in drive(source, "3", "f", "f")[1]


def test_the_filter_holds_here():
    source = through_time.slow(16, per_host=4)
    app, text = drive(source, "3", "slash", *"1,4-6", "enter", lambda app, _: app.tick())
    assert source.wished.heat.ranks == ((1, 1), (4, 6))
    assert "/ 4 of 16 ranks: 1,4-6" in text
    assert [row.ranks for row in source.current.heat.rows] == [(1, 1), (4, 4), (5, 5), (6, 6)]
    assert app.views["heat"].pane.chosen_rank() == 5
    assert "no rank fits the filter" in drive(source, "3", "slash", *"99", "enter")[1]
    _, text = drive(source, "3", "slash", *"99", "enter", "escape")
    assert "of 16 ranks" not in text
    assert source.wished.heat.ranks is None


def test_ranks_that_a_filter_takes_out_of_a_row_are_not_said_to_be_in_it():
    source = through_time.slow(64, late=5, per_host=8)
    _, text = drive(source, "3", "slash", *"!7,3-4", "enter", "f", lambda app, _: app.tick())
    assert "0…6" in text
    assert "worst of 0…6" in text


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
    assert app.views["heat"].pane.chosen == 5


def test_a_click_chooses_a_row():
    async def click(app, pilot):
        await pilot.click(app.views["heat"].pane, offset=(20, 2))

    app, _ = drive(through_time.slow(), "3", click)
    assert app.views["heat"].pane.chosen == 0

    def at(y):
        async def click(app, pilot):
            await pilot.click(app.views["heat"].pane, offset=(20, y))

        return drive(through_time.slow(), "3", click)[0].views["heat"].pane.chosen

    assert [at(8), at(9), at(10)] == [3, None, 4]  # a rule lies between


def test_it_asks_for_what_fits_and_other_screens_for_nothing():
    source = through_time.slow()
    drive(source, "3", "m", size=(100, 30))
    assert source.wished.heat == HeatWish("data", 1, 23, 96)
    drive(source, "3", "1", lambda app, _: app.tick())
    assert source.wished.heat is None


def test_any_size_can_be_drawn():
    for size in [(1, 1), (10, 3), (60, 12), (61, 13), (300, 100), (80, 14)]:
        app, _ = drive(through_time.slow(gpu=True), "3", "M", "w", "f", "j", "f", "slash", *"3-9", "enter", size=size)
        assert app._exception is None


def test_a_new_column_repaints_that_column_alone():
    source = through_time.slow()
    store = source.store
    painted = []

    def one_more(app, _):
        app.views["heat"].pane.refresh = lambda *regions, **more: painted.extend(regions)
        own = own_times(1, 8)
        store.heat.append(world_of(records(own, first=241)))
        source.current = with_parts(source.plain, store, source.wished)
        app.tick()

    drive(source, "3", one_more)
    assert source.current.heat.last_step == 241
    rows = [region for region in painted if 1 <= region.y <= 17]
    assert len(rows) == 16
    assert max(region.width for region in rows) <= 2
