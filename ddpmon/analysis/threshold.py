"""Thresholds of judgements: the value that makes a condition true, the value that keeps it true, and their reason."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import isnan, nan


@dataclass(frozen=True)
class Threshold:
    """A value that makes a condition true, and a value that keeps it true.

    With a single value, a quantity that fluctuates around it would make a finding come and go. The second value
    (hysteresis) prevents this. Each threshold is a constant at the top of the file that uses it. docs/thresholds.md is
    generated from these constants.
    """

    enter: float
    of: str
    """The quantity, with its unit: "share of a step that all ranks wait for data"."""
    why: str
    """The source or the measurement that chose the number. Without either, "A judgement call" and its reason."""
    _: KW_ONLY
    stay: float = nan
    """The value that keeps the condition true; equal to `enter` unless it is given."""
    below: bool = False
    """True where small values make the condition true."""

    def __post_init__(self) -> None:
        if isnan(self.stay):
            object.__setattr__(self, "stay", self.enter)
        if self.stay < self.enter if self.below else self.stay > self.enter:
            raise ValueError("`stay` must be easier to reach than `enter`")

    def number_to_reach(self, held: bool = False) -> float:
        """Return the limit: `stay` if the condition was true at the last check (`held`), else `enter`."""
        return self.stay if held else self.enter

    def is_reached(self, value: float, *, held: bool = False) -> bool:
        """Return whether the condition is true; a value equal to the threshold makes it true."""
        return value <= self.number_to_reach(held) if self.below else value >= self.number_to_reach(held)
