"""World, the first screen: how is it?"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical

from ddpmon.tui import keys
from ddpmon.tui.chart_choice import ChartChoice
from ddpmon.tui.screens.plan import Arrangement, most_map_lines, plan
from ddpmon.tui.screens.view import View
from ddpmon.tui.sizes import WIDE
from ddpmon.tui.views import ViewName
from ddpmon.tui.widgets.chart import ChosenChart, OwnChart
from ddpmon.tui.widgets.events import EventList
from ddpmon.tui.widgets.failure import FailurePane, failure_lines
from ddpmon.tui.widgets.findinglist import FindingList, findings_height
from ddpmon.tui.widgets.meanstep import MeanStep
from ddpmon.tui.widgets.pane import Pane
from ddpmon.tui.widgets.rankdetail import RankDetail
from ddpmon.tui.widgets.ranktable import RankTable
from ddpmon.tui.widgets.worldmap import WorldMap, arriving, world


class World(View):
    """Head, charts, world map, rank table."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(ViewName.WORLD)]
    DEFAULT_CSS = """
    World #upper, World #left, World #charts, World #lower { width: 1fr; height: 1fr; overflow: hidden hidden; }
    World #left { width: 2fr; }
    World #own, World #detail { margin-left: 1; }
    World #detail { width: 2fr; }
    """

    def __init__(self, ask: Callable[[], None], choice: ChartChoice) -> None:
        """ask: as of every screen. choice: what is charted."""
        super().__init__(ask)
        self.chosen = ChosenChart(choice, id="chosen")
        self.own = OwnChart(id="own")
        self.failure = FailurePane(id="failure")
        self.happened = EventList(id="events")
        self.map = WorldMap(id="map")
        self.table = RankTable(id="table")
        self.findings = FindingList(whole=False, id="findings")
        self.phases = MeanStep(id="phases")
        self.detail = RankDetail(id="detail")
        self.phases.chosen_rank = self.detail.chosen_rank = self.table.chosen_rank
        self.lower = Horizontal(self.phases, self.detail, id="lower")
        self.charts = Horizontal(self.chosen, self.own, id="charts")
        self.left = Vertical(self.failure, self.charts, id="left")
        self.upper = Horizontal(self.left, self.happened, id="upper")
        self._plan: tuple[Arrangement, int] | None = None

    def compose(self) -> ComposeResult:
        yield Vertical(self.head, self.upper, self.map, self.table, self.findings, self.lower, self.keys)

    @property
    def cursor(self) -> RankTable:
        return self.table

    @property
    def panes(self) -> tuple[Pane, ...]:
        """Everything that shows a frame."""
        charts = self.chosen, self.own, self.failure, self.happened
        return self.head, *charts, self.map, self.table, self.findings, self.phases, self.detail, self.keys

    def share_out(self) -> None:
        width, height = self.app.size
        snapshot = self.shown.snapshot
        map_lines, ranks, early, findings = 1, 1, True, 0
        if snapshot is not None:
            map_lines = len(world(snapshot, width, most_map_lines(height))[0])
            early = arriving(snapshot)
            ranks = max(snapshot.run.world_size, len(snapshot.ranks))
            findings = findings_height(snapshot, width)
        arranged = plan(width, height, ranks, map_lines, arriving=early, findings=findings)
        left = width * 2 // 3 if arranged.events else width
        failed = failure_lines(snapshot, left, arranged.upper)
        if self._plan == (arranged, failed):
            return
        self._plan = arranged, failed
        charts = arranged.upper - failed if arranged.charts else 0
        happened = arranged.events and (width >= WIDE or not failed)
        for part, lines in (
            (self.head, arranged.head), (self.upper, arranged.upper), (self.map, arranged.world),
            (self.table, arranged.table), (self.findings, arranged.findings), (self.lower, arranged.phases),
            (self.keys, arranged.keys), (self.failure, failed), (self.charts, charts),
        ):  # fmt: skip
            part.display = lines > 0
            part.styles.height = lines
        self.detail.display = arranged.detail
        self.left.display = bool(failed or charts)
        self.happened.display = happened
        self.happened.styles.margin = (0, 0, 0, int(self.left.display))
