"""Inspect: what is it about this rank?"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from ddpmon.messages import Wish
from ddpmon.tui import keys
from ddpmon.tui.screens.view import OnePane
from ddpmon.tui.widgets.inspection import Inspection


class Inspect(OnePane):
    """One rank beside all others."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("inspect")]

    def __init__(self) -> None:
        self.inspection = Inspection(id="inspection")
        super().__init__(self.inspection)

    @property
    def cursor(self) -> Inspection:
        return self.inspection

    @property
    def wish(self) -> Wish:
        return Wish(inspect=self.inspection.wish)

    def action_window(self) -> None:
        self.inspection.widen()
        self.ask()

    def action_step(self, by: int) -> None:
        self.inspection.step(by)
        self.ask()
