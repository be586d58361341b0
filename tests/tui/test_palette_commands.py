"""The command palette: whatever a key would do now, by its name, and the themes."""

import pytest

from ddpmon.tui import keys
from tests.fake_source import FakeSource
from tests.tui import snapshots, tape, through_time
from tests.tui.driving import drive


def offered(source, *steps, **options):
    """{name: what it does} of what the palette offers after some keys."""
    found = {}

    def look(app, _):
        found.update({command.title: command.help for command in app.get_system_commands(app.screen)})

    app, _ = drive(source, *steps, look, **options)
    return app, found


def chosen(source, *steps, name, **options):
    """The dashboard after a command was typed and taken in the palette."""

    async def take(app, pilot):
        await pilot.press("ctrl+p")
        await pilot.pause()
        await pilot.press(*["space" if letter == " " else letter for letter in name])
        await app.workers.wait_for_complete()
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        await pilot.pause()

    return drive(source, *steps, take, **options)


@pytest.mark.parametrize("view", ["world", "ranks", "heat", "comm", "timeline", "devices", "logs", "runs"])
def test_every_key_that_works_has_a_command(view):
    digit = next(key.keys for key in keys.SCREEN_KEYS if key.opens == view)
    app, found = offered(through_time.slow(), digit)
    told = [keys.command(key, app.frame) for key in keys.available(app.frame) if key.action != "app.command_palette"]
    assert app.current_mode == view
    assert len(told) > 15
    assert dict(told).items() <= found.items()
    assert len({name for name, _ in told}) == len(told), "two commands of one name"
    assert {"World", "Heat", "Runs", "Stop", "Theme: ddpmon-light", "Theme: nord"} <= found.keys()
    assert all(name[0].isupper() and text.endswith(")") for name, text in told)


def test_what_cannot_be_done_now_is_not_offered():
    assert "Stop" not in offered(snapshots.slow(), readonly=True)[1]
    assert "Stop" not in offered(snapshots.done())[1]
    assert "Quit" in offered(snapshots.done())[1]
    _, found = offered(tape.replaying(snapshots.slow()))
    assert "Stop" not in found
    assert {"Pause", "Faster", "Event"} <= found.keys()
    assert "Faster" not in offered(snapshots.slow())[1]


def test_movements_and_foreign_themes_do_not_fill_the_list_that_it_opens_with():
    at_once = set()

    def look(app, _):
        at_once.update(command.title for command in app.get_system_commands(app.screen) if command.discover)

    drive(snapshots.slow(), look)
    assert {"World", "Sort", "Theme: ddpmon-light"} <= at_once
    assert not {"Go up one screen", "Theme: nord"} & at_once


def test_a_command_does_what_the_key_does_on_the_screen_that_is_shown():
    source = FakeSource(snapshots.slow())
    _, text = chosen(source, name="sort")
    assert "ranks, by rank" in text
    assert "type to search" in chosen(through_time.slow(), "3", name="metric")[1]
    _, text = chosen(source, name="stop")
    assert "Stop gpt2-124m?" in text
    assert source.stops == []


def test_a_theme_is_chosen_by_name():
    app, _ = chosen(snapshots.slow(), name="theme: nord")
    assert app.theme == "nord"


def test_without_colours_there_is_no_theme_to_choose(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any(name.startswith("Theme") for name in offered(snapshots.slow())[1])
