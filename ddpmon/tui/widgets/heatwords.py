"""Describes rows and cells of the heat map in words: which ranks, how often they are slow, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.cells import cell_len

from ddpmon import numbers
from ddpmon.messages import HEAT_LEVELS, NOTABLE, OWN_PHASES, HeatRow, HeatView
from ddpmon.messages.cells import LEAST, MOST, NOT_FINITE, NOTHING
from ddpmon.tui.frame import finite_or_none, short_host
from ddpmon.tui.lines import pad_text

_WORDS = {
    "own": f"{NOTABLE:.0%}+ slower than peers",
    **{phase: f"{phase} {NOTABLE:.0%}+ slower than peers" for phase in OWN_PHASES},
    "wait": "half of the step",
    "gpu": "GPU utilization under 50%",
}
"""Text that describes notable values of a row, by metric. Metrics that are not listed are described as above the
median."""


def labels(rows: list[HeatRow], width: int, *, meant: bool = False) -> list[str]:
    """Return the label of each row: its ranks, and its host if that differs from the row above.

    Args:
        rows: The rows.
        width: Maximum width in columns.
        meant: True to add the number of late ranks to the label of a row with several ranks, such as "2/8".

    """
    hosts, before = [], ""
    for row in rows:
        first, last = (short_host(host) or numbers.NONE for host in row.hosts)
        host = first if first == last else f"{first}-{last}"
        hosts.append("" if host == before else host)
        before = host
    ranks = [_span(row) for row in rows]
    most = max((row.count for row in rows), default=1)
    if meant and most > 1:
        room = len(f"{most}/{most}")  # always reserved, so that columns never move
        few = [f"{row.meant}/{row.count}" if row.meant and row.count > 1 else "" for row in rows]
        ranks = [f"{each} {share:>{room}}" for each, share in zip(ranks, few, strict=True)]
    right = max(map(len, ranks), default=1)
    left = min(max(map(cell_len, hosts), default=0), max(0, width - right - 1))
    return [f"{pad_text(host, left, left=True)} {each:>{right}}" for host, each in zip(hosts, ranks, strict=True)]


def _span(row: HeatRow) -> str:
    """Return the ranks of a row as text: "0-7", or "0…7" if some ranks in between are not in the row."""
    first, last = row.ranks
    whole = row.count == last - first + 1
    return str(first) if row.count == 1 else f"{first}{'-' if whole else '…'}{last}"


def hosts_end(rows: Sequence[HeatRow]) -> set[int]:
    """Return the index of each host's last row, except the last row of the map. Return no index if no host has several
    rows.
    """
    ends, place = set(), 0
    for _, group in groupby(rows, key=lambda row: row.hosts):
        place += len(list(group))
        ends.add(place - 1)
    return ends - {len(rows) - 1} if len(ends) < len(rows) else set()


def in_words(view: HeatView, row: HeatRow, *, has_value: bool = True, alone: bool = False) -> str:
    """Describe a row: its ranks, how often they are slow, and since when.

    Args:
        view: The map with the row.
        row: The row.
        has_value: True if any of the row's cells has a value.
        alone: True if the run has only one rank.

    """
    host = short_host(row.hosts[0]) or "no host"
    who = f"rank {row.worst} on {host}" if row.count == 1 else f"rank {row.worst}, worst of {_span(row)}"
    if row.count > 1 and row.meant:
        among = " alone" if row.meant == 1 else f", worst of {row.meant}"
        who = f"rank {row.worst}{among} of {row.count} ({_span(row)})"
    if not has_value:
        return f"{who}: nothing recorded"
    if view.metric == "loss":
        return who
    over = _WORDS.get(view.metric, "5%+ over the median")
    if view.beyond_chance:
        over = "longer than usual" if view.metric == "step" else "late"
    if not row.hot_share:
        return f"{who}: {_never(view, over, alone=alone)}"
    if row.hot_share == 1:
        return f"{who}: {over} in every column"  # the map does not show when that began
    since = "" if row.hot_since is None else f", since step {numbers.count(row.hot_since)}"
    return f"{who}: {over} in {numbers.percent(row.hot_share)} of columns{since}"


def cell_in_words(view: HeatView, row: HeatRow, column: int, cell: int) -> str:
    """Describe the mark in a column of a row.

    Args:
        view: The map with the row.
        row: The row.
        column: Index of the mark in the row.
        cell: The value of the mark.

    """
    first = max(1, (view.first + column) * view.steps)
    last = min(view.last_step, (view.first + column + 1) * view.steps - 1)
    steps = f"step {numbers.count(first)}"
    if last > first:
        steps = f"steps {numbers.count(first)}-{numbers.count(last)}"
    worst = f"rank {_span(row)}" if row.count == 1 else f"ranks {_span(row)}, the worst one"
    return f"{steps}, {worst}: {_cell_value(view, cell)}"


def _cell_value(view: HeatView, cell: int) -> str:
    if cell == NOTHING:
        return "nothing recorded"
    if cell == NOT_FINITE:
        return "not finite"
    if view.beyond_chance:
        level = min(cell - LEAST, len(HEAT_LEVELS)) - 1
        longer = "longer than usual" if view.metric == "step" else "late"
        if level < 0:
            return "within the noise"
        return f"{longer}, by {numbers.percent(HEAT_LEVELS[level])} or more" if level else f"{longer}, by less than 5%"
    value = view.low + (cell - LEAST) / (MOST - LEAST) * (view.high - view.low)
    if view.metric == "loss":
        return f"loss {numbers.loss(value)}"
    if view.metric == "gpu":
        return f"GPU utilization {numbers.percent(1 - value)}"
    if view.metric == "wait":
        return f"{numbers.percent(value)} of the step"
    return f"{numbers.over(value)} against the median"


def _never(view: HeatView, over: str, *, alone: bool) -> str:
    """Return the text for a row without notable columns, with the level of noise if it is known."""
    if not view.beyond_chance:
        return f"never {over}"
    if (noise := finite_or_none(view.noise)) is not None:
        longer = f"{numbers.percent(noise)} longer" if noise < 1 else f"{1 + noise:.0f}x as long"
        return f"{over} in no column; noise alone makes single columns up to {longer}"
    return "no other rank to compare with" if alone else "too few columns yet to separate slowness from noise"
