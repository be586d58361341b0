"""The columns of all tables of ranks, how a table is sorted by one of them, and which of them fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from rich.cells import cell_len

from ddpmon import numbers
from ddpmon.messages import GPU, PHASES, QUANTITIES, RankView, further
from ddpmon.messages.quantities import MS
from ddpmon.tui import rank_marks
from ddpmon.tui.frame import finite
from ddpmon.tui.lines import Line, padded, plain
from ddpmon.tui.units import cell
from ddpmon.tui.widgets.worldmap import short_host

STAGE_WORDS = {
    "importing": "importing torch",
    "connected": "torch imported",
    "group": "process group up",
    "model": "model wrapped in DDP",
    "training": "training",
    "ended": "ended",
}
HEALTH_WORDS = {
    "missing": "not connected",
    "ok": "alive",
    "silent": "silent",
    "dead": "dead",
    "left": "left",
}
Value = float | str | None


@dataclass(frozen=True)
class RankColumn:
    """One column: the value that it shows and is sorted by."""

    head: str
    width: int
    """With a space in front."""
    value: Callable[[RankView], Value]
    text: Callable[[float, int], str] = numbers.aligned_ms
    """Takes the value and the number of decimals that milliseconds have."""
    role: str = "text"
    head_role: str = "muted"
    up: bool = False
    """Sorted from the smallest first."""
    left: bool = False
    accused: bool = False
    """Takes the marker's colour in a marked row."""
    of_gpu: bool = False
    """Only where a rank has one."""

    def cell(self, rank: RankView, digits: int) -> str:
        """The value in this column's width."""
        value = self.value(rank)
        if value is None or isinstance(value, str):
            return self.place(value or numbers.NONE)
        return self.place(self.text(value, digits))

    def place(self, text: str) -> str:
        """Text in this column's width."""
        return " " + padded(text, self.width - 1, left=self.left)

    def order(self, rank: RankView) -> tuple[float, str]:
        """A key that sorts ranks which have the value; one that is no number counts as the largest."""
        value = self.value(rank)
        if isinstance(value, str):
            return 0.0, value
        return (math.inf if value is None or math.isnan(value) else value), ""


def _measured(name: str, width: int, *, role: str = "text", up: bool = False, accused: bool = False) -> RankColumn:
    """The column of one of QUANTITIES."""
    row = QUANTITIES[name]
    written = cell(row.unit)
    text = numbers.aligned_ms if row.unit == MS and name != "gc" else lambda value, _: written(value)
    return RankColumn(
        row.heading, width, row.get, text, role, up=up, accused=accused, of_gpu=row.where == GPU
    )  # fmt: skip


def _whole(value: float, _: int) -> str:
    return f"{value:.0f}"


def how_far(rank: RankView) -> str:
    """Return how far a rank has come, in words."""
    return numbers.NONE if rank.health == "missing" else STAGE_WORDS.get(rank.stage, plain(rank.stage))


def exit_text(rank: RankView) -> str:
    """The signal or exit code that a rank ended with; empty while it has not."""
    end = rank.exit
    if end is None:
        return ""
    return plain(end.signal) if end.signal else numbers.NONE if end.code is None else str(end.code)


_MACHINE = {
    "samples": 10, "tokens": 9, "cpu": 6, "starved": 8, "rss": 8, "gpu": 6, "gpu_memory": 8, "gpu_power": 5,
    "gpu_temperature": 4, "gpu_clock": 6, "gc": 7, "major_faults": 9, "read": 7, "written": 8, "threads": 8,
}  # fmt: skip
"""Widths."""
COLUMNS: dict[str, RankColumn] = {
    "rank": RankColumn("rank", 6, lambda rank: float(rank.rank), _whole, up=True, accused=True),
    "host": RankColumn("host", 17, lambda rank: short_host(rank.host) or None, role="muted", up=True, left=True),
    "exit": RankColumn("exit", 8, lambda rank: exit_text(rank) or None, accused=True),
    "own": _measured("own", 8, accused=True),
    "over": _measured("over", 8, accused=True),
    "wait": _measured("wait", 7, role="comm", up=True),
    "data": _measured("data", 7),
    "forward": _measured("forward", 8),
    "backward": _measured("backward", 9),
    "optimizer": _measured("optimizer", 10),
    "other": _measured("other", 7),
    "transfer": _measured("transfer", 9, role="comm"),
    "step": _measured("step", 8),
    "late": _measured("late", 8),
    "critical": _measured("critical", 6),
    "loss": _measured("loss", 8),
    "device": RankColumn(
        "device",
        8,
        lambda rank: plain(rank.device) if rank.health != "missing" else None,
        up=True,
        left=True,
    ),
    **{name: _measured(name, width) for name, width in _MACHINE.items()},
    **{row.name: _measured(row.name, max(7, len(row.heading) + 1)) for row in further(_MACHINE)},
    "steps": RankColumn("steps", 8, lambda rank: rank.steps or None, lambda value, _: numbers.count(int(value))),
    "pid": RankColumn("pid", 8, lambda rank: rank.pid or None, _whole, up=True),
    "state": RankColumn(
        "state", 15, lambda rank: HEALTH_WORDS.get(rank.health, plain(rank.health)), left=True, accused=True
    ),
    "stage": RankColumn("stage", 22, how_far, left=True),
}
"""All columns, in the order of the full table."""


