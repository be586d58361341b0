"""A text over the whole screen that is scrolled and left again."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from textual.binding import Binding, BindingType

from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line
from ddpmon.tui.palette import Palette
from ddpmon.tui.screens.ask import Overlay
from ddpmon.tui.widgets.scrolling import ScrollingPane


class Text(ScrollingPane):
    """A text, and the keys under it."""

    @abstractmethod
    def lines(self, frame: Frame, width: int) -> list[Line]:
        """All of the text."""

    def heading(self, width: int) -> list[Line]:
        """Return what stays above the text."""
        return []

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        heading, lines = self.heading(width), self.lines(frame, width)
        room = max(0, height - len(heading) - 1)
        shown = self.in_sight_lines(lines, room)
        keys: Line = [(" ↑ ↓", "key"), (" scroll  ", "muted")] if len(lines) > room else []
        return [*heading, *shown, *([[]] * (room - len(shown))), [*keys, (" esc", "key"), (" back", "muted")]]


class Scrolled(Overlay[None]):
    """A text over the whole screen."""

    DEFAULT_CSS = "Scrolled { overflow: hidden hidden; } Scrolled Text { width: 1fr; height: 1fr; background: $panel; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", show=False),
        Binding("down,j", "scroll(1)", show=False),
        Binding("up,k", "scroll(-1)", show=False),
        Binding("pagedown,space", "scroll(10)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("g,home", "scroll(-10_000)", show=False),
        Binding("G,end", "scroll(10_000)", show=False),
    ]

    def __init__(self, text: Text, palette: Palette, frame: Frame) -> None:
        super().__init__(text, palette, frame)
        self.text = text

    def action_scroll(self, by: int) -> None:
        self.text.move(by)
