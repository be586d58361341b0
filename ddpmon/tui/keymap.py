"""A key of the dashboard, and the replacements of keys in the config file."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ddpmon.config import Config
from ddpmon.tui.views import ViewName

FIXED = "ctrl+c"
"""The key that always has the same action, in dialogs too."""
_KEY = re.compile(r"\S|(?:(?:ctrl|shift|alt)\+)*([a-z0-9_]+)", re.ASCII)
_ALLOWED = "one character, or a name such as ctrl+x, f5, enter, escape, space, left or pagedown"


@dataclass(frozen=True)
class Key:
    """An action of the dashboard, with the keys that run it."""

    keys: str
    """Textual's names of the keys, separated by commas."""
    shown: str
    """Names of the keys for the user."""
    action: str
    label: str
    """Text in the key bar; "" if the key is only in the help."""
    help: str
    stops: bool = False
    """True if the key works only while the run can be stopped."""
    views: tuple[ViewName, ...] = tuple(ViewName)
    """The screens on which the key works."""
    opens: ViewName | None = None
    """The screen that the key opens, if that screen can be opened by a digit."""
    replay: bool | None = None
    """True restricts the key to replays, False to everything else; None allows both."""
    changes: bool = False
    """True if the key is disabled in a read-only dashboard because it starts or changes runs."""
    here: bool = False
    """True if the key works only for runs of this machine."""


@dataclass(frozen=True)
class _Change:
    """The replacement of one key by another."""

    setting: str
    old: str
    new: str
    views: tuple[ViewName, ...]


def remapped_keys(keys: Sequence[Key], config: Config) -> tuple[Key, ...]:
    """Return the keys after the replacements in the config file.

    Raises:
        UsageError: A replacement is invalid, or gives a key a second action on a screen.

    """
    changes = list(_changes(config))
    if not changes:
        return tuple(keys)
    by_screen = {view: {c.old: c for c in changes if view in c.views} for view in ViewName}
    changed: list[Key] = []
    for key in keys:
        views_by_names: dict[tuple[str, str], list[ViewName]] = {}
        for view in key.views:
            views_by_names.setdefault(_names(key, by_screen[view]), []).append(view)
        changed += [
            replace(key, keys=names, shown=shown, views=tuple(views))
            for (names, shown), views in views_by_names.items()
        ]
    used, before = _uses(changed), _uses(keys)
    for change in changes:
        if not any(before[view, change.old, playing] for view in change.views for playing in (True, False)):
            raise config.wrong(change.setting, change.new, f"a new key for one that ? lists, and {change.old} is not")
        for view in change.views:
            for place in ((view, change.new, True), (view, change.new, False)):
                if used[place] > max(1, before[place]):
                    raise config.wrong(change.setting, change.new, f"a key that has no other action on {view}")
    return tuple(changed)


def _changes(config: Config) -> Iterator[_Change]:
    for name, value in config.keys.items():
        if isinstance(value, dict):
            if name not in set(ViewName):
                raise config.no_key(f"keys.{name}", ", ".join(f"keys.{view}" for view in ViewName))
            for old, new in value.items():
                yield _change(config, f"keys.{name}.{old}", old, new, (ViewName(name),))
        else:
            yield _change(config, f"keys.{name}", name, value, tuple(ViewName))


def _change(config: Config, setting: str, old: str, new: object, views: tuple[ViewName, ...]) -> _Change:
    if not isinstance(new, str) or not _is_key(new):
        raise config.wrong(setting, new, _ALLOWED)
    if FIXED in {old, new}:
        raise config.wrong(setting, new, f"any key but {FIXED}, which always asks whether to leave or to stop")
    return _Change(setting, _key_name(old), _key_name(new), views)


def _is_key(name: str) -> bool:
    """Return whether a key has this name: modifiers, then one character or one of Textual's key names."""
    match = _KEY.fullmatch(name)
    if match is None or len(match[1] or name) == 1:
        return match is not None
    from textual.keys import Keys, _character_to_key

    characters = map(_character_to_key, string.punctuation)
    return match[1] in {*characters, *(key.value.rpartition("+")[2] for key in Keys)}


def _key_name(typed: str) -> str:
    """Return a key's name in the table of keys. For a single character this is Textual's long name, such as "slash"."""
    if len(typed) != 1 or typed.isalnum():
        return typed
    from textual.keys import _character_to_key

    return _character_to_key(typed)


def _names(key: Key, changes: dict[str, _Change]) -> tuple[str, str]:
    """Return (keys, shown) of a key on one screen, given that screen's replacements."""
    names = key.keys.split(",")
    if changes.keys().isdisjoint(names):
        return key.keys, key.shown
    names = [changes[name].new if name in changes else name for name in names]
    return ",".join(names), " ".join(_for_people(name) for name in names)


def _for_people(name: str) -> str:
    if "+" in name or len(name) == 1:
        return name
    from textual.keys import format_key

    return format_key(name)


def _uses(keys: Iterable[Key]) -> Counter[tuple[ViewName, str, bool]]:
    """Count the actions of each key, by (screen, key, True if a recording plays)."""
    return Counter(
        (view, name, playing)
        for key in keys
        for playing in (True, False)
        if key.replay in {None, playing}
        for view in key.views
        for name in key.keys.split(",")
    )