def gpu_number(rank: RankView) -> float | None:
    """K of a rank on cuda:K."""
    number = rank.device.rpartition(":")[2]
    return float(number) if rank.device.startswith("cuda:") and number.isdecimal() and number.isascii() else None


GPU_NUMBER = RankColumn("gpu", 5, gpu_number, _whole, of_gpu=True)
"""Stands for the device where there is little room."""

MEASURED = {
    "rank": 0, "host": 4, "gpu_number": 10, "exit": 1, "own": 0, "over": 1, "data": 5, "forward": 6, "backward": 7,
    "optimizer": 11, "other": 12, "wait": 2, "transfer": 3, "late": 16, "critical": 15, "cpu": 13, "gpu": 9,
    "gpu_memory": 14, "rss": 17, "loss": 8,
}  # fmt: skip
"""The columns of ranks that train, and which of them go first where it is narrow: the highest number."""
ARRIVING = {"rank": 0, "host": 2, "pid": 4, "device": 3, "stage": 1, "state": 0}
"""The columns of ranks that have not finished a step."""


@dataclass(frozen=True)
class Sort:
    """An order of a table by one of its columns. Ranks without the value come last; equal ones by rank."""

    name: str
    column: str
    backwards: bool = False
    """The other way round than the column usually goes."""
    trouble_first: bool = False


def gone_first(rank: RankView) -> int:
    """A key that puts ranks first that are dead or silent."""
    return -grade if (grade := rank_marks.grade(rank)[0]) >= 8 else 0


def ordered(ranks: Iterable[RankView], sort: Sort, trouble: Callable[[RankView], int] = gone_first) -> list[RankView]:
    """Return ranks, given by rank, in an order. trouble: a key that puts those first which need attention."""
    column = COLUMNS[sort.column]
    having: list[RankView] = []
    without: list[RankView] = []
    for rank in ranks:
        (without if column.value(rank) is None else having).append(rank)
    having.sort(key=column.order, reverse=column.up == sort.backwards)
    in_order = having + without
    if sort.trouble_first:
        in_order.sort(key=trouble)
    return in_order


def decimals(ranks: list[RankView]) -> int:
    """Return how many decimals milliseconds need: two where a step takes less than ten."""
    steps = [step for rank in ranks if (step := finite(rank.step_ms)) is not None]
    return 2 if steps and max(steps) < 10 else 1


def host_column(ranks: Iterable[RankView]) -> RankColumn:
    """The column of hosts, as wide as the longest of their names."""
    width = max([5, *(cell_len(short_host(rank.host)) + 1 for rank in ranks)])
    return replace(COLUMNS["host"], width=min(17, width))


def fit_columns(keep: Mapping[str, int], ranks: list[RankView], width: int) -> list[RankColumn]:
    """Return the columns that fit.

    Args:
        keep: Names of columns, in their order; those with the highest numbers go first.
        ranks: Those that are listed. GPU columns stand there only where a rank has one, exits where a rank failed.
        width: The room in columns of the screen.

    """
    with_gpu = any(rank.has_gpu_sample or rank.device.startswith("cuda") for rank in ranks)
    with_exit = any(map(rank_marks.failed, ranks))
    special = {"host": host_column(ranks), "gpu_number": GPU_NUMBER}
    chosen = {
        name: column
        for name in keep
        if (column := special.get(name) or COLUMNS[name]) and (with_gpu or not column.of_gpu)
        if with_exit or name != "exit"
    }
    while len(chosen) > 1 and sum(column.width for column in chosen.values()) > width:
        del chosen[max(chosen, key=lambda name: keep[name])]
    return list(chosen.values())


SPLIT_LEGEND: Line = [
    (" ░ data", "data"), (" ━ compute", "compute"), (" ╌ wait", "wait"), (" ═ transfer", "comm"),
]  # fmt: skip


def split_bar(rank: RankView, longest_ms: float, width: int) -> Line:
    """A step as a bar of its phases; the longest step of the world fills `width`."""
    phases = rank.phases_ms
    if phases is None or len(phases) < len(PHASES) or not longest_ms > 0:
        return []
    shares = [value / longest_ms if 0 <= value <= longest_ms else 0.0 for value in phases]
    data, *compute, wait, transfer = shares[: len(PHASES)]
    line: Line = []
    total, filled = 0.0, 0
    for mark, role, share in (
        ("░", "data", data),
        ("━", "compute", sum(compute)),
        ("╌", "wait", wait),
        ("═", "comm", transfer),
    ):
        total += share
        end = min(width, round(total * width))
        if end > filled:
            line.append((mark * (end - filled), role))
            filled = end
    return line
