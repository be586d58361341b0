"""Each rank's wait and transfer as two-tone bars on one scale: whoever waits least is who the others wait for."""

from __future__ import annotations

from typing import ClassVar

from ddpmon import numbers
from ddpmon.messages import RankView, Snapshot
from ddpmon.tui import rank_marks
from ddpmon.tui.frame import finite
from ddpmon.tui.lines import Line, size, under_cursor
from ddpmon.tui.widgets.columns import MEASURED, RankColumn, choose, decimals
from ddpmon.tui.widgets.ranktable import BY_RANK, RankTable, Sort, down, phase_ms
from ddpmon.tui.widgets.worldmap import arriving

_SHOWN = ("rank", "host", "wait", "transfer", "crit", "late ms")
_BAR_LEAST = 12
_LEGEND: Line = [("╌ wait ", "wait"), (" ═ transfer ", "comm")]


def _blocked(rank: RankView) -> float | None:
    wait, transfer = phase_ms(rank, "wait"), phase_ms(rank, "transfer")
    return None if wait is None or transfer is None else wait + transfer


def blocked_bar(rank: RankView, longest_ms: float, width: int) -> Line:
    """Wait, then transfer; `longest_ms` fills `width`."""
    wait, both = phase_ms(rank, "wait"), _blocked(rank)
    if wait is None or both is None or not longest_ms > 0 or not 0 <= wait <= both <= longest_ms:
        return []
    whole = round(both / longest_ms * width)
    waited = min(whole, round(wait / longest_ms * width))
    return [("╌" * waited, "wait"), ("═" * (whole - waited), "comm")]


class Waits(RankTable):
    """The bars, with the cursor of the rank table."""

    orders: ClassVar[tuple[Sort, ...]] = (
        Sort("shortest wait first", lambda rank: phase_ms(rank, "wait")),
        Sort("longest wait first", lambda rank: down(phase_ms(rank, "wait"))),
        Sort("longest transfer first", lambda rank: down(phase_ms(rank, "transfer"))),
        BY_RANK,
    )

    tells_steps = False
    """True if the title says which steps these are: others than those that something beside it is of."""

    def heading(self, snapshot: Snapshot | None, width: int) -> Line:
        if snapshot is not None and arriving(snapshot):
            return self.title("the ranks' stages ", snapshot, width)
        order = self.orders[self.order].name
        steps = "a step"
        if self.tells_steps and snapshot is not None and snapshot.window is not None:
            first, last = snapshot.window
            steps = f"steps {numbers.count(first)}–{numbers.count(last)}"
        return self.title(f"wait and transfer in {steps}, {order}", snapshot, width, _LEGEND)

    def rows(self, snapshot: Snapshot, ranks: list[RankView], width: int) -> list[Line]:
        if arriving(snapshot):
            return super().rows(snapshot, ranks, width)
        columns = [column for column in MEASURED if column.head in _SHOWN]
        columns = choose(tuple(columns), snapshot.ranks, width - 2 - _BAR_LEAST)
        digits = decimals(snapshot.ranks)
        named = rank_marks.accused(snapshot)
        blocked = [both for rank in snapshot.ranks if (both := finite(_blocked(rank))) is not None]
        longest = max(blocked, default=0.0)
        header: Line = [(" ", "text"), ("".join(column.cell(column.head) for column in columns), "muted")]
        room = width - size(header) - 2
        if room >= _BAR_LEAST:
            header.append((f"  0{f'{longest:,.{digits}f} ms':>{room - 2}}", "muted"))
        lines: list[Line] = [header]
        for rank in ranks:
            glyph, alarm = rank_marks.marker(rank, named)
            line: Line = [(glyph, alarm)]
            line += [(_cell(column, rank, digits), _role(column, alarm, glyph)) for column in columns]
            if room >= _BAR_LEAST:
                bar = blocked_bar(rank, longest, room - 1)
                line += [("  ", "text"), *bar]
            lines.append(under_cursor(line, width) if rank.rank == self.chosen else line)
        return lines


def _cell(column: RankColumn, rank: RankView, digits: int) -> str:
    return column.cell(column.text(rank, digits))


def _role(column: RankColumn, alarm: str, glyph: str) -> str:
    return alarm if column.accused and glyph != " " else column.role
