"""The Comm screen, which shows what all-reduce costs, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import BindingType

from ddpmon.analysis.processes.parallelism import with_ddp
from ddpmon.messages import BUCKETS, COST_WINDOWS, Snapshot
from ddpmon.tui import keys
from ddpmon.tui.blocks import AIR, WIDE, Box
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, cut_sentence, plain_text
from ddpmon.tui.screens.view import View
from ddpmon.tui.views import ViewName
from ddpmon.tui.widgets import bucketlist, cost
from ddpmon.tui.widgets.bucketlist import BucketList
from ddpmon.tui.widgets.cost import Cost
from ddpmon.tui.widgets.pane import Actions, Pane
from ddpmon.tui.widgets.synclanes import SyncLanes, WaitLanes, lines_each
from ddpmon.tui.widgets.waittable import WaitTable

_LEAST_LIST = 10
"""Minimum height in lines of each list if ranks and buckets are shown below one another."""
_LEAST_LANE = 2
"""Minimum height in lines of a lane, which is the chart of one rank's waits."""


def why_no_buckets(snapshot: Snapshot) -> str:
    """Return the reason why the buckets are not shown; "" without DDP, because then there are no buckets."""
    if not with_ddp(snapshot.parallelism):
        return ""
    return snapshot.missing.get(BUCKETS) or "buckets: not recorded; ddpmon run --buckets SCRIPT records them"


class Hint(Pane):
    """A line that names the key that shows the buckets, or the option that records buckets."""

    buckets_shown = False

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        if frame.snapshot is None:
            return []
        count = len(frame.snapshot.buckets)
        if count:
            alternative = "the ranks" if self.buckets_shown else f"the all-reduce of {count} bucket{'s' * (count != 1)}"
            return [[(" b ", "key"), (alternative, "muted")]]
        return [[(" " + cut_sentence(plain_text(why_no_buckets(frame.snapshot)), width - 1), "muted")]]


class Comm(View):
    """The Comm screen: the cost of all-reduce, each rank's share of it, and DDP's buckets."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings(ViewName.COMM)]

    def __init__(self, ask: Callable[[], None]) -> None:
        self.cost, self.waits, self.buckets = Cost(id="cost"), WaitTable(id="waits"), BucketList(id="buckets")
        self.sync_lanes, self.wait_lanes = SyncLanes(id="sync-lanes"), WaitLanes(id="wait-lanes")
        self.hint = Hint(id="hint")
        super().__init__(ask, self.waits, self.cost, self.buckets, self.sync_lanes, self.wait_lanes, self.hint)

    @property
    def actions(self) -> Actions:
        return {**super().actions, "buckets": self._buckets_or_ranks}

    @property
    def cursor(self) -> Pane:
        return self.buckets if self.buckets.active else self.waits

    def place_panes(self, width: int, height: int) -> dict[Pane, Box]:
        snapshot = self.shown.snapshot
        recorded = snapshot is not None and bool(snapshot.buckets)
        self.buckets.active = self.hint.buckets_shown = self.buckets.active and recorded
        cost_lines = 1 if snapshot is None else len(cost.cost(snapshot, width, self.cost.over)) + 1
        shown = None if snapshot is None else cost.view_over(snapshot, self.cost.over)
        self.waits.tells_steps = shown is not None and shown.over != COST_WINDOWS[0]
        cost_room = min(cost_lines, max(3, height - 8))
        beside, below = width >= WIDE, height - cost_room >= 2 * _LEAST_LIST
        together = recorded and (beside or below)
        hint = int(not together)
        lists = height - cost_room - hint
        ranks = 0 if snapshot is None else len(snapshot.ranks)
        past, waits = self._through_time(width, lists - self._listed(ranks, beside=beside, together=together))
        lists -= past + waits
        boxes: dict[Pane, Box] = {self.cost: Box(0, 0, width, cost_room)}
        if not together:
            boxes[self.cursor] = Box(0, cost_room, width, lists)
        elif beside:
            of_ranks = (width - AIR) // 2
            boxes[self.waits] = Box(0, cost_room, of_ranks, lists)
            boxes[self.buckets] = Box(of_ranks + AIR, cost_room, width - of_ranks - AIR, lists)
        else:
            of_buckets = 0 if snapshot is None else min(bucketlist.needed(snapshot), lists // 2)
            of_ranks = min(ranks + 2, lists - of_buckets)
            boxes[self.waits] = Box(0, cost_room, width, of_ranks)
            boxes[self.buckets] = Box(0, cost_room + of_ranks, width, lists - of_ranks)
        y = cost_room + lists
        for pane, lines in ((self.sync_lanes, past), (self.wait_lanes, waits), (self.hint, hint)):
            boxes[pane] = Box(0, y, width, lines)
            y += lines
        return boxes

    def _listed(self, ranks: int, *, beside: bool, together: bool) -> int:
        """Return the number of lines that all listed ranks and buckets need."""
        listed = ranks + 2
        if self.shown.snapshot is not None and (together or self.buckets.active):
            buckets = bucketlist.needed(self.shown.snapshot)
            listed = max(listed, buckets) if beside or not together else listed + buckets
        return listed

    def _through_time(self, width: int, spare: int) -> tuple[int, int]:
        """Return the number of lines for the cost of all-reduce over time, and for the ranks' waits over time. A part
        that does not fit gets 0 lines.

        If there is room for the ranks' waits, all lanes are equally high, and spare lines go to the cost.
        """
        past = self.sync_lanes.needs(self.shown, width, spare)
        if past is None or spare < past.least_height:
            return 0, 0
        of_ranks = self.wait_lanes.needs(self.shown, width, spare)
        rows = self.sync_lanes.rows(width)
        if of_ranks is not None:
            below = of_ranks.least_height - 1
            each = lines_each(spare - 2, rows + below)
            if each >= _LEAST_LANE and spare - 2 >= each * (rows + below):
                waits = 1 + each * below
                return 1 + rows * lines_each(spare - waits - 1, rows), waits
        return spare, 0

    def _buckets_or_ranks(self) -> None:
        """Switch between the list of buckets and the list of ranks. The movement keys then act on the other list."""
        if self.shown.snapshot is None or not self.shown.snapshot.buckets:
            return  # the hint on the screen says how to record buckets
        self.buckets.active = not self.buckets.active
        self.share_out()
        for pane in (self.waits, self.buckets, self.hint):
            pane.redraw()
