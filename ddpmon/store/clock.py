"""Converts between this machine's monotonic clock and Unix time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """One moment in two clocks: this machine's CLOCK_MONOTONIC in µs and Unix time in s. Converts other moments."""

    monotonic_us: int
    unix: float

    def unix_at(self, monotonic_us: int) -> float:
        return self.unix + (monotonic_us - self.monotonic_us) / 1e6

    def us_at(self, unix: float) -> float:
        return self.monotonic_us + (unix - self.unix) * 1e6
