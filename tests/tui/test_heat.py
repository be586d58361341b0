"""Heat: ranks through time from left to right, folded without hiding the worst."""

import re

import msgspec
import numpy as np
import pytest

from ddpmon.messages import HEAT_METRICS, HEAT_STEPS, HeatRow, HeatView, SeriesRequest
from ddpmon.store.parts import with_parts
from ddpmon.tui.widgets.heatmap import TITLES, axes, cell_glyphs
from ddpmon.tui.widgets.heatwords import cell_in_words, in_words, labels
from tests.tui import golden, inspected, snapshots, through_time
from tests.tui.driving import drive, seen, until
from tests.worlds import own_times, world_with

LEGENDS = {"wait": "▁ 0%  ▄ half  █ all of it", "gpu": "· busy  ▃ <75%  ▆ <50%  █ <25%", "loss": "✖ not finite"}
"""Of metrics whose cells are no lateness."""


@golden.both_sizes
def test_own_time(size):
    golden.check("heat-own", drive(through_time.slow(gpu=True), "3", tick, tick, size=size)[1], size)


def test_each_metric_has_its_title_and_its_legend():
    texts = []
    source = through_time.slow(gpu=True)
    drive(source, "3", *[tick, tick, seen(texts), "M"] * len(HEAT_METRICS), size=golden.WIDE)
    for metric, text in zip(HEAT_METRICS, texts, strict=True):
        title = text.splitlines()[3]
        named = TITLES[metric]
        assert title.startswith(f"─heat: {named}"), metric
        assert LEGENDS.get(metric, "▁ <5%  ▃ 5%  ▆ 10%  █ 15%+") in title, metric


def test_a_thousand_ranks_fold_and_keep_the_worst():
    source = through_time.slow(1024, late=813, steps=60, begin=30, per_host=8)
    _, text = drive(source, "3", size=golden.WIDE)
    golden.check("heat-many", text, golden.WIDE)


def test_gpu_utilization_is_offered_where_a_gpu_tells_it_and_what_it_does_not_tell_is_blank():
    _, text = drive(through_time.slow(), "3", "m", "end", "enter")
    assert "heat: loss" in text
    texts = []
    drive(through_time.slow(gpu=True), "3", "m", *"gpu", "enter", seen(texts), "g", "j", "j", "j", seen(texts))
    rows = {row[18]: row for row in texts[0].splitlines()[4:] if row[18:19].isdigit()}
    assert not rows["3"][20:].strip()
    assert rows["5"].count("▆") > 10
    assert "█" not in rows["0"] + rows["4"]
    assert "rank 5 on node01: GPU utilization under 50%" in texts[0]
    assert "rank 3 on node00: nothing recorded" in texts[1]


def test_metrics_go_round_and_a_list_has_them_all():
    offered, shown = HEAT_METRICS[:-1], []

    def note(app, _):
        shown.append(app.views["heat"].main.metric)

    drive(through_time.slow(), "3", *[note, "M"] * len(offered), note, "m", *"LOS", "enter", note)
    assert shown == [*offered, offered[0], "loss"]


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
    assert source.requested.heat.rows == 6
    assert "heat by host" in text
    assert "node01   4-7" in text
    assert "rank 5 alone of 4 (4-7): late" in text
    assert app.views["heat"].main.chosen_rank() == 5
    assert "heat by host" not in drive(source, "3", "f", "f")[1]


def test_the_filter_holds_here():
    source = through_time.slow(16, per_host=4)
    app, text = drive(source, "3", "slash", *"1,4-6", "enter", lambda app, _: app.tick())
    assert source.requested.heat.ranks == ((1, 1), (4, 6))
    assert "/ 4 of 16 ranks: 1,4-6" in text
    assert [row.ranks for row in source.current.heat.rows] == [(1, 1), (4, 4), (5, 5), (6, 6)]
    assert app.views["heat"].main.chosen_rank() == 5
    texts = []
    _, text = drive(source, "3", "slash", *"99", "enter", tick, seen(texts), "escape")
    assert "no rank matches the filter" in texts[0]
    assert "of 16 ranks" not in text
    assert source.requested.heat.ranks is None


