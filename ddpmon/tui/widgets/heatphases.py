"""A heat map with a row per rank and phase, which shows the phase that makes a rank slow."""

from __future__ import annotations

from ddpmon.messages import HEAT_MOST, OWN_PHASES, WHOLE_RUN, HeatView, SeriesRequest, ViewRequest
from ddpmon.tui.blocks import TALL, Block
from ddpmon.tui.filters import runs_of
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, pane_title
from ddpmon.tui.widgets.heatmap import PHASES_LEFT, PHASES_OF, TALLEST, HeatMap, cell_glyphs, cells_of, legend
from ddpmon.tui.widgets.pane import BlockPane

_LEAST_WIDTH = 60


class HeatPhases(BlockPane):
    """The phases of as many ranks as fit below the heat map. The rank under the cursor is always among these ranks."""

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        snapshot = frame.snapshot
        if snapshot is None or not snapshot.step or len(snapshot.ranks) > PHASES_OF:
            return None
        phases = sum(phase not in snapshot.unmeasured for phase in OWN_PHASES)
        if not phases or not snapshot.ranks:
            return None
        tallest = TALLEST if height >= TALL else 1
        return Block(_LEAST_WIDTH, 1 + phases, height=1 + len(snapshot.ranks) * (phases * tallest + 1))

    def _shown(self) -> list[int]:
        """Return the ranks that fit, with the rank under the cursor first if not all do."""
        snapshot = self.frame.snapshot
        phases = sum(phase not in snapshot.unmeasured for phase in OWN_PHASES) if snapshot is not None else 0
        listed = list(dict.fromkeys(rank for rank in self.in_sight() if rank is not None))
        room = self.room[1] // (phases + 1) if phases else 0
        chosen = self.chosen_rank()
        if len(listed) > room and chosen in listed:
            listed = [chosen, *(rank for rank in listed if rank != chosen)]
        return listed[:room]

    @property
    def view_request(self) -> ViewRequest:
        ranks, above = self._shown(), self.main
        if not ranks or not isinstance(above, HeatMap):
            return ViewRequest()
        columns = max(1, min(HEAT_MOST, self.room[0] - PHASES_LEFT))
        spans, rows = runs_of(ranks), len(ranks)
        return ViewRequest(heat_phases=SeriesRequest((), spans, columns, above.steps, rows, above.beyond_chance))

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        views = [] if frame.snapshot is None else frame.snapshot.heat_phases
        above = self.main
        steps = above.steps if isinstance(above, HeatMap) else 0
        if not views or steps not in (views[0].steps, WHOLE_RUN):
            return [pane_title("each phase ", width), [(f" {frame.why_absent}", "muted")]]
        lines = [pane_title("each phase: slower than peers ", width, legend(views[0]))]
        ranks = [rank for rank in self._shown() if any(row.ranks[0] == rank for row in views[0].rows)]
        tall = max(1, min(TALLEST, (height // max(1, len(ranks)) - 1) // len(views)))
        for place, rank in enumerate(ranks):
            lines += [[]] * (place > 0)
            chosen = rank == self.chosen_rank()
            lines += [row for view in views for row in _rows(view, rank, width, tall, chosen=chosen)]
        return lines


def _rows(view: HeatView, rank: int, width: int, tall: int, *, chosen: bool) -> list[Line]:
    """Return a phase of a rank as `tall` lines with the same cells. Return no lines if the view does not contain the
    rank.
    """
    place = next((place for place, row in enumerate(view.rows) if row.ranks == (rank, rank)), None)
    if place is None:
        return []
    label = f"{f'rank {rank}':>{PHASES_LEFT - 12}} {view.metric:<10} "
    room = max(1, width - PHASES_LEFT)
    row = cells_of(view, place, room, cell_glyphs(view))
    role = "strong" if chosen else "text"
    return [[(label if line == tall // 2 else " " * PHASES_LEFT, role), *row] for line in range(tall)]
