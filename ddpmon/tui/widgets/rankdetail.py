"""What a person asks next of the rank under the cursor: its phases beside its peers', its device, its last lines."""

from __future__ import annotations

from ddpmon.messages import HEAT_MOST, InspectWish, RankView, Wish
from ddpmon.runs.logs import Log
from ddpmon.tui.blocks import Block
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, cut, plain, title
from ddpmon.tui.widgets.blockpane import BlockPane
from ddpmon.tui.widgets.course import LABEL
from ddpmon.tui.widgets.inspection import SIDE_BY_SIDE, inspection, usual_steps
from ddpmon.tui.widgets.worldmap import everyone, short_host

_LEAST_WIDTH, _LEAST_HEIGHT = 60, 9
"""With which own time and its phases stand there."""


class RankDetail(BlockPane):
    """One rank, as far as there is room; all of it is on the screen that inspects it."""

    def __init__(self) -> None:
        super().__init__()
        self.printed: Log | None = None
        """What the ranks print."""

    def _rank(self, frame: Frame) -> RankView | None:
        chosen = self.chosen_rank()
        ranks = [] if frame.snapshot is None else everyone(frame.snapshot)
        return next((rank for rank in ranks if rank.rank == chosen), None)

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        return None if frame.snapshot is None or not frame.snapshot.ranks else Block(_LEAST_WIDTH, _LEAST_HEIGHT)

    @property
    def wish(self) -> Wish:
        rank = self._rank(self.frame)
        if rank is None or not rank.steps:
            return Wish()
        width = self.room[0]
        room = (width // 2 - 1 if width >= SIDE_BY_SIDE else width) - LABEL
        return Wish(inspect=InspectWish(rank.rank, usual_steps(self.frame.snapshot), max(1, min(HEAT_MOST, room))))

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        rank, snapshot = self._rank(frame), frame.snapshot
        if rank is None or snapshot is None:
            return [title("no rank under the cursor ", width)]
        parts = [f"rank {rank.rank}", short_host(rank.host), plain(rank.device) if rank.health != "missing" else ""]
        named = " · ".join(part for part in parts if part)
        missing = "" if not rank.steps else "coming…" if frame.behind_s is None else "not kept; space goes on"
        lines = inspection(
            snapshot, rank, width, height - 1,
            answers=frame.cursor is None and not frame.ended, missing=missing, printed=self.printed,
        )  # fmt: skip
        legend: Line = [(" ⏎ ", "key"), ("all of it ", "muted")]
        return [title(f"{cut(named, width // 2)} ", width, legend), *lines[: height - 1]]
