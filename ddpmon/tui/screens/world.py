"""The World screen, which opens first and gives an overview of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical

from ddpmon.tui import keys
from ddpmon.tui.blocks import LEAST_HEIGHT, LEAST_WIDTH, WIDE
from ddpmon.tui.chart_choice import ChartChoice
from ddpmon.tui.frame import arriving
from ddpmon.tui.screens.view import View, head_and_key_lines, set_heights
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
    """Heights of the parts of the screen in lines; a part with height 0 is hidden."""

    head: int
    upper: int = 0
    """Charts and events, or the failure of the run."""
    world: int = 0
    table: int = 0
    findings: int = 0
    phases: int = 0
    """The mean step by phase."""
    detail: bool = False
    """True if details of the rank under the cursor stand beside the mean step."""
    keys: int = 0
    charts: bool = True
    events: bool = False


_PHASES = 11
"""Number of lines that the mean step by phase needs."""
_DETAIL = 18
"""Number of lines from which a rank's phases over time fit beside the mean step."""
_FINDINGS_LEAST = 5
"""Number of lines that a finding with its advice needs."""
_CHARTS, _CHARTS_MOST = 18, 24
"""Height in lines that charts get before findings, and their maximum height, above which they show no more."""


def divide_lines(
    width: int, height: int, ranks: int, map_lines: int, *, arriving: bool = False, findings: int = 0
) -> Arrangement:  # fmt: skip
    """Divide the lines of the screen among its parts.

    The table needs a line per rank and two more; charts, `findings` lines and the mean step share the rest. Findings
    are shown only if one of them fits with its advice. While ranks are `arriving`, events replace the charts.
    """
    head, keybar = head_and_key_lines(width, height)
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return Arrangement(head, keys=keybar)
    body = height - 4
    map_height = map_lines + 1
    upper_lines = min(10, max(4, height // 5)) if arriving else min(20, max(6, height * 3 // 8))
    upper = upper_lines if body - map_height >= 12 else 0
    table = body - map_height - upper
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
        head, upper=upper, world=map_height, table=table, findings=listed, phases=phases, keys=keybar,
        detail=width >= WIDE and phases >= _DETAIL, charts=not arriving, events=arriving or width >= WIDE,
    )  # fmt: skip


def most_map_lines(height: int) -> int:
    """Return the maximum number of lines for the world map."""
    return max(1, min(8, (height - 4) // 8))


class World(View):
    """The World screen: head, charts, world map and rank table."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(ViewName.WORLD)]
    DEFAULT_CSS = """
    World #upper, World #left, World #charts, World #lower { width: 1fr; height: 1fr; overflow: hidden hidden; }
    World #left { width: 2fr; }
    World #own, World #detail { margin-left: 1; }
    World #detail { width: 2fr; }
    """

    def __init__(self, ask: Callable[[], None], choice: ChartChoice) -> None:
        """Make the screen; `ask` is as in `View`, and `choice` holds the quantity and form of the chart."""
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
        """Return all panes, each of which shows the current frame."""
        charts = self.chosen, self.own, self.failure, self.happened
        return self.head, *charts, self.map, self.table, self.findings, self.phases, self.detail, self.keys

    def share_out(self) -> None:
        width, height = self.app.size
        snapshot = self.shown.snapshot
        map_lines, ranks, early, findings = 1, 1, True, 0
        if snapshot is not None:
            map_lines = len(world(snapshot, width, most_map_lines(height))[0])
            early = arriving(snapshot)
            ranks = len(snapshot.ranks)
            findings = findings_height(snapshot, width)
        arranged = divide_lines(width, height, ranks, map_lines, arriving=early, findings=findings)
        left = width * 2 // 3 if arranged.events else width
        failed = failure_lines(snapshot, left, arranged.upper)
        if self._plan == (arranged, failed):
            return
        self._plan = arranged, failed
        charts = arranged.upper - failed if arranged.charts else 0
        happened = arranged.events and (width >= WIDE or not failed)
        set_heights(
            (self.head, arranged.head), (self.upper, arranged.upper), (self.map, arranged.world),
            (self.table, arranged.table), (self.findings, arranged.findings), (self.lower, arranged.phases),
            (self.keys, arranged.keys), (self.failure, failed), (self.charts, charts),
        )  # fmt: skip
        self.detail.display = arranged.detail
        self.left.display = bool(failed or charts)
        self.happened.display = happened
        self.happened.styles.margin = (0, 0, 0, int(self.left.display))
