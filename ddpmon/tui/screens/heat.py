"""Heat: since when, and how regularly? Every rank through time."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from ddpmon.messages import HEAT_STEPS, Wish
from ddpmon.tui import keys
from ddpmon.tui.screens.view import OnePane
from ddpmon.tui.widgets.heatmap import HeatMap


class Heat(OnePane):
    """The heat map."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("heat")]

    def __init__(self) -> None:
        self.map = HeatMap(id="heat")
        super().__init__(self.map)

    @property
    def cursor(self) -> HeatMap:
        return self.map

    @property
    def wish(self) -> Wish:
        return Wish(heat=self.map.wish)

    def action_metric(self, by: int) -> None:
        metrics = self.map.metrics
        place = metrics.index(self.map.metric) if self.map.metric in metrics else 0
        self.map.metric = metrics[(place + by) % len(metrics)]
        self.ask()

    def action_fold(self) -> None:
        self.map.by_host = not self.map.by_host
        self.ask()

    def action_window(self) -> None:
        self.map.steps = HEAT_STEPS[(HEAT_STEPS.index(self.map.steps) + 1) % len(HEAT_STEPS)]
        self.ask()
