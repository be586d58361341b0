"""The columns of the Devices screen: numbers about each rank's machine, some with a bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ddpmon import numbers
from ddpmon.messages import QUANTITIES, RankView, other_quantities
from ddpmon.messages.quantities import PERCENT
from ddpmon.tui.frame import finite_or_none
from ddpmon.tui.lines import Line
from ddpmon.tui.widgets.columns import GPU_NUMBER, RANK_COLUMNS, RankColumn, gpu_number

_BAR_LEAST, _BAR_MOST = 5, 22

Get = Callable[[RankView], float | None]


@dataclass(frozen=True)
class Gauge:
    """A column of Devices."""

    name: str
    """Name of the column's quantity, or "gpu_number", which cannot be compared between ranks."""
    column: RankColumn
    get: Get
    """Returns the number for a rank."""
    keep: int
    """Priority for a narrow screen: the column with the highest number is dropped first."""
    full: Get | None = None
    """Returns a rank's value of a full bar, or 0 for the largest value of all ranks; None draws no bar."""
    always_bar: bool = False
    """True if the column is never shown without its bar. If no shown column is like this, all keep their bars."""

    def value(self, rank: RankView) -> float | None:
        """Return the value for a rank; None if there is none."""
        return finite_or_none(self.get(rank))

    def worst(self, ranks: Sequence[RankView]) -> RankView | None:
        """Return the rank with the worst value; None if no rank has a value."""
        having = [(value, rank) for rank in ranks if (value := self.value(rank)) is not None]
        pick = min if QUANTITIES[self.name].worse == "low" else max
        return pick(having, key=lambda pair: pair[0])[1] if having else None

    def largest(self, ranks: Sequence[RankView]) -> float:
        """Return the value of a full bar for a quantity without a limit: the largest, for percentages at least 100."""
        least = 100.0 if self.name in QUANTITIES and QUANTITIES[self.name].unit == PERCENT else 0.0
        return max([least, *(value for rank in ranks if (value := self.value(rank)) is not None)])


def _up_to(value: float) -> Get:
    return lambda _: value


_TOTAL = RankColumn("of", 4, QUANTITIES["gpu_memory_total"].get, lambda value, _: f"{value / numbers.KILO**3:.0f}")
_FULL: dict[str, Get] = {
    "gpu": _up_to(100.0),
    "gpu_memory": QUANTITIES["gpu_memory_total"].get,
    "cpu": _up_to(0.0),
    "starved": _up_to(1.0),
    "rss": _up_to(0.0),
}
_KEEP = {
    "gpu_number": 8, "gpu": 0, "gpu_memory": 1, "gpu_memory_total": 9, "gpu_temperature": 2, "gpu_power": 7,
    "gpu_clock": 6, "cpu": 3, "starved": 4, "rss": 5, "read": 10, "written": 11, "threads": 12, "major_faults": 13,
}  # fmt: skip
GAUGES = tuple(
    Gauge(
        name, {"gpu_number": GPU_NUMBER, "gpu_memory_total": _TOTAL}.get(name) or RANK_COLUMNS[name],
        QUANTITIES[name].get if name in QUANTITIES else gpu_number, keep, _FULL.get(name),
        name in {"gpu", "gpu_memory"},
    )
    for name, keep in (
        _KEEP | {row.name: len(_KEEP) + place for place, row in enumerate(other_quantities(_KEEP))}
    ).items()
)  # fmt: skip


@dataclass(frozen=True)
class Placed:
    """A shown column. bar: width of its bar; 0 for none. largest: value of a full bar if the quantity has no limit."""

    gauge: Gauge
    bar: int
    largest: float

    @property
    def heading(self) -> str:
        """Return the head in this column's width."""
        return self.gauge.column.place(self.gauge.column.head) + " " * (self.bar + (self.bar > 0))

    def cell(self, rank: RankView | None, role: str) -> Line:
        """Return number and bar for a rank; `rank` is None for a line without one."""
        column, value = self.gauge.column, None if rank is None else self.gauge.value(rank)
        if rank is None or value is None:
            return [(f"{column.place(numbers.NONE)}{' ' * (self.bar + (self.bar > 0))}", role)]
        line: Line = [(column.place(column.text(value, 1)), role)]
        if not self.bar or self.gauge.full is None:
            return line
        whole = finite_or_none(self.gauge.full(rank)) or self.largest
        share = min(1.0, max(0.0, value / whole)) if whole > 0 else 0.0
        done = round(share * self.bar) if share < 1 else self.bar
        return [
            *line, (" ", "text"), ("━" * done, ("info" if role == "text" else role)),
            ("─" * (self.bar - done), "rule"),
        ]  # fmt: skip


def fit_gauges(ranks: Sequence[RankView], width: int) -> list[Placed]:
    """Return the columns that some rank has a value for and that fit in `width`. Bars get the spare columns."""
    chosen = [gauge for gauge in GAUGES if any(gauge.value(rank) is not None for rank in ranks)]

    dear = [gauge for gauge in chosen if gauge.always_bar] or [gauge for gauge in chosen if gauge.full is not None]

    def needs(gauge: Gauge) -> int:
        return gauge.column.width + (_BAR_LEAST + 1 if gauge in dear else 0)

    while chosen and sum(map(needs, chosen)) > width:
        chosen.remove(max(chosen, key=lambda gauge: gauge.keep))
    columns_left = width - sum(map(needs, chosen))
    bars = [gauge for gauge in chosen if gauge in dear]
    for gauge in chosen:
        if gauge.full is not None and gauge not in dear and columns_left > _BAR_LEAST:
            bars.append(gauge)
            columns_left -= _BAR_LEAST + 1
    bar = min(_BAR_MOST, _BAR_LEAST + columns_left // len(bars)) if bars else 0
    return [Placed(gauge, bar if gauge in bars else 0, gauge.largest(ranks)) for gauge in chosen]
