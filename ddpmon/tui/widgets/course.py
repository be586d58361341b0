"""Shows the phases of a rank's steps, in numbers and through time: a row per phase, its peers' median below it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ddpmon import numbers
from ddpmon.messages import OWN_PHASES, QUANTITIES, InspectView, PastRow, Quantity, RankView, Snapshot, chosen
from ddpmon.messages.cells import LEAST, MOST, NOT_FINITE, NOTHING
from ddpmon.messages.quantities import MS
from ddpmon.tui import axis
from ddpmon.tui.frame import finite
from ddpmon.tui.lines import Line, fit, joined
from ddpmon.tui.units import written
from ddpmon.tui.widgets.columns import decimals
from ddpmon.tui.widgets.quantities import NAME, NUMBER, least_excess, others_median

_OVER = 9
LABEL = NAME + 2 * NUMBER + _OVER + 2
"""Columns of the name and the numbers."""
_LEAST_ROOM = 12
"""Columns of a strip, at least."""
LEVELS = "▁▂▃▄▅▆▇█"
"""Blocks of a strip, from the least value to the most."""


@dataclass(frozen=True)
class _Row:
    quantity: Quantity
    role: str = "text"
    indent: str = ""


_ROWS = (
    _Row(QUANTITIES["own"], "strong"),
    *(_Row(row, "muted", "  ") for row in chosen(*OWN_PHASES)),
    *(_Row(row) for row in chosen("wait", "transfer", "step", "loss")),
)


def cell(value: int) -> str:
    """The block that stands for a cell of a course."""
    if value == NOTHING:
        return " "
    return "✖" if value == NOT_FINITE else LEVELS[min(7, (value - LEAST) * 8 // (MOST - LEAST + 1))]


def strip(row: PastRow, over: float | None, width: int) -> tuple[Line, Line, bool]:
    """A course of this rank and of its peers, the newest on the right; and whether this rank was ever over its peers.

    over: from so many milliseconds more than the peers on, a column is marked; None: it never is.
    """
    unit = (row.high - row.low) / (MOST - LEAST)
    values = row.mine[-width:]
    beside = row.peers[len(row.mine) - len(values) :].ljust(len(values), bytes([NOTHING]))
    exceeds = [
        over is not None and value != NOT_FINITE and NOTHING < peer < NOT_FINITE and (value - peer) * unit > over
        for value, peer in zip(values, beside, strict=False)
    ]
    marked = any(exceeds)
    calm = "compute" if marked else "wait"
    mine = joined(
        (cell(value), "bad" if value == NOT_FINITE else "warn" if is_over else calm)
        for value, is_over in zip(values, exceeds, strict=True)
    )
    peers = "".join(cell(value) for value in row.peers[-width:])
    pad = width - min(width, len(row.mine))
    return [(" " * pad, "text"), *mine], [(" " * pad + peers, "muted")], marked


def course(rank: RankView, snapshot: Snapshot, view: InspectView | None, width: int, missing: str) -> list[Line]:
    """The rows of all phases and the loss; empty where nothing was measured. missing: said where no course is there."""
    least = least_excess(rank, snapshot)
    digits = decimals(snapshot.ranks)
    rows = {} if view is None else {row.name: row for row in view.rows}
    room = max(0, width - LABEL)
    lines: list[Line] = []
    for row in _ROWS:
        get = row.quantity.get
        mine, middle = get(rank), others_median(get, rank, snapshot)
        measured = row.quantity.name not in rank.unmeasured
        if mine is None and middle is None and (measured or rank.phases_ms is None):
            continue
        lines += _lines(
            row,
            mine,
            middle,
            rows.get(row.quantity.name) if measured else None,
            least,
            digits,
            room,
            alone=len(snapshot.ranks) < 2,
        )
    return [_header(view, missing, room), *lines] if lines else []


def _header(view: InspectView | None, missing: str, room: int) -> Line:
    """Return what the numbers are, and the steps of the columns below."""
    each, steps = "", f"{missing:>{room}}"
    if view is not None and view.rows and room >= _LEAST_ROOM:
        each = f" {view.steps} steps/column" if view.steps > 1 else ""
        steps = axis.steps(view.last_step, view.steps, room)
    heads: Line = [(f"{each:{NAME}}{'this rank':>{NUMBER}}{'peers':>{NUMBER}}{'excess':>{_OVER}}", "muted")]
    return [*fit(heads, LABEL), (steps if len(steps) <= room else "", "muted")]


def _lines(
    row: _Row, mine: float | None, middle: float | None, past: PastRow | None, least: float, digits: int, room: int,
    *, alone: bool,
) -> list[Line]:  # fmt: skip
    def ms(value: float | None) -> str:
        return numbers.aligned_ms(value, digits)

    name, unit, label = row.quantity.name, row.quantity.unit, row.indent + row.quantity.text
    text: Callable[[float | None], str] = ms if unit == MS else written(unit)
    slows = name == "own" or name in OWN_PHASES
    excess = finite(mine - middle) if mine is not None and middle is not None else None
    over, role, differs = "", row.role if row.role == "strong" else "text", False
    if excess is not None and not alone:
        if slows and excess > least:
            over, role, differs = f"▲ +{ms(excess)}", "warn", True
        elif name == "wait" and -excess > max(least, 0.5 * (middle or 0.0)):
            over, role, differs = f"◂ {ms(excess)}", "warn", True
    line: Line = [
        (f" {label:<{NAME - 1}}", "muted" if row.role == "muted" else "text"), (f"{text(mine):>{NUMBER}}", role),
        (f"{text(middle):>{NUMBER}}", "text"), (f"{over:>{_OVER}}", "warn"),
    ]  # fmt: skip
    if past is None or room < _LEAST_ROOM:
        return [line]
    drawn, peers, was_over = strip(past, least if slows and least else None, room)
    lines = [[*fit(line, LABEL), *drawn]]
    if not alone and (differs or was_over or name in {"own", "loss"}):
        words = past.longer or ("the others wait for it" if differs and name == "wait" else "")
        remark: Line = [(f"    {words}", "warn" if words else "text")]
        lines.append([*fit(remark, LABEL - 12), (f"{'peers':>10}  ", "muted"), *peers])
    return lines
