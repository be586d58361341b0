"""What a judgement turns on: how much makes a thing true, how little keeps it true, and what chose these numbers."""

from __future__ import annotations

from dataclasses import KW_ONLY, InitVar, dataclass
from math import isnan, nan
from typing import Generic, TypeVar

Number = TypeVar("Number", bound=float)


@dataclass(frozen=True)
class Threshold(Generic[Number]):
    """What a value must reach for a thing to be true, and what it must keep for that to remain true.

    With both the same, a value that strays around it would make a finding come and go (hysteresis is the cure).
    Kept at the top of the file that asks for it, under a name of its own: docs/thresholds.md is made of them.
    """

    enter: Number
    of: str
    """What the value is, with its unit: "share of a step that all ranks wait for data"."""
    why: str
    """The source or the measurement that chose the number; where neither did, that it is a judgement and its reason."""
    _: KW_ONLY
    stay: float = nan
    """What keeps true what was true before; as much as `enter` unless it is given, or follows from `keeps`."""
    below: bool = False
    """The smaller the value the truer: it is reached from above."""
    keeps: InitVar[float] = 1.0
    """`stay` as a share of `enter` (below: `enter` as a share of `stay`)."""

    def __post_init__(self, keeps: float) -> None:
        if isnan(self.stay):
            stay = self.enter if keeps == 1 else self.enter / keeps if self.below else self.enter * keeps
            object.__setattr__(self, "stay", stay)
        elif keeps != 1:
            raise ValueError("what keeps a thing true is given as a value or as a share, not as both")
        if self.stay < self.enter if self.below else self.stay > self.enter:
            raise ValueError("what keeps a thing true is no more than what makes it true")

    def asked(self, held: bool = False) -> float:
        """The number to compare with. held: the thing was true when last asked."""
        return self.stay if held else self.enter

    def reached(self, value: float, *, held: bool = False) -> bool:
        """Whether the thing is true; at the number itself it is."""
        return value <= self.asked(held) if self.below else value >= self.asked(held)
