"""The mouse: heads that sort, double clicks that inspect, the wheel, and a chart that is dragged over."""

import re

import pytest

from tests.fake_source import FakeSource
from tests.tui import measured, snapshots, through_time
from tests.tui.driving import drive, screen_text
from tests.tui.terminal import Terminal


def clicked(text, *, times=1):
    """A step of `drive`: click on a text."""

    async def click(app, pilot):
        rows = screen_text(app).splitlines()
        y = next(y for y, row in enumerate(rows) if text in row)
        await pilot.click(offset=(rows[y].index(text), y), times=times)

    return click


def head_of(rows):
    """The line of the heads."""
    return next(y for y, row in enumerate(rows) if y > 3 and row.lstrip().startswith("rank "))


def head(text, *, times=1):
    """A step of `drive`: click on the head of a column."""

    async def click(app, pilot):
        rows = screen_text(app).splitlines()
        y = head_of(rows)
        await pilot.click(offset=(rows[y].index(text) + 1, y), times=times)

    return click


def test_a_head_sorts_and_the_same_head_turns_the_order_round():
    _, text = drive(snapshots.slow(), "2", head("wait"), size=(160, 50))
    assert "by wait, smallest first" in text
    _, text = drive(snapshots.slow(), "2", head("wait"), head("wait▴"), size=(160, 50))
    assert "by wait, largest first" in text


@pytest.mark.parametrize(("screen", "heads", "order"), [
    ("1", ["loss"], "highest loss first"), ("1", ["rank"], "by rank"), ("4", ["wait"], "longest wait first"),
    ("4", ["wait", "wait"], "shortest wait first"), ("6", ["cpu%"], "highest cpu% first"),
    ("6", ["mem GiB"], "most mem first"), ("1", ["backward"], "slowest first"),
])  # fmt: skip
def test_heads_sort_where_the_screen_has_an_order_by_them(screen, heads, order):
    _, text = drive(measured.slow(), screen, *map(head, heads), size=(160, 50))
    assert order in text


def test_a_second_click_inspects_the_rank():
    app, text = drive(snapshots.slow(), "2", clicked(" 12 node01", times=2), size=(160, 50))
    assert app.current_mode == "inspect"
    assert "─rank 12 ·" in text
    app, _ = drive(snapshots.slow(), "2", head("own", times=2), size=(160, 50))
    assert app.current_mode == "ranks", "a head is no rank"


def test_a_second_click_inspects_on_heat_and_timeline():
    for screen in "35":
        app, _ = drive(through_time.slow(16), screen, lambda app, _: app.tick(), second_click_on_the_third_row,
                       size=(120, 40))  # fmt: skip
        assert app.current_mode == "inspect"


async def second_click_on_the_third_row(app, pilot):
    await pilot.click(app.view.main, offset=(20, 3), times=2)


def big_chart(app):
    return app.views["chart"].main


def test_a_drag_zooms_and_the_click_that_ends_it_moves_no_cursor():
    async def drag(app, pilot):
        chart = big_chart(app)
        await pilot.mouse_down(chart, offset=(30, 5))
        await pilot.hover(chart, offset=(60, 6))
        await pilot.mouse_up(chart, offset=(60, 6))

    app, text = drive(FakeSource(snapshots.slow()), "z", drag)
    chart = big_chart(app)
    series = snapshots.slow().loss_series
    whole = series.seconds[-1] - series.seconds[0]
    assert chart._span_s == pytest.approx(whole * 30 / 73)
    assert chart._end_s == chart._at_s == pytest.approx(series.seconds[0] + whole * 53.5 / 73)
    assert " of 15 min" in text


def test_the_values_under_the_mouse_are_shown_until_it_leaves():
    shown = []

    async def hover(app, pilot):
        for target, offset in ((big_chart(app), (10, 5)), (app.view.keys, (5, 0))):
            await pilot.hover(target, offset=offset)
            shown.append(next(row for row in screen_text(app).splitlines() if row.startswith(" at ")))

    drive(FakeSource(snapshots.slow()), "z", hover)
    assert shown[0] != shown[1]


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
def test_the_charts_of_world_show_the_values_under_the_mouse_until_it_leaves(size):
    titles = []

    async def hover(app, pilot):
        for chart in (app.view.own, app.view.chosen):
            y = chart.region.y
            for target, offset in ((chart, (10, 3)), (chart, (2, 3)), (app.view.keys, (5, 0))):
                await pilot.hover(target, offset=offset)
                titles.append(screen_text(app).splitlines()[y][chart.region.x : chart.region.right])

    drive(FakeSource(snapshots.slow()), hover, size=size)
    for pointed, axis, left in (titles[:3], titles[3:]):
        assert re.search(r" at \d+m\d\ds: [\d.]+ \([\d.]+–[\d.]+\)", pointed), pointed
        assert " at " not in axis + left


def test_heat_shows_what_the_mark_under_the_mouse_stands_for():
    notes = []

    async def hover(app, pilot):
        app.tick()
        await pilot.pause()
        for x, y in ((60, 3), (2, 3), (60, 0)):
            await pilot.hover(app.view.main, offset=(x, y))
            notes.append(screen_text(app).splitlines()[app.view.main.region.bottom - 1])

    drive(through_time.slow(16), "3", hover, size=(120, 40))
    assert re.match(r" step [\d,]+, rank \d+: (within the noise|late)", notes[0]), notes
    assert notes[1] == notes[2] != notes[0]


@pytest.mark.terminal
def test_the_mouse_in_a_terminal():
    with Terminal("tests.tui.show", "slow") as terminal:
        terminal.wait_for("q detach")
        terminal.press(b"2")
        shown = terminal.wait_for("problems first, then own time").splitlines()
        y = head_of(shown)
        head = b"\x1b[<0;%d;%d%%c" % (shown[y].index("excess") + 3, y + 1)
        terminal.press(head % b"M" + head % b"m")
        terminal.wait_for("by excess, largest first")
        terminal.press(b"1z")
        terminal.wait_for("loss, all 15 min")
        terminal.press(b"\x1b[<64;40;10M")  # the wheel
        terminal.wait_for("of 15 min")
        terminal.press(b"\x1b[<65;40;10M")
        terminal.wait_for("loss, all 15 min")
        terminal.leave()
