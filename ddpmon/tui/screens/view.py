"""What all screens have in common: the head on top, the keys at the bottom, one frame for every pane."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, runtime_checkable

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import Screen

from ddpmon.messages import Wish
from ddpmon.tui.frame import Frame
from ddpmon.tui.palette import Palette
from ddpmon.tui.sizes import LEAST_HEIGHT, LEAST_WIDTH
from ddpmon.tui.widgets.head import Head
from ddpmon.tui.widgets.keybar import KeyBar
from ddpmon.tui.widgets.pane import Pane
from ddpmon.tui.workarounds import Abstract

Deed = Callable[..., None]
"""What a key of a screen does; it takes the numbers that are in the key's action."""


@runtime_checkable
class Cursor(Protocol):
    """What the keys that move work on."""

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        """By so many lines, or to a line (negative: from the end)."""

    def page(self, direction: int) -> None:
        """By a screenful."""


@runtime_checkable
class RankCursor(Cursor, Protocol):
    """A cursor that is on a rank."""

    def chosen_rank(self) -> int | None:
        """The rank under the cursor."""

    def choose(self, rank: int) -> None:
        """Put the cursor on a rank."""


class View(Screen[None], metaclass=Abstract):
    """A screen of the dashboard. Below 60x12 its head is all that is shown."""

    DEFAULT_CSS = """
    View { layout: vertical; overflow: hidden hidden; }
    View Pane { width: 1fr; height: 1fr; }
    View #head, View #keys { background: $panel; }
    """

    def __init__(self, ask: Callable[[], None]) -> None:
        """ask: has what the screen wishes for now come as soon as it can."""
        super().__init__()
        self.shown = Frame()
        self.head = Head(id="head")
        self.keys = KeyBar(id="keys")
        self._ask = ask
        self.deeds: Mapping[str, Deed] = {
            "move": self._move, "page": self._page, "first": partial(self._go, 0), "last": partial(self._go, -1),
        }  # fmt: skip
        """What its keys do, by the name in their `screen.do(…)`."""

    def _move(self, by: int) -> None:
        self.cursor.move(by)

    def _page(self, direction: int) -> None:
        self.cursor.page(direction)

    def _go(self, to: int) -> None:
        self.cursor.move(to=to)

    @property
    def wish(self) -> Wish:
        """What it needs in a snapshot that other screens do not."""
        return Wish()

    @property
    @abstractmethod
    def panes(self) -> tuple[Pane, ...]:
        """Everything that shows a frame."""

    @property
    @abstractmethod
    def cursor(self) -> Cursor:
        """What the keys that move work on."""

    def show(self, frame: Frame, palette: Palette) -> None:
        """Take a new frame."""
        self.shown = frame
        self.share_out()
        for pane in self.panes:
            pane.show(frame, palette)

    def on_resize(self, event: events.Resize) -> None:
        self.share_out()
        if self.wish != Wish():
            self.call_after_refresh(self._ask)  # once its panes know their size

    @abstractmethod
    def share_out(self) -> None:
        """Give every pane its place in the screen as it is now."""

    def action_do(self, name: str, *numbers: int) -> None:
        """What a key of this screen does, and what it makes the screen wish for."""
        before = self.wish
        self.deeds[name](*numbers)
        if self.wish != before:
            self._ask()


class OnePane(View):
    """A screen with one pane between head and keys."""

    def __init__(
        self, ask: Callable[[], None], pane: Pane, wish: Callable[[], Wish], deeds: Mapping[str, Deed]
    ) -> None:
        """pane: it moves, too. wish: what the pane needs. deeds: what keys do beside moving."""
        super().__init__(ask)
        if not isinstance(pane, Cursor):
            raise TypeError(f"{type(pane).__name__} has nothing to move")
        self.pane, self._cursor = pane, pane
        self._wish = wish
        self.deeds = {**self.deeds, **deeds}

    def compose(self) -> ComposeResult:
        yield Vertical(self.head, self.pane, self.keys)

    @property
    def wish(self) -> Wish:
        return self._wish()

    @property
    def cursor(self) -> Cursor:
        return self._cursor

    @property
    def panes(self) -> tuple[Pane, ...]:
        return self.head, self.pane, self.keys

    def share_out(self) -> None:
        width, height = self.app.size
        whole = width >= LEAST_WIDTH and height >= LEAST_HEIGHT
        keys = int(whole or height >= 5)
        for part, lines in ((self.head, 3 if whole else max(1, height - keys)), (self.keys, keys)):
            part.display = lines > 0
            part.styles.height = lines
        self.pane.display = whole
