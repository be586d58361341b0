"""The columns of the rank table, and which of them fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rich.cells import cell_len

from ddpmon import numbers
from ddpmon.messages import GPU, PHASES, QUANTITIES, RankView
from ddpmon.messages.quantities import MS
from ddpmon.tui.frame import finite
from ddpmon.tui.lines import Line, padded, plain
from ddpmon.tui.rank_marks import failed
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


@dataclass(frozen=True)
class RankColumn:
    """One column: `keep` says which go first when it gets narrow (the highest)."""

    head: str
    width: int
    keep: int
    text: Callable[[RankView, int], str]
    """Takes the rank and the number of decimals that milliseconds have."""
    role: str = "text"
    left: bool = False
    accused: bool = False
    """Takes the marker's colour in a marked row."""
    of_gpu: bool = False
    """Only where a rank has one."""
    of_ends: bool = False
    """Only where a rank failed."""
    names_host: bool = False
    """True to make it as wide as the longest name of a host."""

    def cell(self, text: str) -> str:
        """The text in this column's width, a space before it."""
        return " " + padded(text, self.width - 1, left=self.left)


def _measured(name: str, width: int, keep: int, *, role: str = "text", accused: bool = False) -> RankColumn:
    """The column of one of QUANTITIES."""
    row = QUANTITIES[name]
    get, written = row.get, cell(row.unit)

    def milliseconds(rank: RankView, digits: int) -> str:
        return numbers.aligned_ms(get(rank), digits)

    def other(rank: RankView, _: int) -> str:
        return written(get(rank))

    text = milliseconds if row.unit == MS else other
    return RankColumn(row.heading, width, keep, text, role=role, accused=accused, of_gpu=row.where == GPU)


def decimals(ranks: list[RankView]) -> int:
    """Return how many decimals milliseconds need: two where a step takes less than ten."""
    steps = [step for rank in ranks if (step := finite(rank.step_ms)) is not None]
    return 2 if steps and max(steps) < 10 else 1


def _memory(rank: RankView) -> str:
    row = QUANTITIES["gpu_memory" if rank.has_gpu_sample else "rss"]
    return cell(row.unit)(row.get(rank))


def _host(keep: int) -> RankColumn:
    return RankColumn(
        "host", 17, keep, lambda rank, _: short_host(rank.host) or numbers.NONE, role="muted", left=True,
        names_host=True,
    )  # fmt: skip


_RANK = RankColumn("rank", 6, 0, lambda rank, _: str(rank.rank), accused=True)

MEASURED = (
    _RANK,
    _host(4),
    RankColumn("gpu", 5, 10, lambda rank, _: plain(rank.device).removeprefix("cuda:"), of_gpu=True),
    RankColumn("exit", 9, 1, lambda rank, _: exit_text(rank), accused=True, of_ends=True),
    _measured("own", 8, 0, accused=True),
    _measured("over", 9, 1, accused=True),
    _measured("data", 7, 5),
    _measured("forward", 8, 6),
    _measured("backward", 9, 7),
    _measured("optimizer", 10, 11),
    _measured("other", 7, 12),
    _measured("wait", 7, 2, role="comm"),
    _measured("transfer", 9, 3, role="comm"),
    _measured("late", 8, 16),
    _measured("critical", 6, 15),
    _measured("cpu", 6, 13),
    _measured("gpu", 6, 9),
    RankColumn("mem GiB", 8, 14, lambda rank, _: _memory(rank)),
    _measured("loss", 8, 8),
)
ARRIVING = (
    _RANK,
    _host(2),
    RankColumn("pid", 9, 4, lambda rank, _: str(rank.pid) if rank.pid else numbers.NONE),
    RankColumn("device", 9, 3, lambda rank, _: plain(rank.device) if rank.health != "missing" else numbers.NONE),
    RankColumn("  stage", 24, 1, lambda rank, _: "  " + how_far(rank), left=True),
    RankColumn(
        "state", 15, 0, lambda rank, _: HEALTH_WORDS.get(rank.health, plain(rank.health)), left=True, accused=True
    ),
)


def how_far(rank: RankView) -> str:
    """Return how far a rank has come, in words."""
    return numbers.NONE if rank.health == "missing" else STAGE_WORDS.get(rank.stage, plain(rank.stage))


def exit_text(rank: RankView) -> str:
    """The signal or exit code that a rank ended with; empty while it has not."""
    end = rank.exit
    if end is None:
        return ""
    return plain(end.signal) if end.signal else numbers.NONE if end.code is None else str(end.code)


def choose(columns: tuple[RankColumn, ...], ranks: list[RankView], width: int) -> list[RankColumn]:
    """The columns that fit in `width`, in their order. GPU columns only where a rank has one."""
    with_gpu = any(rank.has_gpu_sample or rank.device.startswith("cuda") for rank in ranks)
    with_exit = any(failed(rank) for rank in ranks)
    host = min(17, max([5, *(cell_len(short_host(rank.host)) + 1 for rank in ranks)]))
    chosen = [
        replace(column, width=host) if column.names_host else column
        for column in columns
        if (with_gpu or not column.of_gpu) and (with_exit or not column.of_ends)
    ]
    while len(chosen) > 1 and sum(column.width for column in chosen) > width:
        chosen.remove(max(chosen, key=lambda column: column.keep))
    return chosen


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
