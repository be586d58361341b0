"""The World screen, which opens first and gives an overview of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual.binding import BindingType

from ddpmon.tui import keys
from ddpmon.tui.blocks import AIR, WIDE, Box
from ddpmon.tui.chart_choice import ChartChoice
from ddpmon.tui.frame import arriving
from ddpmon.tui.screens.view import HEAD_AND_KEYS, View
from ddpmon.tui.views import ViewName
from ddpmon.tui.widgets.failure import FailurePane, failure_lines
from ddpmon.tui.widgets.findinglist import EventList, FindingList, findings_height
from ddpmon.tui.widgets.meanstep import MeanStep
from ddpmon.tui.widgets.pane import Pane
from ddpmon.tui.widgets.rankdetail import RankDetail
from ddpmon.tui.widgets.ranktable import RankTable
from ddpmon.tui.widgets.worldcharts import ChosenChart, OwnChart
from ddpmon.tui.widgets.worldmap import WorldMap, world


@dataclass(frozen=True)
class Arrangement:
    """Heights of the parts between head and keys in lines; a part with height 0 is hidden."""

    upper: int
    """Lines of the charts and events, or of the failure of the run."""
    world: int
    table: int
    findings: int
    phases: int
    """Lines of the mean step by phase."""
    detail: bool
    """True if details of the rank under the cursor are shown to the right of the mean step."""
    charts: bool
    events: bool


_PHASES = 11
"""Number of lines that the mean step by phase needs."""
_DETAIL = 18
"""Number of lines of the mean step from which a rank's phases over time fit next to it."""
_FINDINGS_LEAST = 5
"""Number of lines that a finding with its advice needs."""
_CHARTS, _CHARTS_MOST = 18, 24
"""Height in lines up to which charts get lines before findings do, and maximum useful height of charts."""


def divide_lines(
    width: int, height: int, ranks: int, map_lines: int, *, arriving: bool = False, findings: int = 0
) -> Arrangement:  # fmt: skip
    """Divide the lines between head and keys among the parts of the screen.

    The table needs a line per rank and two more lines. The charts, the findings (which need `findings` lines) and the
    mean step share the rest. Findings are shown only if there is room for one finding with its advice. While ranks are
    `arriving`, events replace the charts.
    """
    map_height, terminal = map_lines + 1, height + HEAD_AND_KEYS
    upper_lines = min(10, max(4, terminal // 5)) if arriving else min(20, max(6, terminal * 3 // 8))
    upper = upper_lines if height - map_height >= 12 else 0
    table = height - map_height - upper
    listed = phases = 0
    if upper and not arriving:
        spare = max(0, table - (ranks + 2))
        table -= spare
        higher = min(spare, max(0, _CHARTS - upper))
        listed = min(spare - higher, findings)
        listed = listed if listed >= min(findings, _FINDINGS_LEAST) else 0
        spare -= listed
        phases = _PHASES if spare - higher >= _PHASES else 0
        spare -= phases
        higher = min(spare, max(0, _CHARTS_MOST - upper))
        upper += higher
        below = spare - higher  # the rest stays empty, at the end of the last part
        if phases:
            phases += below
        elif listed:
            listed += below
        else:
            table += below
    return Arrangement(
        upper, map_height, table, listed, phases,
        detail=width >= WIDE and phases >= _DETAIL, charts=not arriving, events=arriving or width >= WIDE,
    )  # fmt: skip


def most_map_lines(height: int) -> int:
    """Return the maximum number of lines for the world map."""
    return max(1, min(8, height // 8))


class World(View):
    """The World screen: head, charts, world map and rank table."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(ViewName.WORLD)]

    def __init__(self, ask: Callable[[], None], choice: ChartChoice) -> None:
        """Make the screen. `ask` is as in `View`; `choice` is the user's choice of a quantity to chart."""
        self.chosen, self.own = ChosenChart(choice, id="chosen"), OwnChart(id="own")
        self.failure, self.happened = FailurePane(id="failure"), EventList(id="events")
        self.map, self.table = WorldMap(id="map"), RankTable(id="table")
        self.findings = FindingList(whole=False, id="findings")
        self.phases, self.detail = MeanStep(id="phases"), RankDetail(id="detail")
        charts = self.chosen, self.own, self.failure, self.happened
        super().__init__(ask, self.table, *charts, self.map, self.findings, self.phases, self.detail)

    def place_panes(self, width: int, height: int) -> dict[Pane, Box]:
        snapshot = self.shown.snapshot
        map_lines, ranks, early, findings = 1, 1, True, 0
        if snapshot is not None:
            map_lines = len(world(snapshot, width, most_map_lines(height))[0])
            early = arriving(snapshot)
            ranks = len(snapshot.ranks)
            findings = findings_height(snapshot, width)
        parts = divide_lines(width, height, ranks, map_lines, arriving=early, findings=findings)
        boxes = self._upper_boxes(parts, width)
        y = parts.upper
        for pane, lines in ((self.map, parts.world), (self.table, parts.table), (self.findings, parts.findings)):
            boxes[pane] = Box(0, y, width, lines)
            y += lines
        phases = (width - AIR) // 3 if parts.detail else width
        boxes[self.phases] = Box(0, y, phases, parts.phases)
        if parts.detail:
            boxes[self.detail] = Box(phases + AIR, y, width - phases - AIR, parts.phases)
        return boxes

    def _upper_boxes(self, parts: Arrangement, width: int) -> dict[Pane, Box]:
        """Return the places of the charts, of the failure above the charts, and of the events to the right of both."""
        narrow = width * 2 // 3 if parts.events else width
        failed = failure_lines(self.shown.snapshot, narrow, parts.upper)
        charts = parts.upper - failed if parts.charts else 0
        happened = parts.events and (width >= WIDE or not failed)
        left = (2 * (width - AIR) // 3 if happened else width) if failed or charts else 0
        half = (left - AIR) // 2
        boxes: dict[Pane, Box] = {
            self.failure: Box(0, 0, left, failed),
            self.chosen: Box(0, failed, half, charts),
            self.own: Box(half + AIR, failed, left - half - AIR, charts),
        }
        if happened:
            x = left + AIR if left else 0
            boxes[self.happened] = Box(x, 0, width - x, parts.upper)
        return boxes
