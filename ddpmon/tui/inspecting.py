"""The way from a list of ranks to one of them and back, and the question where that rank is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from ddpmon.tui.dashboard import Dashboard
from ddpmon.tui.playback import Playback
from ddpmon.tui.screens.view import RankCursor, View
from ddpmon.tui.views import ViewName
from ddpmon.tui.widgets.inspection import Inspection


@dataclass
class Inspecting:
    """The inspected rank, and the screen where it was chosen."""

    dashboard: Dashboard
    playback: Playback
    views: Mapping[ViewName, View]
    inspection: Inspection
    go: Callable[[ViewName], Awaitable[None]]
    """Shows another screen."""
    chosen_on: ViewName = ViewName.WORLD

    @property
    def rank(self) -> int:
        """The rank that is inspected."""
        return self.inspection.rank

    def rank_on(self, shown: ViewName) -> int | None:
        """Return the rank under the cursor of a screen, or the one that is inspected there."""
        if shown is ViewName.INSPECT:
            return self.rank
        cursor = self.views[shown].cursor
        return cursor.chosen_rank() if isinstance(cursor, RankCursor) else None

    async def open(self, shown: ViewName) -> None:
        """Inspect the rank under the cursor of the screen that is shown."""
        rank = self.rank_on(shown)
        if rank is None:
            self.dashboard.say("no rank under the cursor")
            return
        self.chosen_on = shown
        self.inspection.open(rank)
        await self.go(ViewName.INSPECT)

    async def back(self) -> None:
        """To where the rank was chosen, with the cursor on it."""
        cursor = self.views[self.chosen_on].cursor
        if isinstance(cursor, RankCursor):
            cursor.choose(self.rank)
        await self.go(self.chosen_on)

    def ask_stack(self) -> None:
        """Ask the rank where it is. That changes nothing: it is there with --readonly too."""
        source = self.playback.source
        if self.playback.held is not None:
            self.dashboard.say("the screen is frozen: press space, then p")
            return
        self.inspection.show_stack()
        if not source.askable:
            self.dashboard.say("a replay shows only stacks that ddpmon recorded")
            return
        source.ask([self.rank])
        self.dashboard.show_answer()
