"""The user's config file: its keys, its path, and which of its values are in effect. Standard library only.

If a key has an environment variable, the variable takes precedence, and a command's option precedes both. A value that
is not allowed has no effect, and is an error: commands that need the value raise it, the others only print it.
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


class SettingError(UsageError):
    """Reports a value, a key or a config file that is not allowed. setting: its key; "" if it is the whole file."""

    def __init__(self, setting: str, text: str) -> None:
        super().__init__(text)
        self.setting = setting


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
    starts: bool = False
    """True if commands that start a run need the value, also without a dashboard."""


SETTINGS = (
    Setting("theme", "dark, light, ansi, or a name from [themes]", "Colours of the dashboard.",
            variable="DDPMON_THEME"),
    Setting("first_screen", "the name of a screen", "Screen that the dashboard opens with.", "world"),
    Setting("units", "binary or decimal", "Units of memory and traffic: GiB (binary) or GB (decimal).", "binary",
            variable="DDPMON_UNITS", starts=True),
    Setting("notify", f"{', '.join(NOTIFY)}, or URLs separated by spaces",
            "How the dashboard, or a service, tells you that a run needs attention or has ended.", "off",
            variable="DDPMON_NOTIFY", starts=True),
    Setting("on_alert", "a command line", "Program that ddpmon starts when a run needs attention, stalls or fails.",
            variable="DDPMON_ON_ALERT", starts=True),
    Setting("keep", "a size or an age", "Limit for all runs, such as 20GB or 90d.",
            variable="DDPMON_KEEP", starts=True),
    Setting("logs", "a size", "Limit for the saved output of a run, such as 2G.", variable="DDPMON_LOGS", starts=True),
    Setting("folders.runs", "an absolute path", "Folder of the runs.", variable="DDPMON_HOME", starts=True),
    Setting("folders.sockets", "an absolute path", "Folder of the sockets; choose a short path.",
            variable="DDPMON_RUNTIME_DIR", starts=True),
    Setting("ranks.columns", "a list of columns", "Columns of the screen Ranks, in this order.", kind=list),
    Setting("gpu.peak_tflops", "a number above 0", "Peak of a rank's GPU or CPU in TFLOP/s, for the MFU.", kind=float),
    Setting("price.gpu_hour", "a number above 0", "Price of one GPU hour, or of one rank hour in runs without GPUs.",
            kind=float),
    Setting("price.currency", "1 to 4 characters", "Currency of the price.", "$"),
)  # fmt: skip
"""All keys except those of the tables [keys] and [themes], which users choose."""
_BY_NAME = {setting.name: setting for setting in SETTINGS}
_TABLES = {name.partition(".")[0] for name in _BY_NAME if "." in name}
NEEDED_TO_START = {"", *(setting.name for setting in SETTINGS if setting.starts)}
"""Keys whose errors, like those of the whole file, keep commands from starting a run."""


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
    errors: tuple[SettingError, ...] = ()
    """An error for each key that cannot be used, or one for the whole file. The other fields leave out these keys."""

    @property
    def exists(self) -> bool:
        """Return whether the file has any content."""
        return bool(self.values or self.keys or self.themes or self.errors)

    def get(self, name: str) -> Any:
        """Return the value of a setting, or its default."""
        return self.values.get(name, _BY_NAME[name].default)

    def needed(self, name: str) -> Any:
        """Return the value of a setting, or its default. Raise SettingError if the file has another value for it."""
        for error in self.errors:
            if error.setting in {"", name}:
                raise error
        return self.get(name)

    def wrong(self, name: str, value: object, allowed: str) -> SettingError:
        """Return an error that says which value of the file is not allowed."""
        what = f"[{name}]" if isinstance(value, dict) else f"{name} = {value!r}"
        return SettingError(name, f"{self.path}: {what} is not allowed{_near(value, allowed)} allowed: {allowed}")

    def no_key(self, name: str, allowed: str) -> SettingError:
        """Return an error that says which key or table of the file does not exist."""
        return SettingError(name, f"{self.path}: there is no key {name}{_near(name, allowed)} allowed: {allowed}")


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
    """Return the values and the errors of the config file; a `Config` without any if there is no file."""
    place = path()
    return Config(Path()) if place is None else _read(place)


@functools.cache
def _read(place: Path) -> Config:
    try:
        return _checked(place, *_load(place))
    except (FileNotFoundError, NotADirectoryError):
        return Config(place)
    except OSError as error:
        unreadable = SettingError("", f"{place}: {error.strerror}; correct or remove the file")
        return Config(place, errors=(unreadable,))
    except SettingError as error:
        return Config(place, errors=(error,))


def _load(place: Path) -> tuple[dict[str, Any], bool]:
    """Return the content of the file, and whether other users can read it.

    Raises:
        OSError: The file does not exist or cannot be read.
        SettingError: The file is no configuration.

    """
    with open(place, "rb") as file:
        content = file.read(MAX_CONFIG_BYTES + 1)
        others_read = bool(os.fstat(file.fileno()).st_mode & 0o077)
    if len(content) > MAX_CONFIG_BYTES:
        raise SettingError("", f"{place} has over {MAX_CONFIG_BYTES:,} bytes; remove all that is no configuration")
    import tomllib  # Imported only for a file, because commands like ls must answer at once.

    try:
        return tomllib.loads(content.decode()), others_read
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingError("", f"{place} is not valid TOML: {error}") from None


def _checked(place: Path, raw: dict[str, Any], others_read: bool) -> Config:
    """Return the allowed values of the file, and an error for each of the others."""
    errors: list[SettingError] = []
    keys, themes = (_table(place, name, raw.pop(name, {}), errors) for name in ("keys", "themes"))
    themes = {name: _table(place, f"themes.{name}", table, errors) for name, table in themes.items()}
    read = Config(place, {}, keys, themes)
    values = {}
    for name, value in _flat(place, raw, errors):
        setting = _BY_NAME.get(name)
        if setting is None:
            errors.append(read.no_key(name, ", ".join([*_BY_NAME, "[keys]", "[themes]"])))
        elif not _fits(setting, value, themes):
            errors.append(read.wrong(name, value, setting.allowed))
        elif name == "notify" and others_read and "://" in value:
            text = f"{place}: others can read the URLs of notify; chmod 600 {place}"
            errors.append(SettingError(name, text))
        else:
            values[name] = value
    return Config(place, values, keys, themes, tuple(errors))


def _table(place: Path, name: str, value: object, errors: list[SettingError]) -> dict[str, Any]:
    """Return a table of the file; if it is no table, append an error and return an empty one."""
    if isinstance(value, dict):
        return value
    errors.append(SettingError(name, f"{place}: {name} = {value!r} is not allowed; allowed: a table, [{name}]"))
    return {}


def _flat(place: Path, raw: Mapping[str, Any], errors: list[SettingError]) -> Iterator[tuple[str, Any]]:
    for name, value in raw.items():
        if name in _TABLES:
            yield from ((f"{name}.{key}", each) for key, each in _table(place, name, value, errors).items())
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
    """Set each environment variable that is not set yet and for which the config file has a value."""
    for setting in SETTINGS:
        value = current().values.get(setting.name) if setting.variable else None
        if value is not None and setting.variable not in environ:
            folder = setting.name.startswith("folders.")
            environ[setting.variable] = str(Path(value).expanduser()) if folder else value
            _applied.add(setting.variable)


def errors(environ: Mapping[str, str]) -> Iterator[SettingError]:
    """Yield the errors of the file, and one if DDPMON_UNITS has a value that is not allowed."""
    yield from current().errors
    if (units := environ.get("DDPMON_UNITS") or UNITS[0]) not in UNITS:
        yield SettingError("units", f"DDPMON_UNITS={units!r} is not allowed; allowed: {', '.join(UNITS)}")


_applied: set[str] = set()
"""Environment variables that `apply` has set to a value from the config file."""


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
