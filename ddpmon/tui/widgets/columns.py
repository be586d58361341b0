"""The columns of all tables of ranks, and functions that sort ranks by a column and choose the columns that fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from rich.cells import cell_len

from ddpmon import numbers
from ddpmon.messages import GPU, PHASES, QUANTITIES, RankView, other_quantities
from ddpmon.messages.quantities import MS
from ddpmon.tui import rank_marks
from ddpmon.tui.frame import STAGE_WORDS, finite_or_none, short_host
from ddpmon.tui.lines import Line, pad_text, plain_text
from ddpmon.tui.units import cell_formatter

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
    """A column of a table: the value of each rank that it shows and sorts by."""

    head: str
    width: int
    """Width in columns of the screen, with a space in front."""
    value: Callable[[RankView], Value]
    text: Callable[[float, int], str] = numbers.aligned_ms
    """Formats the value, given the number of decimals for milliseconds."""
    role: str = "text"
    head_role: str = "muted"
    up: bool = False
    """True if the smallest value comes first."""
    left: bool = False
    accused: bool = False
    """True if the cell takes the marker's colour in a marked row."""
    of_gpu: bool = False
    """True if the column is shown only when a rank has a GPU."""

    def cell(self, rank: RankView, digits: int) -> str:
        """Return a rank's value as text, as wide as this column."""
        value = self.value(rank)
        if value is None or isinstance(value, str):
            return self.place(value or numbers.NONE)
        return self.place(self.text(value, digits))

    def place(self, text: str) -> str:
        """Return a text, cut or padded to this column's width."""
        return " " + pad_text(text, self.width - 1, left=self.left)

    def order(self, rank: RankView) -> tuple[float, str]:
        """Return a sort key for a rank that has a value; nan counts as the largest value."""
        value = self.value(rank)
        if isinstance(value, str):
            return 0.0, value
        return (math.inf if value is None or math.isnan(value) else value), ""


def _measured(name: str, width: int, *, role: str = "text", up: bool = False, accused: bool = False) -> RankColumn:
    """Return a column that shows the quantity with this name."""
    row = QUANTITIES[name]
    written = cell_formatter(row.unit)
    text = numbers.aligned_ms if row.unit == MS and name != "gc" else lambda value, _: written(value)
    return RankColumn(
        row.heading, width, row.get, text, role, up=up, accused=accused, of_gpu=row.where == GPU
    )  # fmt: skip


def _whole(value: float, _: int) -> str:
    return f"{value:.0f}"


def how_far(rank: RankView) -> str:
    """Return the name of the stage that a rank has reached, for the screen."""
    return numbers.NONE if rank.health == "missing" else STAGE_WORDS.get(rank.stage, plain_text(rank.stage))


def exit_text(rank: RankView) -> str:
    """Return the signal or exit code of a rank that has ended; "" for a running rank."""
    end = rank.exit
    if end is None:
        return ""
    return plain_text(end.signal) if end.signal else numbers.NONE if end.code is None else str(end.code)


_MACHINE = {
    "samples": 10, "tokens": 9, "cpu": 6, "starved": 8, "rss": 8, "gpu": 6, "gpu_memory": 8, "gpu_power": 5,
    "gpu_temperature": 4, "gpu_clock": 6, "gc": 7, "major_faults": 9, "read": 7, "written": 8, "threads": 8,
}  # fmt: skip
"""Widths of the columns about a rank's process and machine, in columns of the screen."""
RANK_COLUMNS: dict[str, RankColumn] = {
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
        lambda rank: plain_text(rank.device) if rank.health != "missing" else None,
        up=True,
        left=True,
    ),
    **{name: _measured(name, width) for name, width in _MACHINE.items()},
    **{row.name: _measured(row.name, max(7, len(row.heading) + 1)) for row in other_quantities(_MACHINE)},
    "steps": RankColumn("steps", 8, lambda rank: rank.steps or None, lambda value, _: numbers.count(int(value))),
    "pid": RankColumn("pid", 8, lambda rank: rank.pid or None, _whole, up=True),
    "state": RankColumn(
        "state", 15, lambda rank: HEALTH_WORDS.get(rank.health, plain_text(rank.health)), left=True, accused=True
    ),
    "stage": RankColumn("stage", 22, how_far, left=True),
}
"""All columns, in the order of the full table."""


