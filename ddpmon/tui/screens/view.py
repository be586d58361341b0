"""The common parts of all screens: the head at the top, the keys at the bottom, and one frame for all panes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Protocol, runtime_checkable

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.screen import Screen
from textual.widget import Widget

from ddpmon.messages import ViewRequest, merge_requests
from ddpmon.tui.blocks import LEAST_HEIGHT, LEAST_WIDTH, Block, Box, arrange_blocks
from ddpmon.tui.chart_choice import Offered
from ddpmon.tui.frame import Frame
from ddpmon.tui.palette import DARK, Palette
from ddpmon.tui.screens.ask import Picker
from ddpmon.tui.widgets.head import Head, KeyBar
from ddpmon.tui.widgets.pane import Action, Actions, BlockPane, Pane
from ddpmon.tui.widgets.scrolling import WHEEL_LINES
from ddpmon.tui.workarounds import Abstract


@runtime_checkable
class Cursor(Protocol):
    """The target of the movement keys."""

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        """Move by a number of lines, or to a line (negative: from the end)."""

    def page(self, direction: int) -> None:
        """Move by one screenful."""


@runtime_checkable
class RankCursor(Cursor, Protocol):
    """A cursor on a rank."""

    def chosen_rank(self) -> int | None:
        """Return the rank under the cursor; None if there is none."""

    def choose(self, rank: int) -> None:
        """Put the cursor on a rank."""


@runtime_checkable
class RankLister(Protocol):
    """A pane that lists ranks."""

    def lines_in_sight(self) -> list[int | None]:
        """Return the rank on each line below the title; None for a line without a rank."""


@runtime_checkable
class Chooser(Protocol):
    """A pane that shows one of several quantities, which the user chooses from a list."""

    @property
    def offered(self) -> Offered:
        """Return the list to choose from."""


def head_and_key_lines(width: int, height: int) -> tuple[int, int]:
    """Return the lines of the head and of the keys. On a small screen, the head gets all lines but the keys'."""
    if width >= LEAST_WIDTH and height >= LEAST_HEIGHT:
        return 3, 1
    keys = int(height >= 5)
    return max(1, height - keys), keys


def set_heights(*parts: tuple[Widget, int]) -> None:
    """Set the height of each part of a screen in lines; a part with 0 lines is hidden."""
    for part, lines in parts:
        part.display = lines > 0
        part.styles.height = lines


class View(Screen[None], metaclass=Abstract):
    """A screen of the dashboard. Below 60x12 it shows only its head."""

    DEFAULT_CSS = """
    View { layout: vertical; overflow: hidden hidden; }
    View Pane { width: 1fr; height: 1fr; }
    View #head, View #keys { background: $panel; }
    """

    def __init__(self, ask: Callable[[], None]) -> None:
        """Make a screen; `ask` fetches what the screen requests as soon as possible."""
        super().__init__()
        self.shown = Frame()
        self.head = Head(id="head")
        self.keys = KeyBar(id="keys")
        self._ask = ask
        self._palette = DARK

    @property
    def actions(self) -> Actions:
        """Return the actions of the cursor and of the panes, by the names in the keys' `screen.do(…)`."""
        actions: dict[str, Action] = {
            "move": self.cursor.move,
            "page": self.cursor.page,
            "first": partial(self.cursor.move, to=0),
            "last": partial(self.cursor.move, to=-1),
        }
        for pane in self.panes:
            for name, action in pane.actions.items():
                actions[name] = _both(actions[name], action) if name in actions else action
            if isinstance(pane, Chooser):
                actions["choose"] = partial(self._open_list, pane)
        return actions

    @property
    def view_request(self) -> ViewRequest:
        """Return the parts of a snapshot that only this screen requests from the hub."""
        return merge_requests(*(pane.view_request for pane in self.panes if pane.display))

    @property
    @abstractmethod
    def panes(self) -> tuple[Pane, ...]:
        """Return all panes, each of which shows the current frame."""

    @property
    @abstractmethod
    def cursor(self) -> Cursor:
        """Return the target of the movement keys."""

    def show(self, frame: Frame, palette: Palette) -> None:
        """Show a new frame."""
        self.shown, self._palette = frame, palette
        self.share_out()
        for pane in self.panes:
            pane.show(frame, palette)

    def on_resize(self, event: events.Resize) -> None:
        self.share_out()
        if self.view_request != ViewRequest():
            self.call_after_refresh(self._ask)  # the panes know their size after the refresh

    @abstractmethod
    def share_out(self) -> None:
        """Set the place of every pane for the current size of the screen."""

    def action_do(self, name: str, *numbers: int) -> None:
        """Run the action of a key of this screen, and update what the screen requests."""
        self._do(partial(self.actions[name], *numbers))

    def _do(self, action: Callable[[], None]) -> None:
        """Run an action, request what the screen needs after it, and update the blocks that follow the cursor."""
        before = self.view_request
        action()
        if self.view_request != before:
            self._ask()
        self.share_out()
        self._follow()

    def _follow(self) -> None:
        """Redraw the blocks, which show the rank under the cursor."""
        cursor: object = self.cursor
        for pane in self.panes:
            if isinstance(pane, BlockPane) and pane is not cursor:
                pane.redraw()

    def on_mouse_scroll_down(self) -> None:
        """Move the cursor, unless the pane under the mouse uses the wheel itself."""
        self._do(partial(self.cursor.move, WHEEL_LINES))

    def on_mouse_scroll_up(self) -> None:
        self._do(partial(self.cursor.move, -WHEEL_LINES))

    def _open_list(self, chooser: Chooser) -> None:
        """Show the list of a pane's quantities, and apply the choice."""
        offered = chooser.offered

        def chosen(value: str | None) -> None:
            if value is not None:
                self._do(partial(offered.take, value))

        self.app.push_screen(Picker(offered, self._palette), chosen)


