"""The columns of the rank table, and which of them fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rich.cells import cell_len

from ddpmon.messages import PHASES, RankView
from ddpmon.tui import numbers
from ddpmon.tui.frame import finite
from ddpmon.tui.lines import Line, padded, plain
from ddpmon.tui.standing import failed
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
    "missing": "not heard yet",
    "ok": "alive",
    "silent": "silent",
    "dead": "dead",
    "left": "left",
}


@dataclass(frozen=True)
class Column:
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

    def cell(self, text: str) -> str:
        """The text in this column's width, a space before it."""
        return " " + padded(text, self.width - 1, left=self.left)


def _phase(name: str) -> Callable[[RankView, int], str]:
    return lambda rank, digits: numbers.aligned_ms(rank.phase_ms(name), digits)


def decimals(ranks: list[RankView]) -> int:
    """How many decimals milliseconds need: two where a step takes less than ten."""
    steps = [step for rank in ranks if (step := finite(rank.step_ms)) is not None]
    return 2 if steps and max(steps) < 10 else 1


def _memory(rank: RankView) -> str:
    return numbers.gigabytes(rank.gpu.memory_used_bytes if rank.gpu is not None else rank.rss_bytes)


def _percent(value: float | None) -> str:
    return numbers.percent(None if value is None else value / 100).removesuffix("%")


_RANK = Column("rank", 6, 0, lambda rank, _: str(rank.rank), accused=True)

MEASURED = (
    _RANK,
    Column("host", 17, 4, lambda rank, _: short_host(rank.host) or numbers.NONE, role="muted", left=True),
    Column("gpu", 5, 10, lambda rank, _: plain(rank.device).removeprefix("cuda:")),
    Column("exit", 9, 1, lambda rank, _: exit_text(rank), accused=True),
    Column("own ms", 8, 0, lambda rank, digits: numbers.aligned_ms(rank.own_ms, digits), accused=True),
    Column("vs med", 8, 1, lambda rank, _: numbers.over(rank.over_median), accused=True),
    Column("data", 7, 5, _phase("data")),
    Column("forward", 8, 6, _phase("forward")),
    Column("backward", 9, 7, _phase("backward")),
    Column("optimizer", 10, 11, _phase("optimizer")),
    Column("other", 7, 12, _phase("other")),
    Column("wait", 7, 2, _phase("wait"), role="comm"),
    Column("transfer", 9, 3, _phase("transfer"), role="comm"),
    Column("late ms", 8, 16, lambda rank, digits: numbers.aligned_ms(rank.late_ms, digits)),
    Column("last", 6, 15, lambda rank, _: numbers.percent(rank.critical_share)),
    Column("cpu%", 6, 13, lambda rank, _: _percent(rank.cpu_percent)),
    Column("gpu%", 6, 9, lambda rank, _: _percent(None if rank.gpu is None else rank.gpu.percent)),
    Column("mem G", 7, 14, lambda rank, _: _memory(rank)),
    Column("loss", 8, 8, lambda rank, _: numbers.loss(rank.loss)),
)
ARRIVING = (
    _RANK,
    Column("host", 17, 2, lambda rank, _: short_host(rank.host) or numbers.NONE, role="muted", left=True),
    Column("pid", 9, 4, lambda rank, _: str(rank.pid) if rank.pid else numbers.NONE),
    Column("device", 9, 3, lambda rank, _: plain(rank.device) if rank.health != "missing" else numbers.NONE),
    Column("  how far", 24, 1, lambda rank, _: "  " + how_far(rank), left=True),
    Column("state", 15, 0, lambda rank, _: HEALTH_WORDS.get(rank.health, plain(rank.health)), left=True, accused=True),
)


def how_far(rank: RankView) -> str:
    """How far a rank has come, in words."""
    return numbers.NONE if rank.health == "missing" else STAGE_WORDS.get(rank.stage, plain(rank.stage))


def exit_text(rank: RankView) -> str:
    """The signal or exit code that a rank ended with; empty while it has not."""
    end = rank.exit
    if end is None:
        return ""
    return plain(end.signal) if end.signal else numbers.NONE if end.code is None else str(end.code)


def choose(columns: tuple[Column, ...], ranks: list[RankView], width: int) -> list[Column]:
    """The columns that fit in `width`, in their order. GPU columns only where a rank has one."""
    with_gpu = any(rank.gpu is not None or rank.device.startswith("cuda") for rank in ranks)
    with_exit = any(failed(rank) for rank in ranks)
    host = min(17, max([5, *(cell_len(short_host(rank.host)) + 1 for rank in ranks)]))
    chosen = [
        replace(column, width=host) if column.head == "host" else column
        for column in columns
        if (with_gpu or not column.head.startswith("gpu")) and (with_exit or column.head != "exit")
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
