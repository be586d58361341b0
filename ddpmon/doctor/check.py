"""Defines the result of a check, with what to do about a problem."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """Severity of a check's result."""

    OK = "ok"
    NOTE = "note"
    """Runs can be watched, but something is slower or cannot be shown."""
    PROBLEM = "problem"
    """Runs cannot be started, or cannot be watched."""


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    about: str
    """Subject of the check, in a word or two."""
    level: Level
    text: str
    """Result, without a full stop."""
    way_out: str = ""
    """What to do about the problem; "" if the check passed, or if `text` says what to do."""


def ok(about: str, text: str) -> Check:
    """Return the result of a check that passed."""
    return Check(about, Level.OK, text)


def note(about: str, text: str, way_out: str = "") -> Check:
    """Return the result of a check that found a limitation: ddpmon can watch runs, but shows less."""
    return Check(about, Level.NOTE, text, way_out)


def problem(about: str, text: str, way_out: str = "") -> Check:
    """Return the result of a check that found a problem: runs cannot be started, or cannot be watched."""
    return Check(about, Level.PROBLEM, text, way_out)
