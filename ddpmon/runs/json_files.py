"""Reads JSON files of a run, and checks that every value has the declared type. Standard library only."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from ddpmon.runs.plain_file import content

MAX_FILE_BYTES = 1 << 24
"""Largest size, in bytes, of a file to read. run.json stays smaller even with the longest command line."""
_SHOWN = 40
"""Most characters of a wrong value that an error shows."""

Checked = TypeVar("Checked")


def read(path: Path) -> Any:
    """Return the parsed JSON of a ddpmon file. Raise FileNotFoundError, or ValueError with a short reason."""
    try:
        return json.loads(content(path, MAX_FILE_BYTES))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ValueError(error.strerror) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(
            str(error) if isinstance(error, json.JSONDecodeError) else "the file is not valid JSON"
        ) from None


def build(kind: type[Checked], raw: Any) -> Checked:
    """Build a dataclass from parsed JSON, and check that each value has the type of its field.

    Keys without a field are ignored.

    Raises:
        ValueError: A field is missing or has a wrong value; the error names it.

    """
    if not isinstance(raw, dict):
        raise ValueError(f"{_shown(raw)} is not a valid {kind.__name__}")  # noqa: TRY004  of a file, not of our code
    types_of = _types(kind)  # type: ignore[arg-type]  # a class is hashable
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]  # this works for any dataclass
    for field in fields:
        if field.name not in raw and field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"the field {field.name} is missing")
    present = [field.name for field in fields if field.name in raw]
    return kind(**{name: _value(name, raw[name], types_of[name]) for name in present})


@functools.cache
def _types(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _value(name: str, value: Any, expected: Any) -> Any:
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin is types.UnionType:
        if value is None:
            return None
        return _value(name, value, next(kind for kind in arguments if kind is not type(None)))
    if dataclasses.is_dataclass(expected):
        try:
            return build(typing.cast("type[Any]", expected), value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if origin is list and isinstance(value, list):
        return [_value(name, each, arguments[0]) for each in value]
    if origin is dict and isinstance(value, dict):
        return {_value(name, key, str): _value(name, each, arguments[1]) for key, each in value.items()}
    fits = {
        str: isinstance(value, str) and _is_text(value),
        bool: isinstance(value, bool),
        int: isinstance(value, int) and not isinstance(value, bool),
        float: isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value),
    }
    if not fits.get(origin or expected, False):
        raise ValueError(f"{name} is {_shown(value)}")
    return value


def _is_text(value: str) -> bool:
    """Return whether a text is valid in a command line or path: no NUL, no lone surrogates that cannot be encoded."""
    try:
        return b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
