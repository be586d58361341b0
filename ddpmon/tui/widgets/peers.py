"""Compares one rank with the others: the rank's quantities, the others' median and range, and the history of the rank's
phases.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from ddpmon import numbers
from ddpmon.messages import (
    NOTABLE,
    OWN_PHASES,
    QUANTITIES,
    Course,
    CoursesView,
    Quantity,
    RankView,
    Snapshot,
    other_quantities,
    quantities_named,
)
from ddpmon.messages.cells import LEAST, MOST, NOT_FINITE, NOTHING
from ddpmon.messages.quantities import MS
from ddpmon.tui import axis
from ddpmon.tui.frame import finite_or_none
from ddpmon.tui.lines import Line, cut_text, fit_line, join_pieces, plain_text
from ddpmon.tui.units import value_formatter
from ddpmon.tui.widgets.columns import decimals
from ddpmon.tui.widgets.lanes import level_glyph

NAME, NUMBER = 17, 9
_RANGE = 19

Get = Callable[[RankView], float | None]


@dataclass(frozen=True)
class Beside:
    """A quantity of a rank that is compared with the other ranks."""

    quantity: Quantity
    text: Callable[[float | None], str]
    marked: bool = False
    """True if an excess over the others is highlighted, because such an excess makes the rank slow."""


def _rows(*quantities: Quantity) -> tuple[Beside, ...]:
    return tuple(Beside(row, value_formatter(row.unit)) for row in quantities)


def script_phase(name: str, digits: int) -> Beside:
    """Return the row of a phase that the script named with `ddpmon.phase`. Its time is also part of the
    other phases.
    """
    label = cut_text(f"in {plain_text(name)}", NAME - 1)
    row = Quantity(name, MS, "Time in a phase that the script named", f"named_ms.{name}", label=label)
    return Beside(row, lambda value: numbers.aligned_ms(value, digits), marked=True)


LATENESS = _rows(*quantities_named("late", "critical", "gc"))
_FIRST = (
    *("learning_rate", "samples", "tokens", "gpu", "gpu_memory", "gpu_power", "gpu_temperature", "gpu_clock"),
    *("cpu", "starved", "rss", "threads", "major_faults", "minor_faults", "read", "written"),
)
OTHERS = _rows(*quantities_named(*_FIRST), *other_quantities(_FIRST))


@dataclass(frozen=True)
class Compared:
    """A value of one rank, and the values of the other ranks that have one."""

    mine: float | None
    others: list[float]
    """Values of the other ranks."""

    @property
    def median(self) -> float | None:
        """Return the median of the others; None if no other rank has a value."""
        return statistics.median(self.others) if self.others else None

    @property
    def excess(self) -> float | None:
        """Return how much the rank's value exceeds the median of the others; None if either is missing."""
        return None if self.mine is None or self.median is None else finite_or_none(self.mine - self.median)

    @property
    def nothing(self) -> bool:
        """Return whether no rank has a value."""
        return self.mine is None and not self.others


def compare(get: Get, rank: RankView, snapshot: Snapshot) -> Compared:
    """Return a rank's value with those of the others."""
    others = [v for each in snapshot.ranks if each.rank != rank.rank and (v := finite_or_none(get(each))) is not None]
    return Compared(get(rank), others)


def least_excess(rank: RankView, snapshot: Snapshot) -> float:
    """Return the excess in milliseconds from which a rank is marked."""
    return NOTABLE * (compare(lambda each: each.own_ms, rank, snapshot).median or 0.0)


def beside(rows: tuple[Beside, ...], rank: RankView, snapshot: Snapshot) -> list[Line]:
    """Return a line per measured quantity: this rank, the median of the others, and their range."""
    least = least_excess(rank, snapshot)
    lines: list[Line] = []
    for row in rows:
        compared = compare(row.quantity.get, rank, snapshot)
        if compared.nothing:
            continue
        others, excess = compared.others, compared.excess
        between = f"{row.text(min(others))}–{row.text(max(others))}" if others else numbers.NONE
        remark: Line = []
        if row.marked and excess is not None and excess > least:
            remark = [(f"  ▲ +{row.text(excess)}", "warn")]
        lines.append([
            (f" {row.quantity.text:<{NAME - 1}}", "text"),
            (f"{row.text(compared.mine):>{NUMBER}}", "warn" if remark else "text"),
            (f"{row.text(compared.median):>{NUMBER}}", "text"), (f"{between:>{_RANGE}}", "muted"), *remark,
        ])  # fmt: skip
    head: Line = [(f"{'':{NAME}}{'this rank':>{NUMBER}}{'peers':>{NUMBER}}{'range':>{_RANGE}}", "muted")]
    return [head, *lines] if lines else []


_OVER = 9
LABEL_WIDTH = NAME + 2 * NUMBER + _OVER + 2
"""Width of the name and the numbers in columns."""
_LEAST_ROOM = 12
"""Minimum width in columns of a rank's history, drawn as a strip of blocks."""


@dataclass(frozen=True)
class _Row:
    quantity: Quantity
    role: str = "text"
    indent: str = ""


_ROWS = (
    _Row(QUANTITIES["own"], "strong"),
    *(_Row(row, "muted", "  ") for row in quantities_named(*OWN_PHASES)),
    *(_Row(row) for row in quantities_named("wait", "transfer", "step", "loss")),
)


