"""Quantities of one rank beside the world's median and the range of the others."""

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
    """An excess over the median is a slowness."""


def _rows(*quantities: Quantity) -> tuple[Beside, ...]:
    return tuple(Beside(row, written(row.unit)) for row in quantities)


def named(name: str, digits: int) -> Beside:
    """What the script named with `ddpmon.phase`: a part of the phases."""
    label = cut(f"in {plain(name)}", NAME - 1)
    row = Quantity(name, MS, "Time in a phase that the script named", f"named_ms.{name}", label=label)
    return Beside(row, lambda value: numbers.aligned_ms(value, digits), marked=True)


LATENESS = _rows(*chosen("late", "last", "gc"))
_FIRST = (
    *("learning_rate", "samples", "tokens", "gpu", "gpu_memory", "gpu_power", "gpu_temperature", "gpu_clock"),
    *("cpu", "starved", "rss", "threads", "major_faults", "minor_faults", "read", "written"),
)
OTHERS = _rows(*chosen(*_FIRST), *further(_FIRST))


def median(get: Get, snapshot: Snapshot) -> float | None:
    """Of all ranks that have the number."""
    values = [value for each in snapshot.ranks if (value := finite(get(each))) is not None]
    return statistics.median(values) if values else None


def least_excess(snapshot: Snapshot) -> float:
    """Milliseconds from which on an excess is worth a mark."""
    return NOTABLE * (median(lambda rank: rank.own_ms, snapshot) or 0.0)


def beside(rows: tuple[Beside, ...], rank: RankView, snapshot: Snapshot) -> list[Line]:
    """A line per quantity: this rank, the world's median, the range of the others. What nobody measured is left out."""
    least = least_excess(snapshot)
    lines: list[Line] = []
    for row in rows:
        get = row.quantity.get
        middle, mine = median(get, snapshot), get(rank)
        if middle is None and mine is None:
            continue
        others = [v for each in snapshot.ranks if each.rank != rank.rank and (v := finite(get(each))) is not None]
        between = f"{row.text(min(others))}–{row.text(max(others))}" if others else numbers.NONE
        excess = finite(mine - middle) if mine is not None and middle is not None else None
        remark: Line = []
        if row.marked and excess is not None and excess > least and others:
            remark = [(f"  ▲ +{row.text(excess)}", "warn")]
        lines.append([
            (f" {row.quantity.text:<{NAME - 1}}", "text"),
            (f"{row.text(mine):>{NUMBER}}", "warn" if remark else "text"),
            (f"{row.text(middle):>{NUMBER}}", "text"), (f"{between:>{_RANGE}}", "muted"), *remark,
        ])  # fmt: skip
    head: Line = [(f"{'':{NAME}}{'this rank':>{NUMBER}}{'median':>{NUMBER}}{'others':>{_RANGE}}", "muted")]
    return [head, *lines] if lines else []
