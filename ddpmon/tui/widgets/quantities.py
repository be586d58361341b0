"""Quantities of one rank beside the world's median and the range of the others."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from ddpmon.messages import RankView, Snapshot
from ddpmon.tui import numbers
from ddpmon.tui.frame import finite
from ddpmon.tui.lines import Line, cut, plain

NAME, NUMBER = 17, 9
_RANGE = 19
LEAST_EXCESS = 0.05
"""Of the median own time: a phase that is longer by less is not worth a mark."""

Get = Callable[[RankView], float | None]


@dataclass(frozen=True)
class Quantity:
    """Something that ranks have a number of."""

    name: str
    get: Get
    text: Callable[[float | None], str]
    marked: bool = False
    """An excess over the median is a slowness."""


def phase(name: str) -> Get:
    """How to get a phase's time of a rank."""
    return lambda rank: rank.phase_ms(name)


def _percent(value: float | None) -> str:
    return numbers.percent(None if value is None else value / 100)


def _whole(value: float | None) -> str:
    return numbers.NONE if finite(value) is None else f"{value:,.0f}"


def named(name: str, digits: int) -> Quantity:
    """What the script named with `ddpmon.phase`: a part of the phases."""
    return Quantity(
        cut(f"in {plain(name)}", NAME - 1),
        lambda rank: rank.named_ms.get(name),
        lambda value: numbers.aligned_ms(value, digits),
        marked=True,
    )


LATENESS = (
    Quantity("late ms", lambda rank: rank.late_ms, numbers.ms),
    Quantity("last to arrive", lambda rank: rank.critical_share, numbers.percent),
    Quantity("gc ms", lambda rank: rank.gc_ms, numbers.ms),
)
OTHERS = (
    Quantity("learning rate", lambda rank: rank.learning_rate, numbers.loss),
    Quantity("samples/s", lambda rank: rank.samples_per_s, numbers.short),
    Quantity("tokens/s", lambda rank: rank.tokens_per_s, numbers.short),
    Quantity("GPU", lambda rank: None if rank.gpu is None else rank.gpu.percent, _percent),
    Quantity(
        "GPU memory GiB", lambda rank: None if rank.gpu is None else rank.gpu.memory_used_bytes, numbers.gigabytes
    ),
    Quantity("GPU power W", lambda rank: None if rank.gpu is None else rank.gpu.power_w, _whole),
    Quantity("GPU °C", lambda rank: None if rank.gpu is None else rank.gpu.temperature_c, _whole),
    Quantity("GPU clock MHz", lambda rank: None if rank.gpu is None else rank.gpu.clock_mhz, _whole),
    Quantity("CPU", lambda rank: rank.cpu_percent, _percent),
    Quantity("no core free", lambda rank: rank.cpu_starved_share, numbers.percent),
    Quantity("memory GiB", lambda rank: rank.rss_bytes, numbers.gigabytes),
    Quantity("threads", lambda rank: rank.threads, _whole),
    Quantity("disk faults/s", lambda rank: rank.major_faults_per_s, numbers.short),
    Quantity("read bytes/s", lambda rank: rank.read_bytes_per_s, numbers.short),
    Quantity("written bytes/s", lambda rank: rank.written_bytes_per_s, numbers.short),
)


def median(get: Get, snapshot: Snapshot) -> float | None:
    """Of all ranks that have the number."""
    values = [value for each in snapshot.ranks if (value := finite(get(each))) is not None]
    return statistics.median(values) if values else None


def least_excess(snapshot: Snapshot) -> float:
    """Milliseconds from which on an excess is worth a mark."""
    return LEAST_EXCESS * (median(lambda rank: rank.own_ms, snapshot) or 0.0)


def beside(rows: tuple[Quantity, ...], rank: RankView, snapshot: Snapshot) -> list[Line]:
    """A line per quantity: this rank, the world's median, the range of the others. What nobody measured is left out."""
    least = least_excess(snapshot)
    lines: list[Line] = []
    for row in rows:
        middle, mine = median(row.get, snapshot), row.get(rank)
        if middle is None and mine is None:
            continue
        others = [v for each in snapshot.ranks if each.rank != rank.rank and (v := finite(row.get(each))) is not None]
        between = f"{row.text(min(others))}–{row.text(max(others))}" if others else numbers.NONE
        excess = finite(mine - middle) if mine is not None and middle is not None else None
        remark: Line = []
        if row.marked and excess is not None and excess > least and others:
            remark = [(f"  ▲ +{row.text(excess)}", "warn")]
        lines.append([
            (f" {row.name:<{NAME - 1}}", "text"), (f"{row.text(mine):>{NUMBER}}", "warn" if remark else "text"),
            (f"{row.text(middle):>{NUMBER}}", "text"), (f"{between:>{_RANGE}}", "muted"), *remark,
        ])  # fmt: skip
    head: Line = [(f"{'':{NAME}}{'this rank':>{NUMBER}}{'median':>{NUMBER}}{'others':>{_RANGE}}", "muted")]
    return [head, *lines] if lines else []
