"""The common parts of all screens: the head at the top, the keys at the bottom, and one frame for all panes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen

from ddpmon.messages import ViewRequest, merge_requests
from ddpmon.tui.blocks import LEAST_HEIGHT, LEAST_WIDTH, Box, arrange_blocks
from ddpmon.tui.frame import Frame
from ddpmon.tui.palette import DARK, Palette
from ddpmon.tui.screens.ask import Picker
from ddpmon.tui.widgets.head import Head, KeyBar
from ddpmon.tui.widgets.pane import Action, Actions, BlockPane, Pane
from ddpmon.tui.widgets.scrolling import WHEEL_LINES
from ddpmon.tui.workarounds import Abstract

HEAD_AND_KEYS = 4
"""Number of lines of the head and of the keys on a screen that is large enough for panes."""


def head_and_key_lines(width: int, height: int) -> tuple[int, int]:
    """Return the lines of the head and of the keys. On a small screen, the head gets all lines except those of the
    keys.
    """
    if width >= LEAST_WIDTH and height >= LEAST_HEIGHT:
        return 3, 1
    keys = int(height >= 5)
    return max(1, height - keys), keys


class View(Screen[None], metaclass=Abstract):
    """A screen of the dashboard. Below 60x12 it shows only its head."""

    DEFAULT_CSS = """
    View { overflow: hidden hidden; }
    View Pane { position: absolute; }
    View #head, View #keys { background: $panel; }
    """

    def __init__(self, ask: Callable[[], None], main: Pane, *others: Pane) -> None:
        """Make a screen.

        Args:
            ask: Called to fetch the screen's requested parts as soon as possible.
            main: The main pane, which has the cursor.
            others: The panes around it.

        """
        super().__init__()
        self.shown = Frame()
        self.main = main
        self.body = (main, *others)
        """The panes between the head and the keys."""
        self.head, self.keys = Head(id="head"), KeyBar(id="keys")
        self.panes: tuple[Pane, ...] = (self.head, *self.body, self.keys)
        for other in others:
            if isinstance(other, BlockPane):
                other.main = main
        self._ask = ask
        self._palette = DARK
        self._boxes: dict[Pane, Box] = {}
        self._asked = ViewRequest()
        """The request of the screen when the panes' places were last changed."""

    def compose(self) -> ComposeResult:
        yield from self.panes

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
            if pane.offered is not None:
                actions["choose"] = partial(self._open_list, pane)
        return actions

    @property
    def view_request(self) -> ViewRequest:
        """Return the parts of a snapshot that only this screen requests from the hub."""
        return merge_requests(*(pane.view_request for pane in self.panes if pane.display))

    @property
    def cursor(self) -> Pane:
        """Return the pane on which the movement keys act."""
        return self.main

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
    def place_panes(self, width: int, height: int) -> dict[Pane, Box]:
        """Return the places of the panes in the room between the head and the keys. The other panes are hidden."""

    def share_out(self) -> None:
        """Compute and set the place of every pane for the current size of the screen."""
        width, height = self.app.size
        head, keys = head_and_key_lines(width, height)
        boxes = {self.head: Box(0, -head, width, head), self.keys: Box(0, height - head - keys, width, keys)}
        if width >= LEAST_WIDTH and height >= LEAST_HEIGHT:
            boxes |= self.place_panes(width, height - head - keys)
        if boxes == self._boxes:
            return
        self._boxes = boxes
        for pane in self.panes:
            box = boxes.get(pane)
            pane.box = box if box is not None and box.height > 0 else None
            pane.display = pane.box is not None
            if pane.box is not None:
                pane.styles.width, pane.styles.height = pane.box.width, pane.box.height
                pane.styles.offset = (pane.box.x, head + pane.box.y)
        if self.view_request != ViewRequest():
            self.call_after_refresh(self._ask_for_what_fits)

    def _ask_for_what_fits(self) -> None:
        if (view_request := self.view_request) != self._asked:
            self._asked = view_request
            self._ask()

    def on_click(self) -> None:
        self._follow()
        if len(self.body) > 1:
            self._ask()

    def action_do(self, name: str, *numbers: int) -> None:
        """Run the action of a key of this screen, and update what the screen requests."""
        self._do(partial(self.actions[name], *numbers))

    def _do(self, action: Callable[[], None]) -> None:
        """Run an action. Then request the parts that the screen now needs, and update the blocks that follow the
        cursor.
        """
        before = self.view_request
        action()
        if self.view_request != before:
            self._ask()
        self.share_out()
        self._follow()

    def _follow(self) -> None:
        """Redraw the blocks, which show the rank under the cursor."""
        for pane in self.body:
            if isinstance(pane, BlockPane):
                pane.redraw()

    def on_mouse_scroll_down(self) -> None:
        """Move the cursor, unless the pane under the mouse uses the wheel itself."""
        self._do(partial(self.cursor.move, WHEEL_LINES))

    def on_mouse_scroll_up(self) -> None:
        self._do(partial(self.cursor.move, -WHEEL_LINES))

    def _open_list(self, pane: Pane) -> None:
        """Show the list of a pane's quantities, and apply the choice."""
        if (offered := pane.offered) is None:
            return

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
    """A screen with blocks below its main pane or to its right, if there is room."""

    def place_panes(self, width: int, height: int) -> dict[Pane, Box]:
        main, *blocks = self.body
        needs = {pane: pane.needs(self.shown, width, height) for pane in self.body}
        needed = {pane: need for pane, need in needs.items() if need is not None}
        placed = zip(needed, arrange_blocks([*needed.values()], width, height), strict=True)
        boxes = {pane: box for pane, box in placed if box is not None}
        main.followed = len(boxes) > 1
        for block in blocks:
            if isinstance(block, BlockPane):
                block.beside = block in boxes and boxes[block].x > 0 and boxes[block].y == 0
        return boxes
