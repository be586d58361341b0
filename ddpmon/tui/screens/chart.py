"""Chart: one quantity of all ranks over time, as large as the screen."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from ddpmon.messages import Wish
from ddpmon.tui import keys
from ddpmon.tui.charted import Choice
from ddpmon.tui.screens.view import OnePane
from ddpmon.tui.widgets.bigchart import BigChart


class Chart(OnePane):
    """The chart of World's left half, with a cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("chart")]

    def __init__(self, choice: Choice) -> None:
        self.chart = BigChart(choice, id="chart")
        super().__init__(self.chart)
        self._wished = Wish()
        """What was asked for last."""

    @property
    def cursor(self) -> BigChart:
        return self.chart

    @property
    def wish(self) -> Wish:
        return Wish(series=self.chart.wish)

    def _moved(self) -> None:
        """Ask for what came into sight, if anything did."""
        if self.wish != self._wished:
            self._wished = self.wish
            self.ask()

    def action_move(self, by: int) -> None:
        super().action_move(by)
        self._moved()

    def action_page(self, direction: int) -> None:
        super().action_page(direction)
        self._moved()

    def action_first(self) -> None:
        super().action_first()
        self._moved()

    def action_last(self) -> None:
        super().action_last()
        self._moved()

    def action_zoom(self, direction: int) -> None:
        self.chart.zoom(direction)
        self._moved()

    def action_window(self) -> None:
        self.chart.next_window()
        self._moved()

    def action_metric(self, by: int) -> None:
        self.chart.choice.next_name(self.shown.snapshot, by)
        self.chart.redraw()
        self._moved()

    def action_log_scale(self) -> None:
        self.chart.choice.log = not self.chart.choice.log
        self.chart.redraw()

    def action_smooth(self) -> None:
        self.chart.choice.next_smoothing()
        self.chart.redraw()
