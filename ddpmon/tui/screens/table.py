"""The panes of each screen. World and Comm are classes of their own, because their layouts are special."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from ddpmon.source.place import Place
from ddpmon.tui import keys
from ddpmon.tui.chart_choice import ChartChoice
from ddpmon.tui.screens.comm import Comm
from ddpmon.tui.screens.view import Blocks, View
from ddpmon.tui.screens.world import World
from ddpmon.tui.views import ViewName
from ddpmon.tui.widgets.bigchart import BigChart
from ddpmon.tui.widgets.devicelanes import CoreLanes, DeviceLanes, RankLanes
from ddpmon.tui.widgets.devicelist import DeviceList
from ddpmon.tui.widgets.findinglist import FindingList
from ddpmon.tui.widgets.fulltable import FullTable
from ddpmon.tui.widgets.heatmap import HeatMap
from ddpmon.tui.widgets.heatphases import HeatPhases
from ddpmon.tui.widgets.inspection import Inspection
from ddpmon.tui.widgets.laststeps import LastSteps, LongestSteps
from ddpmon.tui.widgets.loglist import LogList
from ddpmon.tui.widgets.meanstep import MeanStep
from ddpmon.tui.widgets.pane import BlockPane, Pane
from ddpmon.tui.widgets.rankdetail import RankDetail
from ddpmon.tui.widgets.runlist import RunList

PaneType = TypeVar("PaneType", bound=Pane)


def panes_by_screen(place: Place, choice: ChartChoice) -> dict[ViewName, tuple[Pane, *tuple[BlockPane, ...]]]:
    """Return the panes of each screen except World and Comm: the main pane with the cursor, and the blocks around it.

    Args:
        place: The machine whose runs are listed.
        choice: The choices that World's chart and the full-screen chart share.

    """
    return {
        ViewName.RANKS: (FullTable(), RankDetail(), DeviceLanes(whole_width=True)),
        ViewName.HEAT: (HeatMap(), HeatPhases()),
        ViewName.TIMELINE: (LastSteps(), MeanStep(), LongestSteps()),
        ViewName.DEVICES: (DeviceList(), DeviceLanes(), CoreLanes()),
        ViewName.LOGS: (LogList(),),
        ViewName.RUNS: (RunList(place.read, place.verdict),),
        ViewName.FINDINGS: (FindingList(),),
        ViewName.INSPECT: (Inspection(), RankLanes()),
        ViewName.CHART: (BigChart(choice),),
    }


# Textual reads a screen's keys from its class, so each screen needs its own class.
_KINDS: dict[ViewName, type[Blocks]] = {
    name: type(name.capitalize(), (Blocks,), {"BINDINGS": keys.bindings(name)}) for name in ViewName
}


def screens_by_name(place: Place, ask: Callable[[], None]) -> dict[ViewName, View]:
    """Return every screen by its name.

    Args:
        place: The machine whose runs are listed.
        ask: Called to fetch the current screen's requested parts as soon as possible, as in `View`.

    Raises:
        LookupError: A name has no screen, or a screen does not implement the action of one of its keys.

    """
    choice = ChartChoice()
    made: dict[ViewName, View] = {ViewName.WORLD: World(ask, choice), ViewName.COMM: Comm(ask)}
    made |= {name: _KINDS[name](ask, *panes) for name, panes in panes_by_screen(place, choice).items()}
    for name in ViewName:
        if name not in made:
            raise LookupError(f"no screen is made for {name!r}")
        if dead := keys.needed_actions(name) - set(made[name].actions):
            raise LookupError(f"{name}: its keys ask for {', '.join(sorted(dead))}, which the screen does not do")
    return made


def pane_of(made: Mapping[ViewName, View], kind: type[PaneType]) -> PaneType:
    """Return the only pane of a type."""
    return next(pane for view in made.values() for pane in view.panes if isinstance(pane, kind))
