"""Charts: any quantity, its cursor and the values under it, zoom, windows, smoothing."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpmon.messages import SeriesRequest, SeriesView
from ddpmon.store.parts import with_parts
from ddpmon.tui.axis import moment_label
from ddpmon.tui.chart_choice import ChartChoice
from ddpmon.tui.frame import Frame
from ddpmon.tui.widgets.bigchart import BigChart
from ddpmon.tui.widgets.chart import AXIS_WIDTH
from tests.fake_source import FakeSource
from tests.tui import charted, golden, snapshots
from tests.tui.driving import drive, screen_text, seen


@pytest.fixture(scope="module")
def histories():
    return charted.histories_of()


@pytest.fixture
def source(histories):
    return charted.source(histories)


def body(text):
    """Between head and key bar."""
    return text.splitlines()[3:-1]


def under_cursor(text):
    """What the last two lines of the chart say, by name."""
    found = {}
    for name, value in itertools.pairwise(" ".join(body(text)[-2:]).split()):
        if name in {"at", "step", "low", "median", "high", "rank", "smoothed"}:
            found.setdefault(name, value)
    return found


@golden.both_sizes
def test_the_loss_fills_the_screen(source, size):
    golden.check("chart-loss", drive(source, "z", size=size)[1], size)


@golden.at(golden.WIDE)
def test_own_time_of_the_last_ten_minutes_smoothed_with_a_cursor(source, size):
    _, text = drive(source, "M", "M", "z", "w", "o", *["left"] * 6, size=size)
    golden.check("chart-own", text, size)


def test_m_goes_through_all_that_the_run_has_and_both_screens_agree(source):
    titles = []
    names = source.plain.quantities
    assert len(names) == 11

    def look(app, _):
        assert app.views["world"].chosen.choice.name == names[len(titles) % len(names)]
        titles.append(body(screen_text(app))[0])

    _, text = drive(source, "z", look, *["M", look] * len(names), "m", *"acc", "enter", "escape")
    assert "GPU utilization" in titles[6]
    assert "accuracy" in titles[-2]
    assert titles[0] == titles[-1]
    assert "─accuracy" in text


def test_nothing_is_asked_for_that_is_there_anyway(source):
    drive(source)
    assert source.requested.series is None
    drive(source, "M")
    assert source.requested.series == SeriesRequest(("step",), columns=2 * (39 - AXIS_WIDTH))
    drive(source, "z", "w")
    assert source.requested.series == SeriesRequest(("loss",), span_s=600.0, columns=2 * (80 - AXIS_WIDTH))
    drive(source, "z", "2", lambda app, _: app.tick())
    assert source.requested.series is None


def test_the_cursor_goes_along_the_curve_and_tells_what_is_there(source):
    at_end = under_cursor(drive(source, "z")[1])
    assert at_end["step"] == "2,400"
    back = under_cursor(drive(charted.source(source.store.histories), "z", *["left"] * 3)[1])
    further = under_cursor(drive(charted.source(source.store.histories), "z", "shift+left")[1])
    first = under_cursor(drive(charted.source(source.store.histories), "z", "g")[1])
    steps = [int(each["step"].replace(",", "")) for each in (at_end, back, further, first)]
    assert steps == sorted(steps, reverse=True)
    assert len(set(steps)) == 4
    assert steps[1] == pytest.approx(2400 - 3 * 2400 / 73, abs=30)
    assert steps[2] == pytest.approx(2400 - 10 * 2400 / 73, abs=60)
    assert float(first["median"]) > 2.5
    assert float(at_end["low"]) <= float(at_end["median"]) <= float(at_end["high"])
    assert drive(charted.source(source.store.histories), "z", "g", "G")[1] == drive(source, "z")[1]


def test_a_click_puts_the_cursor_there(source):
    async def click(app, pilot):
        await pilot.click(app.views["chart"].main, offset=(AXIS_WIDTH + 36, 5))

    app, text = drive(source, "z", click)
    series, chart = app.frame.series, app.views["chart"].main
    assert chart._at_s == pytest.approx((series.first_s + series.last_s) / 2, rel=0.02)
    assert chart._span_s is None, "a click is no drag"
    assert int(under_cursor(text)["step"].replace(",", "")) == pytest.approx(1290, abs=30)


def test_zoom_keeps_the_cursor_where_it_is_and_gets_finer_data(source):
    app, wide = drive(source, "z", *["shift+left"] * 3)
    place = body(wide)[-4].index("┴")
    at = under_cursor(wide)
    app, narrow = drive(charted.source(source.store.histories), "z", *["shift+left"] * 3, "plus", "plus", "plus")
    chart = app.views["chart"].main
    assert abs(body(narrow)[-4].index("┴") - place) <= 1
    assert app.frame.series.merged < source.current.series.merged
    assert chart._span_s == pytest.approx((source.current.series.last_s - 20) / 8, rel=0.01)
    assert int(under_cursor(narrow)["step"].replace(",", "")) == pytest.approx(int(at["step"].replace(",", "")), abs=20)
    app, again = drive(charted.source(source.store.histories), "z", *["plus"] * 3, *["minus"] * 4)
    assert (app.views["chart"].main._span_s, app.views["chart"].main._end_s) == (None, None)
    assert again == drive(charted.source(source.store.histories), "z")[1]


def test_zoom_ends_where_there_is_nothing_finer(source):
    app, text = drive(source, "z", *["plus"] * 30)
    assert app.views["chart"].main._span_s == 1.0
    assert "one step per point" in text
    assert under_cursor(text)["step"] == "2,400"


def test_the_cursor_takes_the_chart_along_when_it_leaves_it(source):
    app, text = drive(source, "z", "plus", "plus", "plus", *["shift+left"] * 12)
    chart = app.views["chart"].main
    series = app.frame.series
    assert chart._end_s < series.last_s - chart._span_s / 2
    assert chart._end_s - chart._span_s <= chart._at_s <= chart._end_s
    assert "┴" in text
    app, text = drive(charted.source(source.store.histories), "z", "plus", "pageup", "pageup", "pageup")
    assert app.views["chart"].main._at_s == series.first_s
    app, text = drive(charted.source(source.store.histories), "z", "plus", "plus", "pageup", "pageup", "pagedown", "G")
    assert (app.views["chart"].main._at_s, app.views["chart"].main._end_s) == (None, None)


def test_windows_are_those_that_the_run_is_long_enough_for(source):
    spans, texts = [], []
    look = [lambda app, _: spans.append(app.views["chart"].main._span_s), seen(texts)]
    drive(source, "z", *look, *["w", *look] * 4)
    assert spans == [None, 600.0, 60.0, None, 600.0]
    assert "last 10 min of 17 min" in texts[1]


def test_a_window_goes_on_with_the_run_and_a_stretch_of_the_past_stays():
    histories = charted.histories_of(steps=600, samples=False)
    later = charted.histories_of(steps=700, samples=False)

    def go_on(app, _):
        source = app.playback.source
        source.store.histories = later
        source.plain = snapshots.replace(source.plain, version=8, at=source.plain.at + 40)
        source.current = with_parts(source.plain, source.store, source.requested)
        app.tick()

    _, text = drive(charted.source(histories), "z", "w", go_on)
    assert under_cursor(text)["step"] == "700"
    before = drive(charted.source(histories), "z", *["plus"] * 2, "pageup")[1]
    after = drive(charted.source(histories), "z", *["plus"] * 2, "pageup", go_on)[1]
    assert body(after)[1:] == body(before)[1:]


def test_smoothing_is_named_and_the_raw_curve_stays(source):
    texts = []
    drive(source, "z", seen(texts), *["o", seen(texts)] * 3)
    assert "smoothed 0.6" in texts[1]
    assert "smoothed 0.9" in texts[2]
    assert texts[3] == texts[0]
    raw, some = under_cursor(texts[0]), under_cursor(texts[1])
    assert {key: some[key] for key in raw} == raw


def test_a_held_screen_has_all_charts_up_to_then(histories):
    """Only what is asked for comes with a snapshot: the past is asked for again."""
    source = charted.source(charted.histories_of(steps=1200))

    def go_on(app, _):
        source.store.histories = histories
        source.plain = snapshots.replace(source.plain, version=8, at=source.plain.at + 400)
        source.current = with_parts(source.plain, source.store, source.requested)
        app.tick()

    app, text = drive(source, "z", "space", go_on, "M", "M", "w", "left")
    assert "FROZEN" in text
    assert 1100 < int(under_cursor(text)["step"].replace(",", "")) <= 1200
    assert source.requested.series.end_s == pytest.approx(506, abs=1)
    assert app.frame.series.name == "own"
    _, text = drive(source, "z", "space", go_on, "[", "m", "end", "enter")
    assert "accuracy" in body(text)[0]


def view(seconds, low, median, high, name="loss", **more):
    count = len(seconds)
    first, last = (seconds[0], seconds[-1]) if count else (0.0, 0.0)
    return SeriesView(name, list(seconds), list(range(count)), low, median, high, [0] * count, 1, first, last, **more)


def drawn(series, width=60, height=20, **choice):
    """The lines of a big chart of a series, as text."""
    chart = BigChart(ChartChoice(series.name, **choice))
    frame = Frame(snapshots.running(), series=series)
    chart.frame = frame
    chart._size = chart._container_size = type(chart.size)(width, height)
    return ["".join(text for text, _ in line) for line in chart.draw(frame, width, height)]


def test_no_point_and_one_point():
    assert "no loss recorded yet" in "\n".join(drawn(view([], [], [], [])))
    one = drawn(view([5.0], [1.0], [2.0], [3.0]))
    assert "median 2.000" in one[-1]
    assert "3.000" in one[1]


def test_values_that_are_no_numbers_are_marked_and_told():
    nan, inf = math.nan, math.inf
    lines = drawn(view([1.0, 2.0, 3.0], [1.0, nan, 1.0], [2.0, nan, 2.0], [3.0, inf, 3.0]))
    rule = next(line for line in lines if "└" in line)
    assert rule.count("✖") == 1
    assert rule.index("✖") == pytest.approx(AXIS_WIDTH + 26, abs=1)
    lines = drawn(view([1.0, 2.0], [nan] * 2, [nan] * 2, [nan] * 2))
    assert "no finite value" in lines[1]
    assert "high nan" in drawn(view([1.0, 2.0], [1.0, nan], [1.0, nan], [1.0, nan]))[-1]
    assert "value –" in drawn(view([1.0, 2.0], [1.0, None], [1.0, None], [1.0, None]))[-1]


def test_a_first_value_far_over_all_others_is_cut_off_and_told():
    seconds, loss = [float(at) for at in range(30)], [100.0, *[2.0] * 29]
    lines = drawn(view(seconds, loss, loss, loss))
    assert "cut, up to 100.0" in lines[0]
    assert lines[1].split()[0].startswith("3.000")
    assert "cut" not in drawn(view(seconds, loss, loss, loss), log=True)[0]


def test_lengths_begin_at_zero_and_losses_at_the_lowest():
    seconds, values = [1.0, 2.0, 3.0], [30.0, 32.0, 31.0]
    for name, bottom in (("own", "0"), ("step", "0"), ("loss", "30.00")):
        lines = drawn(view(seconds, values, values, values, name))
        rule = next(place for place, line in enumerate(lines) if "└" in line)
        assert lines[rule - 1].split()[0] == bottom


def test_a_log_scale_has_no_place_for_zero_and_says_so():
    lines = drawn(view([1.0, 2.0], [0.0, 0.0], [0.0, -1.0], [0.0, 0.0]), log=True)
    assert "needs values above 0" in lines[1]
    lines = drawn(view([1.0, 2.0, 3.0], [0.0, 1.0, 10.0], [0.0, 1.0, 10.0], [0.0, 1.0, 10.0]), log=True)
    assert lines[1].split()[0] == "10.00"
    assert "without values" in lines[0]


FLOATS = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 1e9), FLOATS, FLOATS, FLOATS), max_size=20),
    st.integers(1, 200), st.integers(1, 60), st.booleans(), st.sampled_from((0.0, 0.6, 0.9)),
    st.sampled_from(("loss", "own", "wait", "gpu", "log:x")),
)  # fmt: skip
def test_any_series_fits_any_place(points, width, height, log, smoothing, name):
    points = sorted(points, key=lambda point: point[0])
    seconds, low, median, high = ([point[i] for point in points] for i in range(4))
    lines = drawn(view(seconds, low, median, high, name), width, height, log=log, smoothing=smoothing)
    assert lines


def test_times_are_as_fine_as_what_is_shown():
    assert moment_label(7.256, 5.0) == "7.25s"
    assert moment_label(67.25, 60.0) == "1m07.2s"
    assert moment_label(3600 + 67.25, 60.0) == "1h01m07.2s"
    assert moment_label(3600 + 67.25, 600.0) == "1h01m07s"
    assert moment_label(3 * 3600 + 67.25, 9000.0) == "3h01m"
    assert moment_label(59.96, 60.0) == "59.9s"
    assert moment_label(math.nan, 1.0) == "–"


def test_a_cursor_that_moves_repaints_little(source):
    painted = []

    def watch(app, _):
        app.views["chart"].main.refresh = lambda *regions, **more: painted.append(regions)

    drive(source, "z", "left", "left", watch, "left", size=(160, 50))
    curve = [region for regions in painted for region in regions if 0 < region.y < 40]
    assert curve
    assert max(region.width for region in curve) <= 3


def test_an_answer_that_is_late_is_waited_for():
    calm = snapshots.replace(snapshots.running(), quantities=["loss", "wait"])
    assert "coming…" in drive(FakeSource(calm), "M")[1]
    assert "coming…" in drive(FakeSource(calm), "M", "z")[1]


def test_a_world_of_one_rank_has_no_band_and_no_worst_rank():
    loss = np.linspace(3.0, 1.0, 300)[:, None]
    histories = charted.histories_of(300, 1, 0, 0, loss=loss)
    _, text = drive(charted.source(histories), "z")
    assert body(text)[0].split("─")[1].endswith("━ median    low to high")
    assert "rank" not in body(text)[-1]
    _, text = drive(charted.source(histories), "z", *["plus"] * 3)
    assert body(text)[-1].split() == ["value", "1.000"]
