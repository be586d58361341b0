"""What was looked at, how it stands, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a thing stands in the way."""

    OK = "ok"
    NOTE = "note"
    """Runs can be watched; something is slower, or cannot be shown."""
    PROBLEM = "problem"
    """Runs cannot be started, or cannot be watched."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    about: str
    """What it is, in a word or two."""
    level: Level
    text: str
    """What was seen, without a full stop."""
    way_out: str = ""
    """What to do where it is no `OK`, unless the text says it."""


def ok(about: str, text: str) -> Check:
    """It is well."""
    return Check(about, Level.OK, text)


def note(about: str, text: str, way_out: str = "") -> Check:
    """It is worth knowing."""
    return Check(about, Level.NOTE, text, way_out)


def problem(about: str, text: str, way_out: str = "") -> Check:
    """It stands in the way."""
    return Check(about, Level.PROBLEM, text, way_out)
