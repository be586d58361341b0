"""Formats values of each unit for the screens."""

from __future__ import annotations

from collections.abc import Callable

from ddpmon import numbers
from ddpmon.messages.quantities import (
    BYTES,
    BYTES_PER_S,
    CELSIUS,
    COUNT,
    EXCESS,
    MEGAHERTZ,
    MS,
    NUMBER,
    PER_S,
    PERCENT,
    SHARE,
    TOTAL,
    WATTS,
    Unit,
)
from ddpmon.tui.frame import finite_or_none

Text = Callable[[float | None], str]


def format_whole(value: float | None) -> str:
    """Format a value without decimals, in at most six characters: 94, 1,980, 123k."""
    if value is None or finite_or_none(value) is None or abs(value) >= 99_999.5:
        return numbers.short(value)
    return f"{value:,.0f}"


def bare(value: float | None) -> str:
    """Format a value without decimals or commas, for a column of numbers: 94, 1980, 123k."""
    return format_whole(value).replace(",", "")


def _percent(value: float | None) -> str:
    return numbers.percent(None if value is None else value / 100)


_ALONE: dict[Unit, Text] = {
    MS: numbers.ms, SHARE: numbers.percent, EXCESS: numbers.over, PERCENT: _percent, BYTES: numbers.gigabytes,
    WATTS: format_whole, CELSIUS: format_whole, MEGAHERTZ: format_whole, PER_S: numbers.short,
    BYTES_PER_S: numbers.bytes_per_s, COUNT: format_whole, TOTAL: format_whole, NUMBER: numbers.loss,
}  # fmt: skip
_IN_A_COLUMN = _ALONE | dict.fromkeys((PERCENT, WATTS, CELSIUS, MEGAHERTZ, COUNT, TOTAL), bare)


def value_formatter(unit: Unit) -> Text:
    """Return the function that formats a single value of a unit in at most six characters."""
    return _ALONE[unit]


def cell_formatter(unit: Unit) -> Text:
    """Return the function that formats a value of a unit in a column whose header shows the unit."""
    return _IN_A_COLUMN[unit]
