"""What a person changes by hand in one dashboard is there in the next one."""

import json

import pytest

from ddpmon import runs
from ddpmon.tui.preferences import PREFERENCES_FILE, Preferences
from tests.tui import snapshots
from tests.tui.driving import drive


@pytest.fixture(autouse=True)
def _own_home(home):
    """Each test has a folder of its own."""


def opened(*steps, **options):
    return drive(snapshots.slow(), *steps, preferences=Preferences(), **options)


def saved():
    path = runs.home() / PREFERENCES_FILE
    return json.loads(path.read_text()) if path.exists() else None


def test_nothing_is_saved_where_nothing_was_changed():
    opened("2", "3", "1", "j", "k")
    assert saved() is None


def test_sort_chart_marks_and_theme_come_back():
    opened("s", "l", "o", "2", "s", "S", "3", "percent_sign", lambda app, _: setattr(app, "theme", "ddpmon-light"))
    assert (runs.home() / PREFERENCES_FILE).stat().st_mode & 0o777 == 0o600
    app, text = opened("1")
    assert app.theme == "ddpmon-light"
    assert "ranks, by rank" in text
    assert "log scale" in text
    assert (app.views["chart"].panes[1].choice.smoothing, app.views["chart"].panes[1].choice.log) == (0.6, True)
    assert not app.views["heat"].panes[1].beyond_chance
    _, text = opened("2")
    assert saved()["ranks.sort"].startswith("-")
    assert "trouble first" not in text


@pytest.mark.parametrize("content", ["", "[]", '{"theme": ', "9" * 5000, "[" * 9000])
def test_a_damaged_file_is_ignored_with_a_line(content):
    runs.private_dir(runs.home())
    (runs.home() / PREFERENCES_FILE).write_text(content)
    _, text = opened(size=(160, 50))
    assert f"{PREFERENCES_FILE} is damaged: your remembered choices are ignored" in text
    opened("s")
    assert saved() == {"world.sort": "by rank"}


@pytest.mark.parametrize("value", [None, "nobody", ["own"], True, 0.6])
def test_a_value_that_means_nothing_is_left_out(value):
    runs.private_dir(runs.home())
    names = ("theme", "world.sort", "ranks.sort", "world.chart", "world.log", "world.smoothing", "heat.percent")
    (runs.home() / PREFERENCES_FILE).write_text(json.dumps(dict.fromkeys(names, value)))
    app, _ = opened("2", "3", "1")
    assert app.theme in {"ddpmon-dark", "ansi-dark"}


def test_the_environment_and_the_config_file_take_precedence_over_what_is_remembered(monkeypatch):
    opened(lambda app, _: setattr(app, "theme", "ddpmon-light"))
    monkeypatch.setenv("DDPMON_THEME", "dark")
    app, _ = opened()
    assert app.theme == "ddpmon-dark"


def test_two_dashboards_do_not_forget_what_the_other_one_saved():
    first, second = Preferences(), Preferences()
    for each in (first, second):
        each.update({"a": 1, "b": 1})
    first.update({"a": 2, "b": 1})
    second.update({"a": 1, "b": 2})
    assert saved() == {"a": 2, "b": 2}


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DDPMON_HOME", str(tmp_path / "file" / "home"))
    _, text = opened("s", lambda app, _: app.tick(), size=(160, 50))
    assert "cannot remember this choice: " in text