def _both(first: Action, then: Action) -> Action:
    """Return an action that runs both actions, for a key to which two panes react."""

    def action(*numbers: int) -> None:
        first(*numbers)
        then(*numbers)

    return action


class Blocks(View):
    """A screen with one main pane, and with blocks below or beside it if there is room."""

    DEFAULT_CSS = """
    Blocks #body { width: 1fr; height: 1fr; overflow: hidden hidden; }
    Blocks #body Pane { position: absolute; }
    """

    def __init__(self, ask: Callable[[], None], pane: Pane, *blocks: BlockPane) -> None:
        """Make a screen.

        Args:
            ask: Fetches what the screen requests as soon as possible, as in `View`.
            pane: The main pane, which has the cursor.
            blocks: The blocks around it, the most useful first, as in `arrange`.

        """
        super().__init__(ask)
        if not isinstance(pane, Cursor):
            raise TypeError(f"{type(pane).__name__} has nothing to move")
        self.pane, self._cursor = pane, pane
        self.blocks = blocks
        for block in self.blocks:
            block.first = pane
            if isinstance(pane, RankCursor):
                block.chosen_rank = pane.chosen_rank
            if isinstance(pane, RankLister):
                block.in_sight = pane.lines_in_sight
        self._body = Container(self.pane, *self.blocks, id="body")
        self._boxes: list[Box | None] = []
        self._asked = ViewRequest()
        """The request of the blocks after the last change of their places."""

    def compose(self) -> ComposeResult:
        yield Vertical(self.head, self._body, self.keys)

    @property
    def cursor(self) -> Cursor:
        return self._cursor

    @property
    def panes(self) -> tuple[Pane, ...]:
        return self.head, self.pane, *self.blocks, self.keys

    def share_out(self) -> None:
        width, height = self.app.size
        head, keys = head_and_key_lines(width, height)
        set_heights((self.head, head), (self.keys, keys))
        whole = self._body.display = width >= LEAST_WIDTH and height >= LEAST_HEIGHT
        boxes = self._arranged(width, height - head - keys, whole=whole)
        if boxes == self._boxes:
            return
        self._boxes = boxes
        for block, box in zip((self.pane, *self.blocks), boxes, strict=True):
            block.display = box is not None
            if isinstance(block, BlockPane):
                block.box = box
            if box is not None:
                block.styles.width, block.styles.height = box.width, box.height
                block.styles.offset = (box.x, box.y)
        if isinstance(self.pane, BlockPane):
            self.pane.followed = any(boxes[1:])
        for block, box in zip(self.blocks, boxes[1:], strict=True):
            block.beside = box is not None and box.x > 0 and box.y == 0
        if self.view_request != ViewRequest():
            self.call_after_refresh(self._ask_for_what_fits)

    def _arranged(self, width: int, height: int, *, whole: bool) -> list[Box | None]:
        if not whole:
            return [None] * (1 + len(self.blocks))
        frame = self.shown
        first = self.pane.needs(frame, width, height) if isinstance(self.pane, BlockPane) else None
        needs = [first or Block(LEAST_WIDTH, 1), *(block.needs(frame, width, height) for block in self.blocks)]
        placed = iter(arrange_blocks([need for need in needs if need is not None], width, height))
        return [None if need is None else next(placed) for need in needs]

    def on_click(self) -> None:
        self._follow()
        if self.blocks:
            self._ask()

    def _ask_for_what_fits(self) -> None:
        if (view_request := self.view_request) != self._asked:
            self._asked = view_request
            self._ask()
