"""The way from a list of ranks to one of them and back, and the question where that rank is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from ddpmon.tui.dashboard import Dashboard
from ddpmon.tui.playback import Playback
from ddpmon.tui.screens.view import RankCursor, View
from ddpmon.tui.views import ViewName
from ddpmon.tui.widgets.inspection import Inspection


class Inspecting:
    """The inspected rank, and the screen where it was chosen."""

    def __init__(
        self,
        dashboard: Dashboard,
        playback: Playback,
        views: Mapping[ViewName, View],
        inspection: Inspection,
        go: Callable[[ViewName], Awaitable[None]],
    ) -> None:
        """go: shows another screen."""
        self._dashboard = dashboard
        self._playback = playback
        self._views = views
        self._inspection = inspection
        self._go = go
        self._chosen_on = ViewName.WORLD

    @property
    def rank(self) -> int:
        """The rank that is inspected."""
        return self._inspection.rank

    async def open(self, shown: ViewName) -> None:
        """Inspect the rank under the cursor of the screen that is shown."""
        cursor = self._views[shown].cursor
        rank = cursor.chosen_rank() if isinstance(cursor, RankCursor) else None
        if rank is None:
            self._dashboard.say("no rank under the cursor")
            return
        self._chosen_on = shown
        self._inspection.open(rank)
        await self._go(ViewName.INSPECT)

    async def back(self) -> None:
        """To where the rank was chosen, with the cursor on it."""
        cursor = self._views[self._chosen_on].cursor
        if isinstance(cursor, RankCursor):
            cursor.choose(self.rank)
        await self._go(self._chosen_on)

    def ask_stack(self) -> None:
        """Ask the rank where it is. That changes nothing: it is there with --readonly too."""
        source = self._playback.source
        if self._playback.held is not None:
            self._dashboard.say("the screen is frozen: press space, then p")
            return
        self._inspection.show_stack()
        if not source.askable:
            self._dashboard.say("a recording shows recorded stacks only")
            return
        source.ask([self.rank])
        self._dashboard.show_answer()
