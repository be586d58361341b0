"""Compares quantities of one rank with the median and the range of the other ranks."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from ddpmon import numbers
from ddpmon.messages import NOTABLE, Quantity, RankView, Snapshot, other_quantities, quantities_named
from ddpmon.messages.quantities import MS
from ddpmon.tui.frame import finite_or_none
from ddpmon.tui.lines import Line, cut_text, plain_text
from ddpmon.tui.units import value_formatter

NAME, NUMBER = 17, 9
_RANGE = 19

Get = Callable[[RankView], float | None]


@dataclass(frozen=True)
class Beside:
    """A quantity of a rank that is compared with the other ranks."""

    quantity: Quantity
    text: Callable[[float | None], str]
    marked: bool = False
    """True if an excess over the others is highlighted, because it makes the rank slow."""


def _rows(*quantities: Quantity) -> tuple[Beside, ...]:
    return tuple(Beside(row, value_formatter(row.unit)) for row in quantities)


def script_phase(name: str, digits: int) -> Beside:
    """Return the row of a phase that the script named with `ddpmon.phase`, which is part of the other phases."""
    label = cut_text(f"in {plain_text(name)}", NAME - 1)
    row = Quantity(name, MS, "Time in a phase that the script named", f"named_ms.{name}", label=label)
    return Beside(row, lambda value: numbers.aligned_ms(value, digits), marked=True)


LATENESS = _rows(*quantities_named("late", "critical", "gc"))
_FIRST = (
    *("learning_rate", "samples", "tokens", "gpu", "gpu_memory", "gpu_power", "gpu_temperature", "gpu_clock"),
    *("cpu", "starved", "rss", "threads", "major_faults", "minor_faults", "read", "written"),
)
OTHERS = _rows(*quantities_named(*_FIRST), *other_quantities(_FIRST))


@dataclass(frozen=True)
class Compared:
    """A value of one rank, and the values of the other ranks that have one."""

    mine: float | None
    others: list[float]
    """Values of the other ranks."""

    @property
    def median(self) -> float | None:
        """Return the median of the others; None if no other rank has a value."""
        return statistics.median(self.others) if self.others else None

    @property
    def excess(self) -> float | None:
        """Return how much the rank's value exceeds the median of the others; None if either is missing."""
        return None if self.mine is None or self.median is None else finite_or_none(self.mine - self.median)

    @property
    def nothing(self) -> bool:
        """Return whether no rank has a value."""
        return self.mine is None and not self.others


def compare(get: Get, rank: RankView, snapshot: Snapshot) -> Compared:
    """Return a rank's value with those of the others."""
    others = [v for each in snapshot.ranks if each.rank != rank.rank and (v := finite_or_none(get(each))) is not None]
    return Compared(get(rank), others)


def least_excess(rank: RankView, snapshot: Snapshot) -> float:
    """Return the excess in milliseconds from which a rank is marked."""
    return NOTABLE * (compare(lambda each: each.own_ms, rank, snapshot).median or 0.0)


def beside(rows: tuple[Beside, ...], rank: RankView, snapshot: Snapshot) -> list[Line]:
    """Return a line per measured quantity: this rank, the median of the others, and their range."""
    least = least_excess(rank, snapshot)
    lines: list[Line] = []
    for row in rows:
        compared = compare(row.quantity.get, rank, snapshot)
        if compared.nothing:
            continue
        others, excess = compared.others, compared.excess
        between = f"{row.text(min(others))}–{row.text(max(others))}" if others else numbers.NONE
        remark: Line = []
        if row.marked and excess is not None and excess > least:
            remark = [(f"  ▲ +{row.text(excess)}", "warn")]
        lines.append([
            (f" {row.quantity.text:<{NAME - 1}}", "text"),
            (f"{row.text(compared.mine):>{NUMBER}}", "warn" if remark else "text"),
            (f"{row.text(compared.median):>{NUMBER}}", "text"), (f"{between:>{_RANGE}}", "muted"), *remark,
        ])  # fmt: skip
    head: Line = [(f"{'':{NAME}}{'this rank':>{NUMBER}}{'peers':>{NUMBER}}{'range':>{_RANGE}}", "muted")]
    return [head, *lines] if lines else []
