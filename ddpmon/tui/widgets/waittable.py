"""A table with each rank's wait and transfer as a bar. The other ranks wait for the rank that waits least."""

from __future__ import annotations

from typing import ClassVar

from ddpmon import numbers
from ddpmon.messages import RankView, Snapshot
from ddpmon.tui.frame import arriving, finite_or_none
from ddpmon.tui.lines import Line
from ddpmon.tui.widgets.columns import Sort, decimals, fit_columns
from ddpmon.tui.widgets.ranktable import BY_RANK, Layout, RankTable, Tail

_SHOWN = {"rank": 0, "host": 4, "wait": 2, "transfer": 3, "late": 16, "critical": 15}
"""The columns of the table. In a narrow table, the column with the highest number is dropped first."""
_BAR_LEAST = 12
_LEGEND: Line = [("╌ wait ", "wait"), (" ═ transfer ", "comm")]


def _blocked(rank: RankView) -> tuple[float, float] | None:
    """Return a rank's wait, and its wait plus transfer, in ms; None if either is missing."""
    wait, transfer = finite_or_none(rank.phase_ms("wait")), finite_or_none(rank.phase_ms("transfer"))
    return None if wait is None or transfer is None else (wait, wait + transfer)


def blocked_bar(rank: RankView, longest_ms: float, width: int) -> Line:
    """Draw a bar of wait and transfer, on a scale where `longest_ms` fills `width` columns."""
    wait, both = _blocked(rank) or (-1.0, -1.0)
    if not longest_ms > 0 or not 0 <= wait <= both <= longest_ms:
        return []
    whole = round(both / longest_ms * width)
    waited = min(whole, round(wait / longest_ms * width))
    return [("╌" * waited, "wait"), ("═" * (whole - waited), "comm")]


class WaitTable(RankTable):
    """The table of waits, with the cursor of the rank table."""

    orders: ClassVar[tuple[Sort, ...]] = (
        Sort("shortest wait first", "wait"),
        Sort("longest wait first", "wait", backwards=True),
        Sort("longest transfer first", "transfer"),
        BY_RANK,
    )

    tells_steps = False
    """True if the title names the steps over which the means are computed, because another pane covers other steps."""

    def heading(self, snapshot: Snapshot | None, width: int) -> Line:
        if snapshot is not None and arriving(snapshot):
            return self.title("the ranks' stages ", snapshot, width)
        steps = "a step"
        if self.tells_steps and snapshot is not None and snapshot.window is not None:
            first, last = snapshot.window
            steps = f"steps {numbers.count(first)}–{numbers.count(last)}"
        return self.title(f"wait and transfer in {steps}, {self.sort.name}", snapshot, width, _LEGEND)

    def table_layout(self, snapshot: Snapshot, width: int) -> Layout:
        if arriving(snapshot):
            return super().table_layout(snapshot, width)
        columns = fit_columns(_SHOWN, snapshot.ranks, width - 2 - _BAR_LEAST)
        room = width - 3 - sum(column.width for column in columns)
        if room < _BAR_LEAST:
            return columns, None
        both = [blocked[1] for rank in snapshot.ranks if (blocked := _blocked(rank)) is not None]
        longest = max(filter(finite_or_none, both), default=0.0)
        head: Line = [(f"  0{f'{longest:,.{decimals(snapshot.ranks)}f} ms':>{room - 2}}", "muted")]
        return columns, Tail(head, lambda rank, _: [("  ", "text"), *blocked_bar(rank, longest, room - 1)])