def tick(app, _):
    """A further frame: what fits is known, and asked for."""
    app.tick()


def view(cells, *, first=0, metric="own", low=-0.25, high=1.0, beyond_chance=False):
    row = HeatRow(("n0", "n0"), (0, 0), 1, 0)
    last = first + len(cells) - 1
    return HeatView(metric, 1, first, len(cells), last, low, high, [row], bytes(cells), beyond_chance)


@pytest.mark.parametrize(("shows", "cell", "words"), [
    ("own", 0, "nothing recorded"), ("own", 255, "not finite"), ("own", 254, "+100.0% against the median"),
    ("own", 1, "-25.0% against the median"), ("wait", 254, "100% of the step"), ("gpu", 254, "GPU utilization 0%"),
    ("loss", 254, "loss 1.000"), ("noise", 1, "within the noise"), ("noise", 2, "late, by less than 5%"),
    ("noise", 3, "late, by 5% or more"), ("noise", 9, "late, by 15% or more"),
])  # fmt: skip
def test_a_mark_in_words(shows, cell, words):
    shown = view([cell], first=7, metric="own" if shows == "noise" else shows, beyond_chance=shows == "noise")
    assert cell_in_words(shown, shown.rows[0], 0, cell) == f"step 7, rank 0: {words}"


def test_the_map_fills_from_the_left_and_then_moves_by_a_column_for_each_of_its_steps():
    own = own_times(100, 4)
    own[::7, 1, 0] += 9.0
    store, rows = through_time.store_of(own[:30]), []
    source = through_time.GrantingSource(snapshots.running(4, 8, own_ms=27.0), store)

    def further(steps):
        def add(app, _):
            store.heat.append(world_with(own[store.heat.last_step : steps], first=store.heat.last_step + 1))
            source.current = with_parts(source.plain, store, source.requested)
            app.tick()

        return add

    def look(app, _):
        pane = app.views["heat"].main
        rows.append("".join(text for text, _ in pane._rows[2])[pane._left :])

    app, _ = drive(source, "3", tick, look, further(40), look, further(80), look, further(81), look)
    width = app.views["heat"].main.room[0] - app.views["heat"].main._left
    late = [all_ in range(1, 101, 7) for all_ in range(101)]
    for row, (first, last) in zip(rows, [(1, 30), (1, 40), (81 - width, 80), (82 - width, 81)], strict=True):
        assert [cell != "·" for cell in row.rstrip()] == late[first : last + 1]
        assert len(row.rstrip()) == min(last, width)


def test_below_it_are_steps_and_where_there_is_room_times():
    shown = view([1] * 100, first=1)
    steps, times = axes(msgspec.structs.replace(shown, moments=[10.0, 20.0, 30.0]), 4, 100)
    assert "".join(text for text, _ in steps).split() == ["1", "18", "34", "50", "67", "84", "step", "100"]
    assert "".join(text for text, _ in times).split() == ["10.0s", "13.3s", "16.6s", "20.0s", "23.3s", "26.6s", "30.0s"]
    unknown = axes(msgspec.structs.replace(shown, moments=[None, 20.0]), 4, 100)[1]
    assert not "".join(text for text, _ in unknown).strip()


