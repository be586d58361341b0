"""Timeline: what happened in the last steps?"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from ddpmon.messages import Wish
from ddpmon.tui import keys
from ddpmon.tui.screens.view import OnePane
from ddpmon.tui.widgets.laststeps import WIDTHS, LastSteps


class Timeline(OnePane):
    """The last steps, rank by rank."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("timeline")]

    def __init__(self) -> None:
        self.steps = LastSteps(id="timeline")
        super().__init__(self.steps)

    @property
    def cursor(self) -> LastSteps:
        return self.steps

    @property
    def wish(self) -> Wish:
        return Wish(timeline=self.steps.wish)

    def action_move(self, by: int) -> None:
        super().action_move(by)
        self.ask()

    def action_page(self, direction: int) -> None:
        super().action_page(direction)
        self.ask()

    def action_first(self) -> None:
        super().action_first()
        self.ask()

    def action_last(self) -> None:
        super().action_last()
        self.ask()

    def action_window(self) -> None:
        widths = WIDTHS
        self.steps.width_of_a_step = widths[(widths.index(self.steps.width_of_a_step) + 1) % len(widths)]
        self.ask()
