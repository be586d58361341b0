"""Opens the Inspect screen for one rank, returns to the previous screen, and asks the rank for its stack."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from ddpmon.tui.dashboard import Dashboard
from ddpmon.tui.playback import Playback
from ddpmon.tui.screens.view import View
from ddpmon.tui.views import ViewName
from ddpmon.tui.widgets.inspection import Inspection


@dataclass
class Inspecting:
    """The inspected rank, and the screen on which it was chosen."""

    dashboard: Dashboard
    playback: Playback
    views: Mapping[ViewName, View]
    inspection: Inspection
    go: Callable[[ViewName], Awaitable[None]]
    """Switches to another screen."""
    chosen_on: ViewName = ViewName.WORLD

    @property
    def rank(self) -> int:
        """Return the inspected rank."""
        return self.inspection.rank

    def rank_on(self, shown: ViewName) -> int | None:
        """Return the rank under a screen's cursor; on Inspect, the inspected rank."""
        if shown is ViewName.INSPECT:
            return self.rank
        return self.views[shown].cursor.chosen_rank()

    async def inspect_rank(self, shown: ViewName) -> None:
        """Inspect the rank under the cursor of the current screen."""
        rank = self.rank_on(shown)
        if rank is None:
            self.dashboard.say("no rank under the cursor")
            return
        self.chosen_on = shown
        self.inspection.open(rank)
        await self.go(ViewName.INSPECT)

    async def return_to_list(self) -> None:
        """Return to the screen on which the rank was chosen, with the cursor on that rank."""
        self.views[self.chosen_on].cursor.choose(self.rank)
        await self.go(self.chosen_on)

    def ask_stack(self) -> None:
        """Ask the rank for its Python stack. The request changes nothing in the run, so it also works with
        --readonly.
        """
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
