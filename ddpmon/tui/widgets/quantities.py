"""Quantities of one rank beside the median and the range of the other ranks'."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from ddpmon import numbers
from ddpmon.messages import NOTABLE, Quantity, RankView, Snapshot, chosen, further
from ddpmon.messages.quantities import MS
from ddpmon.tui.frame import finite
from ddpmon.tui.lines import Line, cut, plain
from ddpmon.tui.units import written

NAME, NUMBER = 17, 9
_RANGE = 19

Get = Callable[[RankView], float | None]


@dataclass(frozen=True)
class Beside:
    """A quantity that is shown beside the other ranks'."""

    quantity: Quantity
    text: Callable[[float | None], str]
    marked: bool = False
    """An excess over the others is a slowness."""


def _rows(*quantities: Quantity) -> tuple[Beside, ...]:
    return tuple(Beside(row, written(row.unit)) for row in quantities)


def named(name: str, digits: int) -> Beside:
    """Return what the script named with `ddpmon.phase`: a part of the phases."""
    label = cut(f"in {plain(name)}", NAME - 1)
    row = Quantity(name, MS, "Time in a phase that the script named", f"named_ms.{name}", label=label)
    return Beside(row, lambda value: numbers.aligned_ms(value, digits), marked=True)


LATENESS = _rows(*chosen("late", "critical", "gc"))
_FIRST = (
    *("learning_rate", "samples", "tokens", "gpu", "gpu_memory", "gpu_power", "gpu_temperature", "gpu_clock"),
    *("cpu", "starved", "rss", "threads", "major_faults", "minor_faults", "read", "written"),
)
OTHERS = _rows(*chosen(*_FIRST), *further(_FIRST))


def of_others(get: Get, rank: RankView, snapshot: Snapshot) -> list[float]:
    """Return the number of each other rank that has it."""
    return [v for each in snapshot.ranks if each.rank != rank.rank and (v := finite(get(each))) is not None]


def others_median(get: Get, rank: RankView, snapshot: Snapshot) -> float | None:
    """Return the median of the other ranks that have the number; None: no other has."""
    values = of_others(get, rank, snapshot)
    return statistics.median(values) if values else None


def least_excess(rank: RankView, snapshot: Snapshot) -> float:
    """Milliseconds from which on an excess of the rank is worth a mark."""
    return NOTABLE * (others_median(lambda each: each.own_ms, rank, snapshot) or 0.0)


def beside(rows: tuple[Beside, ...], rank: RankView, snapshot: Snapshot) -> list[Line]:
    """A line per quantity: this rank, the median of the others, their range. What nobody measured is left out."""
    least = least_excess(rank, snapshot)
    lines: list[Line] = []
    for row in rows:
        get = row.quantity.get
        middle, mine = others_median(get, rank, snapshot), get(rank)
        if middle is None and mine is None:
            continue
        others = of_others(get, rank, snapshot)
        between = f"{row.text(min(others))}–{row.text(max(others))}" if others else numbers.NONE
        excess = finite(mine - middle) if mine is not None and middle is not None else None
        remark: Line = []
        if row.marked and excess is not None and excess > least:
            remark = [(f"  ▲ +{row.text(excess)}", "warn")]
        lines.append([
            (f" {row.quantity.text:<{NAME - 1}}", "text"),
            (f"{row.text(mine):>{NUMBER}}", "warn" if remark else "text"),
            (f"{row.text(middle):>{NUMBER}}", "text"), (f"{between:>{_RANGE}}", "muted"), *remark,
        ])  # fmt: skip
    head: Line = [(f"{'':{NAME}}{'this rank':>{NUMBER}}{'peers':>{NUMBER}}{'range':>{_RANGE}}", "muted")]
    return [head, *lines] if lines else []
