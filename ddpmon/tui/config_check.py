"""Checks the values of the config file that refer to the dashboard's screens, columns, keys and themes."""

from __future__ import annotations

from ddpmon import config
from ddpmon.tui import keys, palette
from ddpmon.tui.keymap import remapped
from ddpmon.tui.views import VIEW_FACTS, ViewName
from ddpmon.tui.widgets.columns import COLUMNS

SCREENS = [name.value for name in ViewName if VIEW_FACTS[name].digit]


def check() -> None:
    """Check every value of the config file that refers to a part of the dashboard.

    Raises:
        UsageError: A screen, column, key or theme does not exist.

    """
    given = config.current()
    if (screen := given.get("first_screen")) not in SCREENS:
        raise given.wrong("first_screen", screen, ", ".join(SCREENS))
    for column in given.get("ranks.columns") or ():
        if column not in COLUMNS:
            raise given.wrong("ranks.columns", column, ", ".join(COLUMNS))
    remapped(keys.DEFAULT_KEYS, given)
    palette.own_themes()
