"""The Comm screen, which shows what all-reduce costs, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical

from ddpmon.analysis.processes.parallelism import with_ddp
from ddpmon.messages import BUCKETS, COST_WINDOWS, Snapshot
from ddpmon.tui import keys
from ddpmon.tui.blocks import LEAST_HEIGHT, LEAST_WIDTH, WIDE, Box
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, cut_sentence, plain_text
from ddpmon.tui.screens.view import View, head_and_key_lines, set_heights
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
    """Return the reason why the buckets are not shown; "" if DDP, and so buckets, are not used."""
    if not with_ddp(snapshot.parallelism):
        return ""
    return snapshot.missing.get(BUCKETS) or "buckets: not recorded; ddpmon run --buckets SCRIPT records them"


class Hint(Pane):
    """A hint at the key that shows buckets, or at the option that records them."""

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
    DEFAULT_CSS = """
    Comm #lists { width: 1fr; height: 1fr; overflow: hidden hidden; }
    """

    def __init__(self, ask: Callable[[], None]) -> None:
        super().__init__(ask)
        self.cost = Cost(id="cost")
        self.waits = WaitTable(id="waits")
        self.buckets = BucketList(id="buckets")
        self.sync_lanes = SyncLanes(id="sync-lanes")
        self.wait_lanes = WaitLanes(id="wait-lanes")
        self.wait_lanes.chosen_rank = self.waits.chosen_rank
        self.hint = Hint(id="hint")
        self.lists = Container(self.waits, self.buckets, id="lists")
        self._arranged: tuple[object, ...] = ()

    @property
    def actions(self) -> Actions:
        return {**super().actions, "buckets": self._buckets_or_ranks}

    def compose(self) -> ComposeResult:
        yield Vertical(self.head, self.cost, self.lists, self.sync_lanes, self.wait_lanes, self.hint, self.keys)

    @property
    def cursor(self) -> WaitTable | BucketList:
        return self.buckets if self.buckets.active else self.waits

    @property
    def panes(self) -> tuple[Pane, ...]:
        return self.head, self.cost, self.waits, self.buckets, self.sync_lanes, self.wait_lanes, self.hint, self.keys

    def share_out(self) -> None:
        width, height = self.app.size
        snapshot = self.shown.snapshot
        recorded = snapshot is not None and bool(snapshot.buckets)
        self.buckets.active = self.buckets.active and recorded
        whole = width >= LEAST_WIDTH and height >= LEAST_HEIGHT
        head, keybar = head_and_key_lines(width, height)
        body = height - 4
        cost_lines = 1 if snapshot is None else len(cost.cost(snapshot, width, self.cost.over)) + 1
        shown = None if snapshot is None else cost.view_over(snapshot, self.cost.over)
        self.waits.tells_steps = shown is not None and shown.over != COST_WINDOWS[0]
        cost_room = min(cost_lines, max(3, body - 8))
        beside, below = width >= WIDE, body - cost_room >= 2 * _LEAST_LIST
        together = recorded and (beside or below)
        hint = int(whole and not together)
        lists = body - cost_room - hint
        ranks = 0 if snapshot is None else len(snapshot.ranks)
        spare = lists - self._listed(ranks, beside=beside, together=together)
        past, wait_lanes = self._through_time(width, spare) if whole else (0, 0)
        lists -= past + wait_lanes
        most = 0 if snapshot is None else min(bucketlist.needed(snapshot), lists // 2)
        arranged = (width, height, recorded, self.buckets.active, cost_room, ranks, most, past, wait_lanes)
        if arranged == self._arranged:
            return
        self._arranged = arranged
        set_heights(
            (self.head, head), (self.cost, cost_room * whole), (self.hint, hint), (self.lists, lists * whole),
            (self.sync_lanes, past), (self.wait_lanes, wait_lanes), (self.keys, keybar),
        )  # fmt: skip
        for block, lines in ((self.sync_lanes, past), (self.wait_lanes, wait_lanes)):
            block.box = Box(0, 0, width, lines)  # a block's request depends on its box, before the layout
        self.hint.buckets_shown = self.buckets.active
        self.lists.styles.layout = "horizontal" if beside else "vertical"
        self.waits.display = together or not self.buckets.active
        self.buckets.display = recorded and (together or self.buckets.active)
        self.waits.styles.height = min(ranks + 2, lists - most) if together and not beside else "1fr"
        self.buckets.styles.margin = (0, 0, 0, int(together and beside))

    def _listed(self, ranks: int, *, beside: bool, together: bool) -> int:
        """Return the number of lines that all listed ranks and buckets take."""
        listed = ranks + 2
        if self.shown.snapshot is not None and (together or self.buckets.active):
            buckets = bucketlist.needed(self.shown.snapshot)
            listed = max(listed, buckets) if beside or not together else listed + buckets
        return listed

    def _through_time(self, width: int, spare: int) -> tuple[int, int]:
        """Return the lines for the cost of all-reduce over time and for the ranks' waits; 0 if they do not fit.

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
        """Switch between the buckets and the ranks: the movement keys then act on the other list."""
        if self.shown.snapshot is None or not self.shown.snapshot.buckets:
            return  # the hint on the screen says how to record buckets
        self.buckets.active = not self.buckets.active
        self.share_out()
        for pane in (self.waits, self.buckets, self.hint):
            pane.redraw()
