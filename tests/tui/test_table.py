"""Every name of a screen has one, and no key of a screen is dead."""

from ddpmon.source.place import Here
from ddpmon.tui import keys
from ddpmon.tui.screens import table
from ddpmon.tui.views import VIEW_FACTS, ViewName


def made():
    return table.screens_by_name(Here(), lambda: None)


def test_every_name_is_described_and_has_a_screen():
    assert set(VIEW_FACTS) == set(made()) == set(ViewName)
    digits = [view.digit for view in VIEW_FACTS.values() if view.digit]
    assert len(digits) == len(set(digits))
    assert all(view.title and view.question for view in VIEW_FACTS.values() if view.digit)


def test_a_screen_has_the_keys_of_the_table():
    for name, view in made().items():
        bound = {key for key, _ in view._bindings}
        assert {key for binding in keys.bindings(name) for key in binding.key.split(",")} <= bound
