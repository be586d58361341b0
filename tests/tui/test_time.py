"""Moving through time: a recording that plays, and the last snapshots of a run that goes on."""

import pytest

from ddpmon.messages import Event
from ddpmon.tui import keys, playback
from tests.fake_source import FakeSource
from tests.tui import golden, snapshots, through_time
from tests.tui.driving import drive, until
from tests.tui.tape import replaying


def test_replay():
    golden.check("replay", drive(replaying(snapshots.slow()), size=golden.WIDE)[1], golden.WIDE)


def test_replay_paused_at_its_end():
    source = replaying(snapshots.done(), at_s=632.0, paused=True)
    golden.check("replay-end", drive(source)[1], golden.NARROW)


def test_the_keys_move_the_recording():
    source = replaying(snapshots.slow())
    drive(source, "[", "]", "{", "}", ",", ".", "<", ">")
    assert source.tape.asked == [
        ("skip", -1), ("skip", 1), ("jump", -1), ("jump", 1), ("step", -1), ("step", 1), ("faster", -1), ("faster", 1),
    ]  # fmt: skip


def test_space_pauses_and_goes_on_and_does_not_freeze():
    source = replaying(snapshots.slow())
    app, text = drive(source, "space")
    assert source.tape.cursor.paused
    assert "REPLAY" in text
    assert "paused" in text.splitlines()[0]
    assert "space go on" in text.splitlines()[-1]
    assert app.playback.held is None
    assert "x4" in drive(source, "space")[1].splitlines()[0]


def test_another_source_can_be_moved_through_before_its_first_frame():
    moved = playback.Playback(FakeSource(snapshots.slow()))
    moved.switch_source(FakeSource(snapshots.done()))
    moved.skip(-1)
    assert (moved.shown.state, moved.behind_s) == ("done", 0.0)


@pytest.mark.parametrize("opening", ["enter", "7"])
def test_where_brackets_go_from_rank_to_rank_they_do_not_move_time(opening):
    source = replaying(snapshots.slow())
    drive(source, opening, "]", "[", "}")
    assert source.tape.asked == [("jump", 1)]


def test_a_replay_can_be_left_but_not_stopped_or_frozen():
    _, text = drive(replaying(snapshots.slow()), "question_mark", size=(140, 60))
    assert "to the next event" in text
    assert "freeze the screen, and go to the previous event" not in text
    assert "freeze the screen" not in text
    assert "stop the run (asks" not in text
    assert "q quit" in drive(replaying(snapshots.slow()))[1].splitlines()[-1]
    _, live = drive(snapshots.slow(), "question_mark", size=(140, 60))
    assert "to the next event, and" not in live
    assert "freeze the screen, and go to the previous event" in live
    assert "freeze the screen" in live


def test_no_two_keys_of_a_screen_do_different_things():
    """Keys that mean one thing live and another in a replay share their action."""
    for view in ("world", "ranks", "inspect", "logs", "runs", "comm", "devices"):
        names = [name for binding in keys.bindings(view) for name in binding.key.split(",")]
        assert len(names) == len(set(names)), view


def passing(count):
    """A run that goes on, and a function that lets a second of it pass."""
    source = FakeSource(snapshots.slow())
    first = source.current

    def pass_(app, _):
        for _ in range(count):
            now = source.current
            source.current = snapshots.replace(now, version=now.version + 1, at=now.at + 1, step=now.step + 1)
            app.tick()

    return source, first, pass_


def test_brackets_hold_a_live_run_and_step_through_its_last_snapshots():
    source, first, later = passing(10)
    app, text = drive(source, later, "[", "[", "[", size=(160, 50))
    assert app.playback.shown.step == first.step + 7
    assert "FROZEN 3s" in text.splitlines()[0]
    assert f"{first.step + 7:,}" in text.splitlines()[0]
    source, first, later = passing(10)
    assert drive(source, later, "[", "[", "]")[0].playback.shown.step == first.step + 9
    source, first, later = passing(10)
    assert drive(source, later, *["["] * 40)[0].playback.shown.step == first.step
    source, first, later = passing(10)
    assert drive(source, later, "[", *["]"] * 9)[0].playback.shown.step == first.step + 10


