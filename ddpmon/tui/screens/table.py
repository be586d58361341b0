"""All screens: one row for each that is a pane and its blocks, and the two that share out more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Concatenate, Generic, TypeVar

from ddpmon.messages import Wish
from ddpmon.source.place import Place
from ddpmon.tui import keys
from ddpmon.tui.charted import Choice, Offered
from ddpmon.tui.screens.comm import Comm
from ddpmon.tui.screens.view import Blocks, View
from ddpmon.tui.screens.world import World
from ddpmon.tui.views import ViewName
from ddpmon.tui.widgets.bigchart import BigChart
from ddpmon.tui.widgets.blockpane import BlockPane
from ddpmon.tui.widgets.corelanes import CoreLanes
from ddpmon.tui.widgets.devicelanes import DeviceLanes, RankLanes
from ddpmon.tui.widgets.devicelist import DeviceList
from ddpmon.tui.widgets.findinglist import FindingList
from ddpmon.tui.widgets.fulltable import FullTable
from ddpmon.tui.widgets.heatmap import HeatMap
from ddpmon.tui.widgets.heatphases import HeatPhases
from ddpmon.tui.widgets.inspection import Inspection
from ddpmon.tui.widgets.laststeps import LastSteps
from ddpmon.tui.widgets.loglist import LogList
from ddpmon.tui.widgets.longeststeps import LongestSteps
from ddpmon.tui.widgets.meanstep import MeanStep
from ddpmon.tui.widgets.pane import Pane
from ddpmon.tui.widgets.rankdetail import RankDetail
from ddpmon.tui.widgets.runlist import RunList

PaneType = TypeVar("PaneType", bound=Pane)


@dataclass(frozen=True)
class Shared:
    """Objects that several panes share."""

    place: Place
    """The machine whose runs are listed."""
    choice: Choice
    """Choice of the chart, on World and alone."""


def _nothing(_: Pane) -> Wish:
    return Wish()


@dataclass(frozen=True)
class Row(Generic[PaneType]):
    """A screen with one pane, and blocks around it."""

    name: ViewName
    pane: Callable[[Shared], PaneType]
    deeds: Mapping[str, Callable[Concatenate[PaneType, ...], None]] = field(default_factory=dict)
    """Actions of its keys beside moving, by the name in their `screen.do(…)`."""
    wish: Callable[[PaneType], Wish] = _nothing
    """Request for the parts of a snapshot that only this screen needs."""
    offers: Callable[[PaneType], Offered] | None = None
    """Entries of the list that its key opens."""
    blocks: tuple[Callable[[], BlockPane], ...] = ()
    """Blocks below or beside the pane where there is room, the most useful first."""


ROWS: tuple[Row[Any], ...] = (
    Row[FullTable](
        ViewName.RANKS, lambda _: FullTable(),
        {"sort": FullTable.cycle_sort, "reverse": FullTable.reverse, "pan": FullTable.pan},
        lambda pane: pane.wish, blocks=(RankDetail, partial(DeviceLanes, whole_width=True)),
    ),
    Row[HeatMap](
        ViewName.HEAT, lambda _: HeatMap(),
        {
            "next_metric": HeatMap.next_metric, "window": HeatMap.next_window, "scale": HeatMap.next_scale,
            "fold": HeatMap.fold,
        },
        lambda pane: pane.wish, lambda pane: pane.offered, (HeatPhases,),
    ),
    Row[LastSteps](
        ViewName.TIMELINE, lambda _: LastSteps(), {"window": LastSteps.next_width, "longest": LastSteps.next_longest},
        lambda pane: pane.wish, blocks=(MeanStep, LongestSteps),
    ),
    Row[DeviceList](
        ViewName.DEVICES, lambda _: DeviceList(), {"sort": DeviceList.cycle_sort, "fold": DeviceList.fold},
        blocks=(DeviceLanes, CoreLanes),
    ),
    Row[LogList](ViewName.LOGS, lambda _: LogList(), {"step": LogList.step}, lambda pane: pane.wish),
    Row[RunList](ViewName.RUNS, lambda shared: RunList(shared.place.read, shared.place.verdict)),
    Row[FindingList](ViewName.FINDINGS, lambda _: FindingList()),
    Row[Inspection](
        ViewName.INSPECT, lambda _: Inspection(), {"window": Inspection.widen, "step": Inspection.step},
        lambda pane: pane.wish, blocks=(RankLanes,),
    ),
    Row[BigChart](
        ViewName.CHART, lambda shared: BigChart(shared.choice),
        {
            "zoom": BigChart.zoom, "window": BigChart.next_window, "next_metric": BigChart.next_metric,
            "log_scale": BigChart.log_scale, "smooth": BigChart.smooth,
        },
        lambda pane: Wish(series=pane.wish), lambda pane: pane.offered,
    ),
)  # fmt: skip


# Textual reads the keys of a screen from its class.
_KINDS: dict[ViewName, type[Blocks]] = {
    row.name: type(row.name.capitalize(), (Blocks,), {"BINDINGS": keys.bindings(row.name)}) for row in ROWS
}


def _one_pane(row: Row[Any], shared: Shared, ask: Callable[[], None]) -> View:
    pane = row.pane(shared)
    deeds = {name: partial(deed, pane) for name, deed in row.deeds.items()}
    offers = None if row.offers is None else partial(row.offers, pane)
    return _KINDS[row.name](ask, pane, partial(row.wish, pane), deeds, [block() for block in row.blocks], offers)


def views(place: Place, ask: Callable[[], None]) -> dict[ViewName, View]:
    """Every screen. place: the machine whose runs are listed. ask: as of `View`.

    Raises:
        LookupError: a name has no screen, or a key of one would be dead.

    """
    shared = Shared(place, Choice())
    made: dict[ViewName, View] = {ViewName.WORLD: World(ask, shared.choice), ViewName.COMM: Comm(ask)}
    made |= {row.name: _one_pane(row, shared, ask) for row in ROWS}
    for name in ViewName:
        if name not in made:
            raise LookupError(f"no screen is made for {name!r}")
        if dead := keys.needed(name) - set(made[name].deeds):
            raise LookupError(f"{name}: its keys ask for {', '.join(sorted(dead))}, which the screen does not do")
    return made


def pane_of(made: Mapping[ViewName, View], kind: type[PaneType]) -> PaneType:
    """The one pane of a type."""
    return next(pane for view in made.values() for pane in view.panes if isinstance(pane, kind))
