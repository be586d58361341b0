"""Keys that come at once, as over a slow line, mean what they mean one by one."""

from textual import events
from textual.keys import _character_to_key
from textual.widgets import Input

from ddpmon.tui import key_queue
from tests.fake_source import FakeSource
from tests.tui import snapshots
from tests.tui.driving import drive, until

NAMED = {"enter", "escape", "tab", "ctrl+p"}


def typed(*texts):
    """A step of `drive`: the letters of these texts and the keys with a name, with nothing taken between them."""

    def step(app, pilot):
        for text in texts:
            for key in [text] if text in NAMED else text:
                character = key if len(key) == 1 else None
                app.post_message(events.Key(_character_to_key(key) if character else key, character))

    return step


def quiet(app):
    """Whether all that was typed has been taken."""
    return app.key_queue.quiet


def test_an_answer_goes_to_the_question_that_is_still_being_asked():
    source = FakeSource(snapshots.slow())
    drive(source, typed("xs"), until(quiet))
    assert source.stops == [False]


def test_what_follows_an_answer_goes_to_the_screen_behind():
    source = FakeSource(snapshots.slow())
    app, _ = drive(source, typed("xc2xsxk3"), until(quiet))
    assert source.stops == [False, True]
    assert app.current_mode == "heat"


def test_a_filter_is_typed_taken_and_followed_by_another_screen():
    app, text = drive(snapshots.slow(), typed("2/rank:3-5", "enter", "3/", "escape", "2"), until(quiet))
    assert app.filter.text == "rank:3-5"
    assert app.current_mode == "ranks"
    assert "rank:3-5" in text


def test_what_is_pasted_after_the_key_that_opens_the_prompt_is_in_it():
    def paste(app, pilot):
        app.post_message(events.Paste("rank:1"))

    app, _ = drive(snapshots.slow(), typed("/"), paste, typed("enter"), until(quiet))
    assert app.filter.text == "rank:1"


def entries(into):
    """A step of `drive`: what stands in the fields of the dialog, into a list."""

    def step(app, pilot):
        into.extend(entry.value for entry in app.screen.query(Input))

    return step


def test_a_form_is_filled_in_field_by_field():
    found = []
    drive(snapshots.slow(), typed("ntrain.py", "tab", "--lr 1", "tab", "tab", "x"), until(quiet), entries(found))
    assert found[:4] == ["train.py", "--lr 1", "1", "x"]


def test_a_key_that_goes_nowhere_does_not_hold_up_the_others(monkeypatch):
    monkeypatch.setattr(key_queue, "MAX_KEY_WAIT_S", 0.02)
    follow, lost = key_queue._behind, []

    def lose_first(path, do):
        if lost:
            follow(path, do)
        else:
            lost.append(path)

    monkeypatch.setattr(key_queue, "_behind", lose_first)
    app, _ = drive(snapshots.slow(), typed("234"), until(quiet))
    assert lost
    assert app.current_mode == "comm"