def test_what_comes_while_it_is_held_is_kept_and_shown_afterwards():
    source, first, later = passing(5)
    app, text = drive(source, later, "space", later, "]", "]", size=(160, 50))
    assert app.playback.shown.step == first.step + 7
    assert "FROZEN 3s" in text
    source, first, later = passing(5)
    app, text = drive(source, later, "[", later, "space", size=(160, 50))
    assert app.playback.shown.step == first.step + 10
    assert "FROZEN" not in text


def held_by(*keys):
    """The second that these keys hold of a run with events after 2.5 and 6 seconds, and the screen then."""
    source, first, later = passing(10)

    def goes_on(app, pilot):
        later(app, pilot)
        told = [Event(first.at + at, "warn", "something") for at in (-50.0, 2.5, 6.0)]
        source.current = snapshots.replace(source.current, version=99, at=first.at + 11, events=told)
        app.playback.take_snapshot()

    app, text = drive(source, goes_on, *keys, size=(160, 50))
    return app.playback.shown.at - first.at, text


def test_braces_hold_a_live_run_at_its_events():
    assert held_by("{")[0] == 6
    assert held_by("{", "{")[0] == 3
    assert held_by("{", "{", "}")[0] == 6
    second, text = held_by("{", "{", "{")
    assert second == 3
    assert "no earlier event in the 11 s in memory" in text
    assert "no later event yet" in held_by("{", "}")[1]
    assert "no later event yet" in held_by("}")[1]


def test_what_is_kept_is_bounded_and_less_of_a_large_world():
    source, _, later = passing(playback.HISTORY_SNAPSHOTS + 20)
    app, _ = drive(source, later, *["["] * 2)
    assert len(app.playback._history) == 8192 // 64
    source = FakeSource(snapshots.running(4, 4))
    app, _ = drive(source, *[lambda app, _: step(app, source) for _ in range(playback.HISTORY_SNAPSHOTS + 20)])
    assert len(app.playback._history) == playback.HISTORY_SNAPSHOTS


def step(app, source):
    source.current = snapshots.replace(source.current, version=source.current.version + 1)
    app.playback.take_snapshot()


HEAT, TIMELINE = "3", "5"
past = pytest.mark.parametrize("screen", [HEAT, TIMELINE])


@past
@pytest.mark.parametrize(("make", "said"), [(snapshots.waiting, "no step yet"), (snapshots.slow, "coming…")])
def test_before_there_is_a_past_to_show_it_says_so(screen, make, said):
    assert said in drive(FakeSource(make()), screen)[1]


@past
def test_what_was_not_kept_of_a_held_screen_is_not_said_to_be_there(screen):
    def hold(app, _):
        app.action_freeze()

    _, text = drive(through_time.slow(16), screen, hold, "slash", *"3-5", "enter")
    assert "/ 3 of 16 ranks: 3-5" in text
    assert "no longer in memory; space resumes" in text
    _, text = drive(through_time.slow(16), screen, hold, "slash", *"3-5", "enter", "escape")
    assert "no longer in memory" not in text
    _, text = drive(through_time.slow(16), screen, hold, "slash", *"3-5", "enter", "space")
    assert "no longer in memory" not in text


def test_what_a_key_asked_for_is_shown_as_soon_as_it_is_there(monkeypatch):
    monkeypatch.setattr("ddpmon.tui.showing.SCREEN_FRAME_S", 3600.0)
    source = FakeSource(snapshots.slow())

    def answer(*_):
        source.current = snapshots.done()

    shown = drive(source, TIMELINE, "w", answer, until(lambda app: app.playback.newest is source.current))[1]
    assert "DONE" in shown.splitlines()[0]


def test_what_a_larger_screen_shows_more_is_asked_for_at_once(monkeypatch):
    monkeypatch.setattr("ddpmon.tui.showing.SCREEN_FRAME_S", 3600.0)
    source = through_time.slow(16)

    drive(
        source, HEAT, lambda _, pilot: pilot.resize_terminal(120, 36), until(lambda _: source.requested.heat.rows > 17)
    )
    assert (source.requested.heat.rows, source.requested.heat.columns) == (19, 100)
