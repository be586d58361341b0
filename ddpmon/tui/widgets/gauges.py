"""The columns of the Devices screen: numbers about each rank's machine, and bars for some of the numbers."""

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

_KEEP = {
    "gpu_number": 8, "gpu": 0, "gpu_memory": 1, "gpu_memory_total": 9, "gpu_temperature": 2, "gpu_power": 7,
    "gpu_clock": 6, "cpu": 3, "starved": 4, "rss": 5, "read": 10, "written": 11, "threads": 12, "major_faults": 13,
}  # fmt: skip
_KEEP |= {row.name: len(_KEEP) + place for place, row in enumerate(other_quantities(_KEEP))}
"""The columns in their order. On a narrow screen the column with the highest number is dropped first."""
_FULL: dict[str, Callable[[RankView], float | None]] = {
    "gpu": lambda _: 100.0,
    "gpu_memory": QUANTITIES["gpu_memory_total"].get,
    "cpu": lambda _: None,
    "starved": lambda _: 1.0,
    "rss": lambda _: None,
}
"""By quantity with a bar: returns the value at which a rank's bar is full, or None if the largest value of all ranks
fills it."""
_ALWAYS_BAR = {"gpu", "gpu_memory"}
"""Columns that are never shown without their bar. If none of these columns is shown, no column loses its bar."""
_TOTAL = RankColumn("of", 4, QUANTITIES["gpu_memory_total"].get, lambda value, _: f"{value / numbers.KILO**3:.0f}")
_SPECIAL = {"gpu_number": GPU_NUMBER, "gpu_memory_total": _TOTAL}


def _measured(name: str, rank: RankView) -> float | None:
    return finite_or_none(QUANTITIES[name].get(rank) if name in QUANTITIES else gpu_number(rank))


@dataclass(frozen=True)
class Gauge:
    """A visible column of the Devices screen."""

    name: str
    """Name of the column's quantity, or "gpu_number", which cannot be compared between ranks."""
    bar: int
    """Width of the bar in columns; 0 for none."""
    largest: float
    """Value of a full bar if the quantity has no limit: the largest value of all ranks, for percentages at least
    100."""

    @property
    def column(self) -> RankColumn:
        """Return the column of numbers, with its heading, width and format."""
        return _SPECIAL.get(self.name) or RANK_COLUMNS[self.name]

    @property
    def heading(self) -> str:
        """Return the column's heading, as wide as the column."""
        return self.column.place(self.column.head) + " " * (self.bar + (self.bar > 0))

    def worst(self, ranks: Sequence[RankView]) -> RankView | None:
        """Return the rank with the worst value; None if no rank has a value."""
        having = [(value, rank) for rank in ranks if (value := _measured(self.name, rank)) is not None]
        pick = min if QUANTITIES[self.name].worse == "low" else max
        return pick(having, key=lambda pair: pair[0])[1] if having else None

    def cell(self, rank: RankView | None, role: str) -> Line:
        """Return number and bar for a rank. `rank` is None for a line without a rank."""
        value = None if rank is None else _measured(self.name, rank)
        if rank is None or value is None:
            return [(f"{self.column.place(numbers.NONE)}{' ' * (self.bar + (self.bar > 0))}", role)]
        line: Line = [(self.column.place(self.column.text(value, 1)), role)]
        if not self.bar:
            return line
        whole = finite_or_none(_FULL[self.name](rank)) or self.largest
        share = min(1.0, max(0.0, value / whole)) if whole > 0 else 0.0
        done = round(share * self.bar) if share < 1 else self.bar
        return [
            *line, (" ", "text"), ("━" * done, ("info" if role == "text" else role)),
            ("─" * (self.bar - done), "rule"),
        ]  # fmt: skip


def fit_gauges(ranks: Sequence[RankView], width: int) -> list[Gauge]:
    """Return the columns in which some rank has a value, as far as they fit in `width`. Bars get the spare width."""
    values = {name: [value for rank in ranks if (value := _measured(name, rank)) is not None] for name in _KEEP}
    widths = {name: Gauge(name, 0, 0.0).column.width for name, having in values.items() if having}
    always = _ALWAYS_BAR & widths.keys() or _FULL.keys() & widths.keys()

    def needed() -> int:
        return sum(columns + (_BAR_LEAST + 1 if name in always else 0) for name, columns in widths.items())

    while widths and needed() > width:
        del widths[max(widths, key=lambda name: _KEEP[name])]
    columns_left = width - needed()
    bars = [name for name in widths if name in always]
    for name in widths:
        if name in _FULL and name not in always and columns_left > _BAR_LEAST:
            bars.append(name)
            columns_left -= _BAR_LEAST + 1
    bar = min(_BAR_MOST, _BAR_LEAST + columns_left // len(bars)) if bars else 0
    percents = {name for name in widths if name in QUANTITIES and QUANTITIES[name].unit == PERCENT}
    return [
        Gauge(name, bar if name in bars else 0, max([100.0 if name in percents else 0.0, *values[name]]))
        for name in widths
    ]