def strip(row: Course, over: float | None, width: int) -> tuple[Line, Line, bool]:
    """Draw the history of a rank and of its peers, with the newest on the right.

    Args:
        row: The history.
        over: Excess over the peers in milliseconds above which a column is marked; None to mark none.
        width: Columns.

    Returns:
        The rank's history, its peers' history, and whether any column is marked.

    """
    unit = (row.high - row.low) / (MOST - LEAST)
    values = row.cells[-width:]
    beside = row.peers[len(row.cells) - len(values) :].ljust(len(values), bytes([NOTHING]))
    exceeds = [
        over is not None and value != NOT_FINITE and NOTHING < peer < NOT_FINITE and (value - peer) * unit > over
        for value, peer in zip(values, beside, strict=False)
    ]
    marked = any(exceeds)
    calm = "compute" if marked else "wait"
    mine = join_pieces(
        (level_glyph(value), "bad" if value == NOT_FINITE else "warn" if is_over else calm)
        for value, is_over in zip(values, exceeds, strict=True)
    )
    peers = "".join(level_glyph(value) for value in row.peers[-width:])
    pad = width - min(width, len(row.cells))
    return [(" " * pad, "text"), *mine], [(" " * pad + peers, "muted")], marked


def phase_history(
    rank: RankView, snapshot: Snapshot, view: CoursesView | None, width: int, missing: str
) -> list[Line]:  # fmt: skip
    """Return the rows of all phases and of the loss. missing: text in place of a missing history.

    There are no rows if nothing was measured.
    """
    table = _Table(
        least_excess(rank, snapshot), decimals(snapshot.ranks), max(0, width - LABEL_WIDTH), len(snapshot.ranks) < 2
    )
    past = {} if view is None else {row.name: row for row in view.courses}
    lines: list[Line] = []
    for row in _ROWS:
        compared = compare(row.quantity.get, rank, snapshot)
        measured = row.quantity.name not in rank.unmeasured
        if compared.nothing and (measured or rank.phases_ms is None):
            continue
        lines += table.lines(row, compared, past.get(row.quantity.name) if measured else None)
    return [_header(view, missing, table.room), *lines] if lines else []


def _header(view: CoursesView | None, missing: str, room: int) -> Line:
    """Return the heads of the numbers, and the steps of the columns below."""
    each, steps = "", f"{missing:>{room}}"
    if view is not None and view.courses and room >= _LEAST_ROOM:
        each = f" {view.per_column} steps/column" if view.per_column > 1 else ""
        steps = axis.steps(view.last_step, view.per_column, room)
    heads: Line = [(f"{each:{NAME}}{'this rank':>{NUMBER}}{'peers':>{NUMBER}}{'excess':>{_OVER}}", "muted")]
    return [*fit_line(heads, LABEL_WIDTH), (steps if len(steps) <= room else "", "muted")]


@dataclass(frozen=True)
class _Table:
    """The layout and limits that all rows share."""

    least_ms: float
    """Excess in milliseconds from which a row is marked."""
    digits: int
    """Number of decimals of milliseconds."""
    room: int
    """Width in columns of a rank's history, drawn as a strip of blocks."""
    alone: bool
    """True if there is no other rank."""

    def lines(self, row: _Row, compared: Compared, past: Course | None) -> list[Line]:
        """Return a row's numbers and history. If the rank clearly differs from its peers, add a line with their
        history.
        """
        name, unit, excess = row.quantity.name, row.quantity.unit, compared.excess
        text: Callable[[float | None], str] = self._ms if unit == MS else value_formatter(unit)
        slows = name == "own" or name in OWN_PHASES
        over, role, differs = "", row.role if row.role == "strong" else "text", False
        if excess is not None and not self.alone:
            if slows and excess > self.least_ms:
                over, role, differs = f"▲ +{self._ms(excess)}", "warn", True
            elif name == "wait" and -excess > max(self.least_ms, 0.5 * (compared.median or 0.0)):
                over, role, differs = f"◂ {self._ms(excess)}", "warn", True
        label = f" {row.indent + row.quantity.text:<{NAME - 1}}"
        line: Line = [
            (label, "muted" if row.role == "muted" else "text"), (f"{text(compared.mine):>{NUMBER}}", role),
            (f"{text(compared.median):>{NUMBER}}", "text"), (f"{over:>{_OVER}}", "warn"),
        ]  # fmt: skip
        if past is None or self.room < _LEAST_ROOM:
            return [line]
        drawn, peers, was_over = strip(past, self.least_ms if slows and self.least_ms else None, self.room)
        lines = [[*fit_line(line, LABEL_WIDTH), *drawn]]
        if not self.alone and (differs or was_over or name in {"own", "loss"}):
            words = past.longer or ("the others wait for it" if differs and name == "wait" else "")
            remark: Line = [(f"    {words}", "warn" if words else "text")]
            lines.append([*fit_line(remark, LABEL_WIDTH - 12), (f"{'peers':>10}  ", "muted"), *peers])
        return lines

    def _ms(self, value: float | None) -> str:
        return numbers.aligned_ms(value, self.digits)
