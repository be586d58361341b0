"""Every state at both sizes, as a person sees it."""

import pytest

from tests.fake_source import FakeSource
from tests.tui import golden, inspected, odd, snapshots
from tests.tui.driving import drive, until


@golden.of_states(
    {state: [golden.NARROW] for state in snapshots.STATES} | {"slow": golden.SIZES, "failed": golden.SIZES}
)
def test_state(state, size):
    _, text = drive(snapshots.STATES[state](), size=size)
    golden.check(f"{state}", text, size)


def test_stale():
    golden.check("stale", drive(FakeSource(snapshots.slow(), silent=14.0))[1], golden.NARROW)


@golden.both_sizes
def test_before_the_first_snapshot(size):
    rows = drive(FakeSource(), size=size)[1].splitlines()
    assert rows[:2] == [" ◌ STARTING", " starting the hub…"]
    assert "no rank yet" in "".join(rows)


@golden.at((60, 12), (59, 12), (40, 20), (20, 5), (8, 2))
def test_small_terminals_show_the_head_at_least(size):
    _, text = drive(snapshots.slow(), size=size)
    assert text.split()[:2] == ["▲", "SLOW"]
    assert "rank 13" in " ".join(text.split()) or size[0] < 20
    assert ("─ranks" in text) == (size == (60, 12))


@pytest.mark.parametrize(("key", "name"), [("1", "World"), ("4", "Comm"), ("7", "Logs"), ("8", "Runs")])
def test_a_terminal_too_small_for_a_screen_shows_the_size_that_the_screen_needs(key, name):
    _, text = drive(snapshots.slow(), key, size=(40, 12))
    assert f"{name} needs a terminal of at least 60x12." in " ".join(text.split())


def test_dialogs_and_help():
    golden.check("stop", drive(snapshots.slow(), "x")[1], golden.NARROW)
    golden.check("interrupt", drive(snapshots.slow(), "ctrl+c", size=(60, 12), owns_run=True)[1], (60, 12))
    golden.check("help", drive(snapshots.slow(), "question_mark")[1], golden.NARROW)


def test_a_thousand_ranks_fold_and_keep_the_worst():
    _, text = drive(odd.many(), size=(80, 24))
    assert "✖" in text
    assert "█" in text.split("ranks, slowest first", maxsplit=1)[0].split("✖ dead")[-1]


def test_missing_values_are_a_dash_and_never_an_error():
    _, text = drive(odd.empty(), size=(160, 50))
    assert "–" in text
    assert "None" not in text


@pytest.mark.parametrize("theme", ["ddpmon-dark", "ddpmon-light", "ansi-dark", "nord"])
def test_what_is_wrong_is_bold_in_every_theme(theme):
    def look(app, _):
        head = app.screen._compositor.render_strips()[0]
        assert any("SLOW" in segment.text and segment.style.bold for segment in head)

    def change(app, _):
        app.theme = theme

    drive(snapshots.slow(), change, look)


def test_the_same_snapshot_is_not_painted_twice():
    source = FakeSource(snapshots.slow())
    painted = []

    def watch_paints(app, _):
        for pane in app.views["world"].panes:
            pane.refresh = lambda *regions, pane=pane, **more: painted.append((pane.id, regions))
        app.tick()
        assert painted == []
        source.current = snapshots.replace(source.current, step=source.current.step + 1, version=8)
        app.tick()

    drive(source, watch_paints)
    assert [name for name, _ in painted] == ["head"]


def test_the_room_that_few_ranks_leave_on_world_tells_what_is_wrong_and_where_a_step_goes():
    source = inspected.late()
    _, text = drive(source, size=(160, 50))
    golden.check("world-few", text, golden.WIDE)
    _, text = drive(source, "G", size=(160, 50))
    assert "rank 1" in next(row for row in text.splitlines() if "all ranks" in row)
    assert source.requested.inspect is None


def test_on_a_tall_screen_the_rank_under_the_cursor_of_world_stands_beside_the_mean_step():
    source = inspected.late()
    there = until(lambda _: source.requested.inspect is not None and source.requested.inspect.listed == [1])
    _, text = drive(source, "G", there, *[lambda app, _: app.tick()] * 2, size=(240, 70))
    assert "─rank 1 · node00 · cpu" in text
    assert "epoch 4  loss" in text
