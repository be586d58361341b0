"""Logs: what did they print?"""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import BindingType

from ddpmon.tui import keys
from ddpmon.tui.screens.view import OnePane
from ddpmon.tui.widgets.loglist import LogList


class Logs(OnePane):
    """The output of all ranks."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("logs")]

    def __init__(self) -> None:
        self.output = LogList(id="output")
        super().__init__(self.output)

    @property
    def cursor(self) -> LogList:
        return self.output

    def action_step(self, by: int) -> None:
        self.output.step(by)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.output.move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.output.move(-3)
