"""Keys and pastes are taken one after another, however fast they come."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from textual import events
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget

GIVE_UP_S = 1.0
"""Longest wait for a key; one that a dialog took with it when it closed must not hold up the others."""


class Shown(Protocol):
    """Receiver of the next key: an app, as far as its keys are concerned."""

    @property
    def screen(self) -> Screen[object]:
        """The screen that is shown, a dialog's too."""

    @property
    def focused(self) -> Widget | None:
        """The field that has the focus."""


class KeyQueue:
    """Hands every key to the screen, and to the field, that the key before it led to.

    Textual hands a key to the screen that is shown when it comes, while the one before it, which may open or close a
    dialog, is still on its way through the widgets' queues to the app. Over a slow line several keys come at once:
    `x` and `s` would sort the ranks behind the question instead of stopping the run.
    """

    def __init__(self, app: Shown, dispatch: Callable[[events.Event], Awaitable[None]]) -> None:
        """dispatch: what Textual does with a key that comes."""
        self._app = app
        self._dispatch = dispatch
        self._typed: deque[events.Key | events.Paste] = deque()
        self._under_way_since: float | None = None
        """Moment at which the key that was not taken yet was given out."""

    @property
    def quiet(self) -> bool:
        """Return whether all that was typed has been taken."""
        return not self._typed and self._under_way_since is None

    async def enqueue(self, event: events.Key | events.Paste) -> None:
        """A key or a paste that just came."""
        self._typed.append(event)
        if self._under_way_since is None:
            await self._dispatch_next()

    async def give_up_waiting(self) -> None:
        """Give out the next key if the one before it got lost on its way; to be called every `GIVE_UP_S`."""
        if self._under_way_since is not None and time.monotonic() - self._under_way_since > GIVE_UP_S:
            await self._dispatch_next()

    async def _dispatch_next(self) -> None:
        if not self._typed:
            self._under_way_since = None
            return
        since = self._under_way_since = time.monotonic()
        screen, target = self._app.screen, self._app.focused or self._app.screen
        await self._dispatch(self._typed.popleft())
        _behind(target.ancestors_with_self, partial(self._taken, since, screen))

    async def _taken(self, since: float, screen: Screen[object]) -> None:
        """The key given out then was taken, and this screen is ready for the next."""
        if since != self._under_way_since:  # it was given up
            return
        if self._app.screen is screen:
            await self._dispatch_next()
        else:  # the other one may still have to be built, and its first field to be focused
            _behind(self._app.screen.ancestors_with_self, partial(self._taken, since, self._app.screen))


def _behind(path: list[DOMNode], do: Callable[[], Awaitable[None]]) -> None:
    """Call `do` in the turn of the last node, behind what is on its way through the queues of all of them."""
    node, *nodes_left = path
    if not node.call_later(partial(_behind, nodes_left, do) if nodes_left else do) and nodes_left:
        _behind(nodes_left, do)  # that node is gone
