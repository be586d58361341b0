"""The columns of the devices: a number of each rank's machine, some with a bar, and which of them fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ddpmon import numbers
from ddpmon.messages import QUANTITIES, RankView, further
from ddpmon.messages.quantities import PERCENT
from ddpmon.tui.frame import finite
from ddpmon.tui.lines import Line, plain
from ddpmon.tui.units import bare, cell

_BAR_LEAST, _BAR_MOST = 5, 22

Get = Callable[[RankView], float | None]


@dataclass(frozen=True)
class Gauge:
    """One column. `keep` says which go first when it gets narrow (the highest)."""

    head: str
    width: int
    """Width of the number, with a space before it."""
    keep: int
    value: Get
    text: Callable[[float], str]
    full: Get | None = None
    """Full value of the bar, of a rank; 0: the largest value of all ranks. None: no bar."""
    always_bar: bool = False
    """The bar stays as long as the number; where no column has such a bar, all of them stay."""
    low_is_worse: bool = False
    names: bool = False
    """It identifies something (the number of a GPU): there is nothing to compare."""
    name: str = ""
    """The name of its quantity."""
    least: float = 0.0
    """The least value that fills a bar whose measure is the largest value of all ranks."""

    def worst(self, ranks: Sequence[RankView]) -> RankView | None:
        """The rank whose value is the worst of these."""
        having = [(value, rank) for rank in ranks if (value := finite(self.value(rank))) is not None]
        pick = min if self.low_is_worse else max
        return pick(having, key=lambda pair: pair[0])[1] if having else None


def _gauge(name: str, width: int, keep: int, *, full: Get | None = None, always_bar: bool = False) -> Gauge:
    """The column of one of QUANTITIES."""
    row = QUANTITIES[name]
    get = row.get
    text = (lambda value: f"{value / 2**30:.0f}") if name == "gpu_memory_total" else cell(row.unit)
    return Gauge(
        row.heading, width, keep, lambda rank: finite(get(rank)), text, full, always_bar,
        low_is_worse=row.worse == "low", name=name, least=100.0 if row.unit == PERCENT else 0.0,
    )  # fmt: skip


def _up_to(value: float) -> Get:
    return lambda _: value


_LARGEST = _up_to(0.0)


def device_number(rank: RankView) -> float | None:
    """K of a rank on cuda:K."""
    number = rank.device.rpartition(":")[2]
    return float(number) if rank.device.startswith("cuda:") and number.isdecimal() and number.isascii() else None


_PLACED = (
    Gauge("gpu", 5, 8, device_number, bare, names=True),
    _gauge("gpu", 6, 0, full=_up_to(100.0), always_bar=True),
    _gauge("gpu_memory", 8, 1, full=QUANTITIES["gpu_memory_total"].get, always_bar=True),
    _gauge("gpu_memory_total", 4, 9),
    _gauge("gpu_temperature", 4, 2),
    _gauge("gpu_power", 5, 7),
    _gauge("gpu_clock", 6, 6),
    _gauge("cpu", 6, 3, full=_LARGEST),
    _gauge("starved", 8, 4, full=_up_to(1.0)),
    _gauge("rss", 8, 5, full=_LARGEST),
    _gauge("read", 8, 10),
    _gauge("written", 8, 11),
    _gauge("threads", 8, 12),
    _gauge("major_faults", 9, 13),
)
_LAST = max(gauge.keep for gauge in _PLACED) + 1
GAUGES = (
    *_PLACED,
    *(
        _gauge(row.name, max(8, len(row.heading) + 1), _LAST + place)
        for place, row in enumerate(further({gauge.name for gauge in _PLACED}))
    ),
)


@dataclass(frozen=True)
class Placed:
    """A column as it is shown: its bar takes `bar` columns (0: none), and `largest` fills one without a measure."""

    gauge: Gauge
    bar: int
    largest: float

    @property
    def heading(self) -> str:
        """The head in its place."""
        return f"{self.gauge.head:>{self.gauge.width}}" + " " * (self.bar + (self.bar > 0))

    def cell(self, rank: RankView | None, role: str) -> Line:
        """Number and bar of a rank; None: it has no value."""
        value = None if rank is None else self.gauge.value(rank)
        text = numbers.NONE if value is None else self.gauge.text(value)
        line: Line = [(f"{plain(text):>{self.gauge.width}}", role)]
        if not self.bar or self.gauge.full is None or rank is None:
            return [*line, (" " * (self.bar + (self.bar > 0)), "text")] if self.bar else line
        whole = finite(self.gauge.full(rank)) or self.largest
        share = min(1.0, max(0.0, value / whole)) if value is not None and whole > 0 else 0.0
        done = round(share * self.bar) if share < 1 else self.bar
        return [
            *line, (" ", "text"), ("━" * done, ("info" if role == "text" else role)),
            ("─" * (self.bar - done), "rule"),
        ]  # fmt: skip


def place(ranks: Sequence[RankView], width: int) -> list[Placed]:
    """The columns that some rank has a value for and that fit in `width`; what is left over goes to the bars."""
    chosen = [gauge for gauge in GAUGES if any(gauge.value(rank) is not None for rank in ranks)]

    dear = [gauge for gauge in chosen if gauge.always_bar] or [gauge for gauge in chosen if gauge.full is not None]

    def needs(gauge: Gauge) -> int:
        return gauge.width + (_BAR_LEAST + 1 if gauge in dear else 0)

    while chosen and sum(map(needs, chosen)) > width:
        chosen.remove(max(chosen, key=lambda gauge: gauge.keep))
    columns_left = width - sum(map(needs, chosen))
    bars = [gauge for gauge in chosen if gauge in dear]
    for gauge in chosen:
        if gauge.full is not None and gauge not in dear and columns_left > _BAR_LEAST:
            bars.append(gauge)
            columns_left -= _BAR_LEAST + 1
    bar = min(_BAR_MOST, _BAR_LEAST + columns_left // len(bars)) if bars else 0
    return [Placed(gauge, bar if gauge in bars else 0, _most(gauge, ranks)) for gauge in chosen]


def _most(gauge: Gauge, ranks: Sequence[RankView]) -> float:
    return max([gauge.least, *(value for rank in ranks if (value := finite(gauge.value(rank))) is not None)])
