"""What all screens have in common: the head on top, the keys at the bottom, one frame for every pane."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import Screen

from ddpmon.messages import Wish
from ddpmon.tui.frame import Frame
from ddpmon.tui.palette import Palette
from ddpmon.tui.passage import Passage
from ddpmon.tui.screens.plan import LEAST_HEIGHT, LEAST_WIDTH
from ddpmon.tui.widgets.head import Head
from ddpmon.tui.widgets.keybar import KeyBar
from ddpmon.tui.widgets.pane import Pane


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


class View(Screen[None]):
    """A screen of the dashboard. Below 60x12 its head is all that is shown."""

    DEFAULT_CSS = """
    View { layout: vertical; overflow: hidden hidden; }
    View Pane { width: 1fr; height: 1fr; }
    View #head, View #keys { background: $panel; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.shown = Frame()
        self.head = Head(id="head")
        self.keys = KeyBar(id="keys")

    @property
    def wish(self) -> Wish:
        """What it needs in a snapshot that other screens do not."""
        return Wish()

    @property
    def panes(self) -> tuple[Pane, ...]:
        """Everything that shows a frame."""
        raise NotImplementedError

    @property
    def cursor(self) -> Cursor:
        """What the keys that move work on."""
        raise NotImplementedError

    def show(self, frame: Frame, palette: Palette) -> None:
        """Take a new frame."""
        self.shown = frame
        self.share_out()
        for pane in self.panes:
            pane.show(frame, palette)

    def on_resize(self, event: events.Resize) -> None:
        self.share_out()
        if self.wish != Wish():
            self.call_after_refresh(self.ask)  # once its panes know their size

    def share_out(self) -> None:
        """Give every pane its place in the screen as it is now."""
        raise NotImplementedError

    def ask(self) -> None:
        """Have what this screen wishes for now come as soon as it can."""
        if isinstance(self.app, Passage):
            self.app.show_answer()

    def action_move(self, by: int) -> None:
        self.cursor.move(by)

    def action_page(self, direction: int) -> None:
        self.cursor.page(direction)

    def action_first(self) -> None:
        self.cursor.move(to=0)

    def action_last(self) -> None:
        self.cursor.move(to=-1)


class OnePane(View):
    """A screen with one pane between head and keys."""

    def __init__(self, pane: Pane) -> None:
        super().__init__()
        self.body = pane

    def compose(self) -> ComposeResult:
        yield Vertical(self.head, self.body, self.keys)

    @property
    def panes(self) -> tuple[Pane, ...]:
        return self.head, self.body, self.keys

    def share_out(self) -> None:
        width, height = self.app.size
        whole = width >= LEAST_WIDTH and height >= LEAST_HEIGHT
        keys = int(whole or height >= 5)
        for part, lines in ((self.head, 3 if whole else max(1, height - keys)), (self.keys, keys)):
            part.display = lines > 0
            part.styles.height = lines
        self.body.display = whole