@golden.at((80, 24), (160, 50))
def test_a_run_that_has_ended_is_shown_whole(size):
    own = own_times(1000, 4)
    own[100:, 1, 0] += 9.0
    shot = snapshots.running(4, 8, own_ms=27.0)
    ended = msgspec.structs.replace(shot, state="done")
    source = through_time.GrantingSource(ended, through_time.store_of(own))
    texts = []
    drive(source, "3", tick, tick, seen(texts), "w", tick, seen(texts), size=size)
    assert source.requested.heat.per_column == HEAT_STEPS[0]
    assert ", the whole run" in texts[0]
    assert ", the whole run" not in texts[1]
    row = next(line for line in texts[0].splitlines() if line[:20].split()[-1:] == ["1"])[20:].rstrip()
    steps = int(re.search(r"the whole run, (\d+) steps/column", texts[0])[1])
    assert len(row) == 1000 // steps + 1 <= size[0] - 20 < 1000 // (steps // 2) + 1
    assert row.index("█") in (100 // steps, 100 // steps + 1)
    assert set(row[row.index("█") :]) == {"█"}


def test_marks_tell_how_far_over_the_median():
    glyphs = cell_glyphs(view([0]))
    assert len(glyphs) == 256
    over = [glyphs[1 + round((value + 0.25) / 1.25 * 253)][0] for value in (-0.2, 0.0, 0.04, 0.06, 0.11, 0.2, 1.0)]
    assert over == ["·", "·", "·", "▃", "▆", "█", "█"]
    assert (glyphs[0], glyphs[255]) == ((" ", "text"), ("✖", "bad"))


def noisy(ranks, noise=0.15):
    own = own_times(200, ranks) * (1 + noise * np.random.default_rng(4).standard_normal((200, ranks, 1)))
    shot = snapshots.running(ranks, 8, own_ms=27.0)
    return through_time.GrantingSource(shot, through_time.store_of(own))


def test_a_world_in_which_all_stray_is_quiet_and_percentages_are_a_key_away():
    source, texts, view_requests = noisy(1024), [], []
    look = [seen(texts), lambda *_: view_requests.append(source.requested.heat.beyond_chance)]
    drive(source, "3", *look, "percent_sign", *look, "percent_sign", *look)
    quiet, percentages, again = texts
    assert not set("▁▃▆█") & set("".join(quiet.splitlines()[4:-3]))
    assert "heat: slower than peers" in quiet
    assert "· noise" in quiet
    assert percentages.count("█") > 700
    assert "· <5%" in percentages
    assert again == quiet
    assert view_requests == [True, False, True]


def test_a_row_says_whose_it_is_how_often_and_since_when():
    one = HeatRow(("node01.cluster", "node01.cluster"), (5, 5), 1, 5, 0.42, 141)
    assert in_words(view([0]), one) == "rank 5 on node01: 5%+ slower than peers in 42% of columns, since step 141"
    assert in_words(view([0], beyond_chance=True), one).endswith(": late in 42% of columns, since step 141")
    many = HeatRow(("n0", "n1"), (0, 19), 20, 13, 0.0, None)
    assert in_words(view([0]), many) == "rank 13, worst of 0-19: never 5%+ slower than peers"
    assert labels([one, many], 30) == ["node01    5", "n0-n1  0-19"]


def test_that_nothing_is_late_is_said_of_what_was_tested_only():
    row = HeatRow(("n0", "n0"), (0, 0), 1, 0)
    judged = view([1], beyond_chance=True)
    tested = msgspec.structs.replace(judged, noise=0.27)
    quiet = "rank 0 on n0: late in no column; noise alone makes single columns up to "
    assert in_words(tested, row) == f"{quiet}27% longer"
    assert in_words(msgspec.structs.replace(judged, noise=13.4), row) == f"{quiet}14x as long"
    assert in_words(judged, row) == "rank 0 on n0: too few columns yet to separate slowness from noise"
    assert in_words(judged, row, alone=True) == "rank 0 on n0: no other rank to compare with"


def test_of_folded_ranks_it_is_said_how_many_are_meant():
    def row(meant):
        return HeatRow(("n0", "n1"), (0, 19), 20, 13, 0.5, None, meant)

    shown = view([0], beyond_chance=True)
    assert in_words(shown, row(1)) == "rank 13 alone of 20 (0-19): late in 50% of columns"
    assert in_words(shown, row(3)) == "rank 13, worst of 3 of 20 (0-19): late in 50% of columns"
    assert labels([row(0), row(3)], 40, meant=True) == ["n0-n1 0-19      ", "      0-19  3/20"]
    assert labels([HeatRow(("n0", "n0"), (4, 4), 1, 4, 0.5, None, 1)], 40, meant=True) == ["n0 4"]


def test_the_cursor_goes_from_row_to_row_and_opens_its_worst_rank():
    texts = []
    app, text = drive(through_time.slow(), "3", seen(texts), "g", "j", "j", seen(texts), "enter")
    assert "rank 5 on node01" in texts[0]
    assert "rank 2 on node00: late in 10%" in texts[1]
    assert app.current_mode == "inspect"
    assert "─rank 2 ·" in text
    app, text = drive(through_time.slow(), "3", "enter", "escape")
    assert app.current_mode == "heat"
    assert app.views["heat"].main.chosen == 5


def test_it_asks_for_what_fits_and_other_screens_for_nothing():
    source = through_time.slow()
    drive(source, "3", "m", "down", "enter", size=(100, 30))
    assert source.requested.heat == SeriesRequest(("data",), per_column=1, rows=9, columns=80, beyond_chance=True)
    drive(source, "3", "1", lambda app, _: app.tick())
    assert source.requested.heat is None


def test_a_column_more_repaints_no_quiet_row():
    source = through_time.slow()
    store = source.store
    painted = []

    def one_more(app, _):
        app.views["heat"].main.refresh = lambda *regions, **more: painted.extend(regions)
        own = own_times(1, 8)
        store.heat.append(world_with(own, first=241))
        source.current = with_parts(source.plain, store, source.requested)
        app.tick()

    drive(source, "3", tick, one_more)
    assert source.current.heat.last_step == 241
    assert [region.y for region in painted if 1 <= region.y <= 9] == [3, 7]


def few(size, *keys, ranks=4, **options):
    """Some ranks, one of which has a late data phase from a step on."""
    source = inspected.late(ranks=ranks, **options)
    there = until(lambda _: source.current.heat_phases != [])
    return source, drive(source, "3", there, *keys, tick, tick, size=size)[1]


@golden.at(golden.WIDE)
def test_a_row_for_each_rank_and_phase_shows_the_cause(size):
    _, text = few(size, "j", "k")
    golden.check("heat-few", text, size)


def test_the_rank_under_the_cursor_comes_first_where_not_all_fit():
    _, text = few((120, 30), "g", "j", "j", "j", "j", "j", ranks=8)
    listed = [row.split()[1] for row in text.splitlines() if row.startswith("  rank ") and "data" in row]
    assert listed[0] == "5"
    assert len(listed) < 8


def test_ranks_that_all_fit_without_the_axis_are_not_folded():
    source = through_time.slow(64, late=5, steps=60, begin=30)
    _, text = drive(source, "3", tick, tick, size=(240, 70))
    rows = text.splitlines()[4:68]
    assert source.requested.heat.rows == 64
    assert all(re.match(rf" ›? *(node\d+ +)?{rank} ", row) for rank, row in enumerate(rows))
    assert "rank 5 on node01" in text.splitlines()[68]
    drive(source, "3", tick, tick, size=(240, 69))
    assert source.requested.heat.rows == 32


def test_what_folding_leaves_goes_to_the_phases_of_the_rank_under_the_cursor():
    source = through_time.slow(64, late=5, steps=60, begin=30)
    there = until(lambda _: source.current.heat_phases != [])
    _, text = drive(source, "3", there, tick, tick, size=(160, 50))
    assert source.requested.heat.rows == 32
    assert "█" in next(row for row in text.splitlines() if row.startswith("  rank 5 data"))


def test_phases_go_with_what_the_heat_map_shows_and_are_asked_for_of_few_ranks_only():
    source, _ = few((160, 50), "percent_sign", "w")
    view_request = source.requested.heat_phases
    assert (view_request.per_column, view_request.beyond_chance, view_request.ranks) == (8, False, ((0, 3),))
    many = through_time.slow(128, late=5, steps=60, begin=30)
    drive(many, "3", lambda app, _: app.tick(), size=(240, 70))
    assert many.requested.heat_phases is None
