"""Result of a check, with the way out of a problem."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity of a check's result."""

    OK = "ok"
    NOTE = "note"
    """Runs can be watched; something is slower, or cannot be shown."""
    PROBLEM = "problem"
    """Runs cannot be started, or cannot be watched."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    about: str
    """Subject of the check, in a word or two."""
    level: Level
    text: str
    """Result, without a full stop."""
    way_out: str = ""
    """Way out where it is no `OK`, unless the text has it."""


def ok(about: str, text: str) -> Check:
    """It is well."""
    return Check(about, Level.OK, text)


def note(about: str, text: str, way_out: str = "") -> Check:
    """It is worth knowing."""
    return Check(about, Level.NOTE, text, way_out)


def problem(about: str, text: str, way_out: str = "") -> Check:
    """It stands in the way."""
    return Check(about, Level.PROBLEM, text, way_out)
