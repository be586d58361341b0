"""The user's config file: its keys, its path, and which of its values are in effect. Standard library only.

If a key has an environment variable, the variable takes precedence, and a command's option precedes both.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddpmon.errors import UsageError

THEME_NAMES = ("dark", "light", "ansi")
UNITS = ("binary", "decimal")
NOTIFY = ("off", "bell", "desktop", "both")
"""Ways in which the dashboard can notify that a run gets worse."""
MAX_CONFIG_BYTES = 1_000_000


@dataclass(frozen=True)
class Setting:
    """One key of the config file."""

    name: str
    """The name with its table: "folders.runs"."""
    allowed: str
    """The allowed values, as text for users."""
    meaning: str
    default: object = None
    """The default value; None if there is none or ddpmon chooses one."""
    kind: type = str
    variable: str = ""
    """The environment variable that takes precedence."""


SETTINGS = (
    Setting("theme", "dark, light, ansi, or a name from [themes]", "Colours of the dashboard.",
            variable="DDPMON_THEME"),
    Setting("first_screen", "the name of a screen", "Screen that the dashboard opens with.", "world"),
    Setting("units", "binary or decimal", "Units of memory and traffic: GiB (binary) or GB (decimal).", "binary",
            variable="DDPMON_UNITS"),
    Setting("notify", f"{', '.join(NOTIFY)}, or URLs separated by spaces",
            "How the dashboard, or a service, tells you that a run needs attention or has ended.", "off",
            variable="DDPMON_NOTIFY"),
    Setting("on_alert", "a command line", "Program that ddpmon starts when a run needs attention, stalls or fails.",
            variable="DDPMON_ON_ALERT"),
    Setting("keep", "a size or an age", "Limit for all runs, such as 20GB or 90d.", variable="DDPMON_KEEP"),
    Setting("logs", "a size", "Limit for the saved output of a run, such as 2G.", variable="DDPMON_LOGS"),
    Setting("folders.runs", "an absolute path", "Folder of the runs.", variable="DDPMON_HOME"),
    Setting("folders.sockets", "an absolute path", "Folder of the sockets; choose a short path.",
            variable="DDPMON_RUNTIME_DIR"),
    Setting("ranks.columns", "a list of columns", "Columns of the screen Ranks, in this order.", kind=list),
    Setting("gpu.peak_tflops", "a number above 0", "Peak of a rank's GPU or CPU in TFLOP/s, for the MFU.", kind=float),
    Setting("price.gpu_hour", "a number above 0", "Price of one GPU hour, or of one rank hour in runs without GPUs.",
            kind=float),
    Setting("price.currency", "1 to 4 characters", "Currency of the price.", "$"),
)  # fmt: skip
"""All keys except those of the tables [keys] and [themes], which users choose."""
_BY_NAME = {setting.name: setting for setting in SETTINGS}
_TABLES = {name.partition(".")[0] for name in _BY_NAME if "." in name}


@dataclass(frozen=True)
class Config:
    """The values of the config file. `tui.config_check` makes the checks that need the dashboard's modules."""

    path: Path
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values by the name of the setting; only those that the file has."""
    keys: Mapping[str, Any] = field(default_factory=dict)
    """New keys of the dashboard, each under the key that it replaces. A nested table with a screen's name holds
    replacements for that screen only."""
    themes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def exists(self) -> bool:
        """Return whether the file has any value."""
        return bool(self.values or self.keys or self.themes)

    def get(self, name: str) -> Any:
        """Return the value of a setting, or its default."""
        return self.values.get(name, _BY_NAME[name].default)

    def wrong(self, name: str, value: object, allowed: str) -> UsageError:
        """Return an error that says which value of the file is not allowed."""
        return UsageError(f"{self.path}: {name} = {value!r} is not allowed{_near(value, allowed)} allowed: {allowed}")


def _near(value: object, allowed: str) -> str:
    """Return "; did you mean …?" if an allowed word resembles the value or is equal except for its table; else ";"."""
    from difflib import get_close_matches

    words = [*allowed.split(", "), *(f"[{table}]" for table in sorted(_TABLES))]
    near = get_close_matches(value, words, 1) if isinstance(value, str) else []
    near = near or [word for word in words if word.rpartition(".")[2] == value]
    return f"; did you mean {near[0]}?" if near else ";"


def path() -> Path | None:
    """Return the path of the file, whether it exists or not; None if this user has no home folder."""
    if folder := os.environ.get("XDG_CONFIG_HOME"):
        return Path(folder).absolute() / "ddpmon" / "config.toml"
    try:
        return Path.home() / ".config" / "ddpmon" / "config.toml"
    except RuntimeError:
        return None


def current() -> Config:
    """Return the values of the file, or none if there is no file. Raise UsageError if it cannot be used."""
    place = path()
    return Config(Path()) if place is None else _read(place)


@functools.cache
def _read(place: Path) -> Config:
    try:
        with open(place, "rb") as file:
            content = file.read(MAX_CONFIG_BYTES + 1)
            others_read = bool(os.fstat(file.fileno()).st_mode & 0o077)
    except (FileNotFoundError, NotADirectoryError):
        return Config(place)
    except OSError as error:
        raise UsageError(f"{place}: {error.strerror}; correct or remove the file") from None
    if len(content) > MAX_CONFIG_BYTES:
        raise UsageError(f"{place} has over {MAX_CONFIG_BYTES:,} bytes; remove what is not ddpmon's configuration")
    import tomllib  # Imported only for a file, because commands like ls must answer at once.

    try:
        raw = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{place} is not valid TOML: {error}") from None
    read = _checked(place, raw)
    if others_read and "://" in read.get("notify"):
        raise UsageError(f"{place}: others can read the URLs of notify; chmod 600 {place}")
    return read


def _checked(place: Path, raw: dict[str, Any]) -> Config:
    read = Config(place, {}, _table(place, "keys", raw.pop("keys", {})), _table(place, "themes", raw.pop("themes", {})))
    values = dict(_flat(place, raw))
    for name, value in values.items():
        setting = _BY_NAME.get(name)
        if setting is None:
            allowed = ", ".join([*_BY_NAME, "[keys]", "[themes]"])
            raise UsageError(f"{place}: there is no key {name}{_near(name, allowed)} allowed: {allowed}")
        if not _fits(setting, value, read.themes):
            raise read.wrong(name, value, setting.allowed)
    for name, theme in read.themes.items():
        _table(place, f"themes.{name}", theme)
    return Config(place, values, read.keys, read.themes)


def _table(place: Path, name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{place}: {name} = {value!r} is not allowed; allowed: a table, [{name}]")
    return value


def _flat(place: Path, raw: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in raw.items():
        if name in _TABLES:
            yield from ((f"{name}.{key}", each) for key, each in _table(place, name, value).items())
        else:
            yield name, value


def _fits(setting: Setting, value: object, themes: Mapping[str, Any]) -> bool:
    if setting.kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    if setting.kind is list:
        return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)
    if not isinstance(value, str) or not value.isprintable() or not value.strip():
        return False
    if setting.name == "notify":
        return all(word in NOTIFY or "://" in word for word in value.split())
    if setting.name == "units":
        return value in UNITS
    if setting.name == "theme":
        return value in THEME_NAMES or value in themes
    if setting.name == "price.currency":
        return len(value) <= 4
    if setting.name.startswith("folders."):
        return Path(value).expanduser().is_absolute()
    return True


def apply(environ: MutableMapping[str, str]) -> None:
    """Set the environment variables for which the file has a value and the environment has none.

    Raises:
        UsageError: The file cannot be used, or DDPMON_UNITS has a value that is not allowed.

    """
    for setting in SETTINGS:
        value = current().values.get(setting.name) if setting.variable else None
        if value is not None and setting.variable not in environ:
            folder = setting.name.startswith("folders.")
            environ[setting.variable] = str(Path(value).expanduser()) if folder else value
            _applied.add(setting.variable)
    if (units := environ.get("DDPMON_UNITS") or UNITS[0]) not in UNITS:
        raise UsageError(f"DDPMON_UNITS={units!r} is not allowed; allowed: {', '.join(UNITS)}")


_applied: set[str] = set()
"""Variables whose value is from the file."""


def with_origin(text: str) -> str:
    """Add the config key to an error about a variable, if the variable's value is from the file."""
    settings = [s.name for s in SETTINGS if s.variable in _applied and s.variable in text]
    return f"{text} ({current().path} sets {settings[0]})" if settings else text


def origin(setting: Setting, environ: Mapping[str, str], remembered: Mapping[str, object]) -> tuple[object, str]:
    """Return the value that is in effect, and its source."""
    if setting.variable not in _applied and (given := environ.get(setting.variable, "")):
        return given, f"environment: {setting.variable}"
    if setting.name in current().values:
        return current().values[setting.name], "config file"
    if setting.name in remembered:
        return remembered[setting.name], "remembered from the dashboard"
    return setting.default, "default"
