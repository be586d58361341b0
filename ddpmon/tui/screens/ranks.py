"""Ranks: who is slow? Every rank with everything that is known of it."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from ddpmon.tui import keys
from ddpmon.tui.screens.view import OnePane
from ddpmon.tui.widgets.fulltable import FullTable


class Ranks(OnePane):
    """The full rank table."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("ranks")]

    def __init__(self) -> None:
        self.table = FullTable(id="table")
        super().__init__(self.table)

    @property
    def cursor(self) -> FullTable:
        return self.table

    def action_sort(self) -> None:
        self.table.cycle_sort()

    def action_reverse(self) -> None:
        self.table.reverse()

    def action_pan(self, by: int) -> None:
        self.table.pan(by)
