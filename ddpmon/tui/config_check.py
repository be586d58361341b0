"""Checks the values of the config file that refer to the dashboard's screens, columns, keys and themes."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ddpmon import config
from ddpmon.config import SettingError
from ddpmon.tui.views import VIEW_FACTS, ViewName

SCREENS = [name.value for name in ViewName if VIEW_FACTS[name].digit]


def check_config() -> None:
    """Raise the first error in the config file that `problems` yields, if there is an error."""
    for problem in problems():
        raise problem


def problems() -> Iterator[SettingError]:
    """Yield an error for each setting that names an unknown screen or column, for the first wrong key, and for the
    first wrong theme. Modules are imported only for settings that the file has.
    """
    given = config.current()
    yield from config.errors(os.environ)
    if (screen := given.get("first_screen")) not in SCREENS:
        yield given.wrong("first_screen", screen, ", ".join(SCREENS))
    if columns := given.get("ranks.columns"):
        from ddpmon.tui.widgets.columns import RANK_COLUMNS

        yield from (
            given.wrong("ranks.columns", each, ", ".join(RANK_COLUMNS)) for each in columns if each not in RANK_COLUMNS
        )
    try:
        if given.keys:
            from ddpmon.tui import keymap, keys

            keymap.remapped_keys(keys.DEFAULT_KEYS, given)
    except SettingError as error:
        yield error
    try:
        if given.themes:
            from ddpmon.tui import palette

            palette.own_themes()
    except SettingError as error:
        yield error
