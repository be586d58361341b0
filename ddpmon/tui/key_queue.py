"""Handles keys and pastes one after another, however fast they arrive."""

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

MAX_KEY_WAIT_S = 1.0
"""Longest wait for a key to be handled, in seconds. A dialog that closes can lose a key, and a lost key must not block
the next."""


class Shown(Protocol):
    """The attributes of an app by which the key queue finds the receiver of the next key."""

    @property
    def screen(self) -> Screen[object]:
        """Return the current screen, which may be a dialog."""

    @property
    def focused(self) -> Widget | None:
        """Return the widget that has the focus."""


class KeyQueue:
    """Sends each key only after the previous key took effect, so that the key reaches the screen or field that the
    previous key opened.

    Textual sends a key to the screen that is shown when the key arrives. The previous key, which may open or close a
    dialog, can then still be on its way through the widgets' queues to the app. Over a slow connection several keys
    arrive at once. Without this queue, `x` (ask whether to stop) and `s` (stop) would stop nothing: the list of ranks
    below the question would receive `s` and sort the ranks.
    """

    def __init__(self, app: Shown, dispatch: Callable[[events.Event], Awaitable[None]]) -> None:
        """Start with an empty queue; `dispatch` does what Textual would do with a key that arrives."""
        self._app = app
        self._dispatch = dispatch
        self._typed: deque[events.Key | events.Paste] = deque()
        self._under_way_since: float | None = None
        """Moment at which the key that is still being handled was sent; None if no key is being handled."""

    @property
    def quiet(self) -> bool:
        """Return whether all typed keys have been handled."""
        return not self._typed and self._under_way_since is None

    async def enqueue(self, event: events.Key | events.Paste) -> None:
        """Add a key or a paste that has just arrived. Send it at once if no other key is being handled."""
        self._typed.append(event)
        if self._under_way_since is None:
            await self._dispatch_next()

    async def give_up_waiting(self) -> None:
        """Send the next key if the previous key was lost. The app calls this method every `MAX_KEY_WAIT_S` seconds."""
        if self._under_way_since is not None and time.monotonic() - self._under_way_since > MAX_KEY_WAIT_S:
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
        """Send the next key once the current screen is ready. The key that was sent at `since` has been handled."""
        if since != self._under_way_since:  # `give_up_waiting` has already sent the next key
            return
        if self._app.screen is screen:
            await self._dispatch_next()
        else:  # the new screen may still have to be built and its first field focused
            _behind(self._app.screen.ancestors_with_self, partial(self._taken, since, self._app.screen))


def _behind(path: list[DOMNode], do: Callable[[], Awaitable[None]]) -> None:
    """Call `do` in the last node of `path`, after each node of `path` has handled the messages that are now in its
    queue.
    """
    node, *nodes_left = path
    if not node.call_later(partial(_behind, nodes_left, do) if nodes_left else do) and nodes_left:
        _behind(nodes_left, do)  # that node is closed
