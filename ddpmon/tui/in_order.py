"""Keys and pastes are taken one after another, however fast they come."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.screen import Screen

GIVE_UP_S = 1.0
"""How long a key is waited for at most; one that a dialog took with it when it closed must not hold up the others."""


class InOrder(App[None]):
    """An app whose every key goes to the screen, and to the field, that the key before it led to.

    Textual hands a key to the screen that is shown when it comes, while the one before it, which may open or close a
    dialog, is still on its way through the widgets' queues to the app. Over a slow line several keys come at once:
    `x` and `s` would sort the ranks behind the question instead of stopping the run.
    """

    def __init__(self, *, ansi_color: bool | None) -> None:
        super().__init__(ansi_color=ansi_color)
        self._typed: deque[events.Key | events.Paste] = deque()
        self._under_way_since: float | None = None
        """When a key was given out that has not been taken yet."""

    def on_mount(self) -> None:
        self.set_interval(GIVE_UP_S, self._give_up_waiting)

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        self._typed.append(event)
        if self._under_way_since is None:
            await self._give_next()

    async def _give_up_waiting(self) -> None:
        """Give out the next key if the one before it is nowhere to be seen."""
        if self._under_way_since is not None and time.monotonic() - self._under_way_since > GIVE_UP_S:
            await self._give_next()

    async def _give_next(self) -> None:
        if not self._typed:
            self._under_way_since = None
            return
        since = self._under_way_since = time.monotonic()
        screen, target = self.screen, self.focused or self.screen
        await super().on_event(self._typed.popleft())
        _behind(target.ancestors_with_self, partial(self._taken, since, screen))

    async def _taken(self, since: float, screen: Screen[object]) -> None:
        """The key given out then was taken, and this screen is ready for the next."""
        if since != self._under_way_since:  # it was given up
            return
        if self.screen is screen:
            await self._give_next()
        else:  # the other one may still have to be built, and its first field to be focused
            _behind(self.screen.ancestors_with_self, partial(self._taken, since, self.screen))


def _behind(path: list[DOMNode], do: Callable[[], Awaitable[None]]) -> None:
    """Call `do` in the turn of the last node, behind what is on its way through the queues of all of them."""
    node, *rest = path
    if not node.call_later(partial(_behind, rest, do) if rest else do) and rest:
        _behind(rest, do)  # that node is gone
