"""ddpmon config: prints where the config file is, and which values are in effect."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import click

from ddpmon import config
from ddpmon.plain import plain
from ddpmon.redaction import hidden_url, redact_text


@click.command("config")
def config_() -> int:
    """Print the path of the config file, and each setting with its value and its source.

    The output is TOML: ddpmon config > FILE writes a config file that you can edit. An option of a command takes
    precedence over an environment variable, and the variable over the config file. The file takes precedence over the
    choices that the dashboard remembers.
    """
    from ddpmon.tui import config_check, preferences

    given = config.current()
    config_check.check_config()
    saved, trouble = preferences.saved_choices()
    found = "" if given.path.is_file() else " (there is none yet)"
    lines = [f"# config file: {given.path}{found}", *_settings(saved), *_table("keys", given.keys)]
    for name, colours in given.themes.items():
        lines += _table(f"themes.{name}", colours)
    lines += ["", *(f"# remembered from the dashboard: {name} = {_toml(v)}" for name, v in sorted(saved.items()))]
    lines += [f"# {trouble}"] if trouble else []
    print("\n".join(plain(redact_text(line)) for line in lines).rstrip())
    return 0


def _settings(saved: Mapping[str, object]) -> Iterator[str]:
    table = ""
    for setting in config.SETTINGS:
        value, source = config.origin(setting, os.environ, saved)
        if setting.name == "notify":
            value = " ".join(hidden_url(word) if "://" in word else word for word in str(value).split())
        above, _, name = setting.name.rpartition(".")
        if above != table:
            yield from ("", f"[{above}]")
            table = above
        yield f"# {name} is not set" if value is None else f"{name} = {_toml(value)}  # {source}"


def _table(name: str, values: Mapping[str, Any]) -> Iterator[str]:
    if values:
        yield from ("", f"[{name}]")
    yield from (f"{_toml(key)} = {_toml(value)}" for key, value in values.items() if not isinstance(value, dict))
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _table(f"{name}.{key}", value)


def _toml(value: object) -> str:
    """Return a string, number or list of strings as TOML, which has the same syntax for these as JSON."""
    return json.dumps(value, ensure_ascii=False)
