"""Shows details of the rank under the cursor: its phases compared with its peers' phases, its device, and its last
output.
"""

from __future__ import annotations

from ddpmon.messages import RankView, ViewRequest
from ddpmon.runs.logs import Log
from ddpmon.tui.blocks import ALL, TALL, Block
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, cut_text, pane_title
from ddpmon.tui.widgets.inspection import history_request, inspection, rank_title, steps_per_column
from ddpmon.tui.widgets.pane import BlockPane
from ddpmon.tui.widgets.worldmap import rank_in

_LEAST_WIDTH, _LEAST_HEIGHT = 60, 9
"""Least size in columns and lines. Own time and its phases fit into this size."""
ALL_MEASUREMENTS_LINES = 30
"""Number of lines that fit all measurements. On a tall screen, the block gets no more lines, so that other blocks get
them."""


class RankDetail(BlockPane):
    """Details of one rank, as many as fit; the screen Inspect shows all of them."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.printed: Log | None = None
        """Output of the ranks."""

    def _rank(self, frame: Frame) -> RankView | None:
        return rank_in(frame.snapshot, self.chosen_rank())

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        if frame.snapshot is None or not frame.snapshot.ranks:
            return None
        return Block(_LEAST_WIDTH, _LEAST_HEIGHT, height=ALL_MEASUREMENTS_LINES if height >= TALL else ALL)

    @property
    def view_request(self) -> ViewRequest:
        rank = self._rank(self.frame)
        if rank is None or not rank.steps:
            return ViewRequest()
        return ViewRequest(inspect=history_request(rank.rank, steps_per_column(self.frame.snapshot), self.room[0]))

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        rank, snapshot = self._rank(frame), frame.snapshot
        if rank is None or snapshot is None:
            return [pane_title("no rank under the cursor ", width)]
        lines = inspection(
            snapshot, rank, width, height - 1,
            answers=frame.cursor is None and not frame.ended, missing=frame.why_absent if rank.steps else "",
            printed=self.printed,
        )  # fmt: skip
        legend: Line = [(" ⏎ ", "key"), ("show all ", "muted")]
        return [pane_title(f"{cut_text(rank_title(rank), width // 2)} ", width, legend), *lines[: height - 1]]