def gpu_number(rank: RankView) -> float | None:
    """Return K for a rank on cuda:K; None for other devices."""
    number = rank.device.rpartition(":")[2]
    return float(number) if rank.device.startswith("cuda:") and number.isdecimal() and number.isascii() else None


GPU_NUMBER = RankColumn("gpu", 5, gpu_number, _whole, of_gpu=True)
"""Column that replaces "device" in a narrow table."""

TRAINING_COLUMNS = {
    "rank": 0, "host": 4, "gpu_number": 10, "exit": 1, "own": 0, "over": 1, "data": 5, "forward": 6, "backward": 7,
    "optimizer": 11, "other": 12, "wait": 2, "transfer": 3, "late": 16, "critical": 15, "cpu": 13, "gpu": 9,
    "gpu_memory": 14, "rss": 17, "loss": 8,
}  # fmt: skip
"""The columns for ranks that train. In a narrow table the column with the highest number is dropped first."""
STARTING_COLUMNS = {"rank": 0, "host": 2, "pid": 4, "device": 3, "stage": 1, "state": 0}
"""The columns for ranks that have not finished a step, with numbers as in `TRAINING_COLUMNS`."""


@dataclass(frozen=True)
class Sort:
    """An order of a table by one column. Ranks without a value come last. Ranks with equal values are in the order of
    their numbers.
    """

    name: str
    column: str
    backwards: bool = False
    """True for the reverse of the column's usual order."""
    trouble_first: bool = False


def gone_first(rank: RankView) -> int:
    """Return a sort key that puts dead and silent ranks first."""
    return -grade if (grade := rank_marks.state_grade(rank)[0]) >= 8 else 0


def ordered(ranks: Iterable[RankView], sort: Sort, trouble: Callable[[RankView], int] = gone_first) -> list[RankView]:
    """Sort ranks, which are given by number.

    Args:
        ranks: The ranks.
        sort: The order.
        trouble: Returns a sort key that puts ranks with problems first. Only orders with `trouble_first` use it.

    """
    column = RANK_COLUMNS[sort.column]
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
    """Return the number of decimals for milliseconds: two if every step takes less than ten milliseconds, else one."""
    steps = [step for rank in ranks if (step := finite_or_none(rank.step_ms)) is not None]
    return 2 if steps and max(steps) < 10 else 1


def host_column(ranks: Iterable[RankView]) -> RankColumn:
    """Return the column of hosts, as wide as the longest of their names."""
    width = max([5, *(cell_len(short_host(rank.host)) + 1 for rank in ranks)])
    return replace(RANK_COLUMNS["host"], width=min(17, width))


def fit_columns(keep: Mapping[str, int], ranks: list[RankView], width: int) -> list[RankColumn]:
    """Return the columns that fit into a width.

    Args:
        keep: Names of columns in their order; the columns with the highest numbers are dropped first.
        ranks: The listed ranks. GPU columns appear only if a rank has a GPU, the exit only if a rank failed.
        width: The available width, in columns of the screen.

    """
    with_gpu = any(rank.has_gpu_sample or rank.device.startswith("cuda") for rank in ranks)
    with_exit = any(map(rank_marks.has_failed, ranks))
    special = {"host": host_column(ranks), "gpu_number": GPU_NUMBER}
    chosen = {
        name: column
        for name in keep
        if (column := special.get(name) or RANK_COLUMNS[name]) and (with_gpu or not column.of_gpu)
        if with_exit or name != "exit"
    }
    while len(chosen) > 1 and sum(column.width for column in chosen.values()) > width:
        del chosen[max(chosen, key=lambda name: keep[name])]
    return list(chosen.values())


SPLIT_LEGEND: Line = [
    (" ░ data", "data"), (" ━ compute", "compute"), (" ╌ wait", "wait"), (" ═ transfer", "comm"),
]  # fmt: skip


def split_bar(rank: RankView, longest_ms: float, width: int) -> Line:
    """Draw a step as a bar of its phases; the longest step of the world fills `width`."""
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
