"""Shows ranks over time, with one or several steps per column, so that people see since when and how regularly a rank
is slow.

Time runs from left to right. Columns fill the map from its left edge. Once the map is full, the newest column is at the
right edge.
"""

from __future__ import annotations

from rich.cells import cell_len
from textual import events

from ddpmon import numbers
from ddpmon.analysis.over_time.rank_groups import group_ranks
from ddpmon.analysis.words import format_count
from ddpmon.messages import (
    HEAT_METRICS,
    HEAT_MOST,
    HEAT_STEPS,
    OWN_PHASES,
    QUANTITIES,
    WHOLE_RUN,
    HeatView,
    SeriesRequest,
    Snapshot,
    ViewRequest,
)
from ddpmon.messages.cells import LEAST, MOST
from ddpmon.tui import axis
from ddpmon.tui.blocks import Block
from ddpmon.tui.chart_choice import Offered
from ddpmon.tui.frame import Frame, arriving, finite_or_none
from ddpmon.tui.lines import Line, cut_sentence, fit_line, join_pieces, line_width, under_cursor
from ddpmon.tui.preferences import Values
from ddpmon.tui.rank_marks import GRADES
from ddpmon.tui.widgets.heading import NO_RANK_LINE, GrantedFilter, heading
from ddpmon.tui.widgets.heatwords import cell_in_words, hosts_end, in_words, labels
from ddpmon.tui.widgets.lanes import LEVELS
from ddpmon.tui.widgets.pane import Actions, Pane
from ddpmon.tui.widgets.scrolling import moved

TITLES = {
    "own": "slower than peers",
    **{phase: f"{phase} slower than peers" for phase in OWN_PHASES},
    "wait": "wait, share of step",
    "step": "longer than the median step",
    "loss": "loss",
    "gpu": "GPU utilization",
}
_JUDGED = (("·", "ok"), ("▁", "text"), *((glyph, role) for _, glyph, role in reversed(GRADES)))
"""(glyph, colour role) of a value within the noise, then of a late rank at each of HEAT_LEVELS."""
_IDLE = ((0.75, "█", "bad"), (0.50, "▆", "warn"), (0.25, "▃", "text"))
"""(least idle share of the time, glyph, role) for GPU utilization."""
_ROLES = {"wait": "comm", "loss": "info"}
TALLEST = 3
"""Maximum height of a row in lines."""
_BELOW = 2
"""Number of lines below the rows: the axis of steps, and a description of the row under the cursor."""
_ROOMY = 15
"""Height of a map in lines from which on it has an axis of time, unless its rows need more than half of the lines."""
PHASES_OF = 64
"""Maximum number of ranks for which the hub judges every phase of every rank for one screen."""
PHASES_LEFT = 20
"""Width in columns of the labels if the phases of ranks are shown below."""
_LEAST_WIDTH = 140
"""Minimum width of the map in columns. Another block may stand to its right if the terminal leaves that."""
_SCALE = MOST - LEAST
"""Difference between the byte of a cell with the scale's highest value and that of a cell with the lowest value."""
_Cell = tuple[str, str]


def cell_glyphs(view: HeatView) -> list[_Cell]:
    """Return (glyph, role) for each value that a cell can have."""
    glyphs: list[_Cell] = [(" ", "text")]
    if view.beyond_chance:
        return [*glyphs, *_JUDGED, *[_JUDGED[-1]] * (_SCALE + 2 - len(_JUDGED))]
    for code in range(_SCALE + 1):
        share = code / _SCALE
        if view.metric in _ROLES:
            glyphs.append((LEVELS[min(7, int(share * 8))], _ROLES[view.metric]))
        else:
            value = view.low + share * (view.high - view.low)
            grades = _IDLE if view.metric == "gpu" else GRADES
            glyphs.append(next(((glyph, role) for least, glyph, role in grades if value >= least), ("·", "ok")))
    return [*glyphs, ("✖", "bad")]


def legend(view: HeatView, *, wide: bool = False) -> Line:
    """Return a legend of a metric's glyphs. `wide` includes glyphs whose meaning is obvious."""
    if view.beyond_chance:
        of = " of own" if view.metric in OWN_PHASES else ""
        return [("· noise  " * wide + "▁ <5%  ▃ 5%  ▆ 10%  █ 15%+" + of * wide, "muted")]
    if view.metric == "wait":
        return [("▁ 0%  ▄ half  █ all of it", "muted")]
    if view.metric == "loss":
        return [(f"▁ {numbers.loss(view.low)}  █ {numbers.loss(view.high)}  ✖ not finite", "muted")]
    if view.metric == "gpu":
        return [("· busy  ▃ <75%  ▆ <50%  █ <25%", "muted")]
    return [(f"· <5%{' of own' * (view.metric in OWN_PHASES)}  ▃ 5%  ▆ 10%  █ 15%+", "muted")]


def cells_of(view: HeatView, place: int, width: int, glyphs: list[_Cell]) -> Line:
    """Return the newest cells of a row in at most `width` columns, from left to right."""
    cells = view.cells[place * view.columns : (place + 1) * view.columns]
    return join_pieces(glyphs[cell] for cell in cells[-width:])


def axes(view: HeatView, left: int, room: int) -> list[Line]:
    """Return the axes of steps and of time. left: width of the labels before the cells. room: width of the cells."""
    columns = min(view.columns, room)
    texts = [f"step {numbers.count(view.last_step)}", ""]
    if columns >= axis.MIN_LABEL_DISTANCE:
        texts = [axis.steps(view.last_step, view.steps, columns), ""]
        if columns == view.columns:
            texts[1] = axis.moments_at([finite_or_none(moment) for moment in view.moments], columns)
    return [[(" " * left + text, "muted")] for text in texts]


def _below(rows: int, height: int) -> int:
    """Return the number of lines below the rows of the map.

    The lines are the description of the row under the cursor and an axis of steps. The axis is left out if the rows do
    not fit otherwise. If there is much room, an axis of time is added.
    """
    return _BELOW + (height >= max(_ROOMY, 2 * rows + 4)) - (rows == height - _BELOW)


class HeatMap(Pane):
    """The heat map with its cursor."""

    SHOWS_POINTED = True

    def __init__(self) -> None:
        super().__init__()
        self.metric = HEAT_METRICS[0]
        self._chosen_steps: int | None = None
        """Steps per column that the user chose: one of `HEAT_STEPS`, or `WHOLE_RUN`; None before a choice."""
        self.beyond_chance = True
        """True to mark ranks that are late beyond the noise; False to mark fixed percentages."""
        self.by_host = False
        """True for a row per host instead of a row per rank."""
        self.chosen: int | None = None
        """A rank in the row under the cursor; None if the cursor is on the worst row."""
        self._granted = GrantedFilter()
        self._left = PHASES_LEFT
        """Width of the labels in columns."""
        self._places: list[int] = []
        """Index of the row on each line below the title; -1 for a line without a row."""

    @property
    def actions(self) -> Actions:
        return {
            "next_metric": self.next_metric, "window": self.next_window, "scale": self.next_scale, "fold": self.fold,
        }  # fmt: skip

    @property
    def preferences(self) -> Values:
        return {"percent": not self.beyond_chance}

    def restore(self, saved: Values) -> None:
        self.beyond_chance = saved.get("percent") is not True

    @property
    def steps(self) -> int:
        """Return the steps per column. Before the user chose a number: one during the run, after its end as many as the
        whole run needs.
        """
        if self._chosen_steps is not None:
            return self._chosen_steps
        return WHOLE_RUN if self.frame.ended else HEAT_STEPS[0]

    @property
    def metrics(self) -> list[str]:
        """Return the available metrics. Phases that are not measured are left out, and GPU utilization if no rank has
        it.
        """
        ranks = self.frame.ranks
        gpu = any(QUANTITIES["gpu"].get(rank) is not None for rank in ranks)
        without = {name for rank in ranks for name in rank.unmeasured} | ({"gpu"} if not gpu else set())
        return [metric for metric in HEAT_METRICS if metric not in without]

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        """Return the size that the map needs for all ranks. Rows are so low that two thirds of the screen remain for
        the ranks' phases.

        If the ranks do not fit, the ranks of a host share a row, and the phases get the saved lines.
        """
        ranks = frame.ranks
        hosts = len({rank.host for rank in ranks if rank.host})
        rows = max(1, hosts if self.by_host else len(ranks))
        rules = 0 if self.by_host else max(0, hosts - 1)
        most = max(1, height - 1 - _below(rows, height))
        if most < rows <= PHASES_OF and not self.by_host:
            rows, rules = len(group_ranks([rank.host for rank in ranks], most)), 0
        tall = max(1, min(TALLEST, height // (3 * rows)))
        below = _BELOW + (tall > 1 and 1 + _BELOW + 1 + rows * tall + rules >= _ROOMY)
        return Block(_LEAST_WIDTH, 4, height=1 + below + rows * tall + rules)

    def lines_in_sight(self) -> list[int | None]:
        """Return, for each line below the title, the worst rank of its row; None for a line without a row."""
        view = self._view(self.frame.snapshot)
        rows = [] if view is None else view.rows
        return [rows[place].worst if 0 <= place < len(rows) else None for place in self._places]

    @property
    def view_request(self) -> ViewRequest:
        width, height = self.room
        rows, columns = height - 1 - _below(len(self.frame.listed_ranks), height), width - self._left
        if self.by_host:
            rows = min(rows, len({rank.host for rank in self.frame.ranks if rank.host}))
        rows, columns = (max(1, min(HEAT_MOST, each)) for each in (rows, columns))
        request = SeriesRequest(
            (self.metric,), self.frame.listed_spans, columns, self.steps, rows, self.beyond_chance
        )  # fmt: skip
        return ViewRequest(heat=request)

    def next_metric(self) -> None:
        """Show the next available metric."""
        metrics = self.metrics
        place = metrics.index(self.metric) if self.metric in metrics else 0
        self.metric = metrics[(place + 1) % len(metrics)]

    @property
    def offered(self) -> Offered:
        return Offered("heat", [(metric, TITLES[metric]) for metric in self.metrics], self.metric, self._show_metric)

    def _show_metric(self, metric: str) -> None:
        self.metric = metric

    def next_window(self) -> None:
        """Show more steps per column. After the maximum comes the whole run, then one step again."""
        offered = (*HEAT_STEPS, WHOLE_RUN)
        self._chosen_steps = offered[(offered.index(self.steps) + 1) % len(offered)]

    def next_scale(self) -> None:
        """Switch between lateness beyond the noise and fixed percentages."""
        self.beyond_chance = not self.beyond_chance

    def fold(self) -> None:
        """Switch between a row per host and a row per rank."""
        self.by_host = not self.by_host
        self.redraw()

    def _view(self, snapshot: Snapshot | None) -> HeatView | None:
        """Return the snapshot's map if it has the chosen metric and window, else None."""
        heat = None if snapshot is None or not self._granted.fits(self.frame) else snapshot.heat
        return (
            heat if heat is not None and heat.metric == self.metric and self.steps in (heat.steps, WHOLE_RUN) else None
        )

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        view = self._view(frame.snapshot)
        steps = self.steps if view is None else view.steps
        a_column = f", {format_count(steps, 'step')}/column" if steps else ""
        whole = ", the whole run" if view is not None and self.steps == WHOLE_RUN and view.first <= 1 else ""
        title = f"heat{' by host' * self.by_host}: {TITLES[self.metric]}{whole}{a_column}"
        if view is None or not view.rows or height < 4:
            early = frame.snapshot is None or arriving(frame.snapshot)
            note = "no step yet" if early else frame.why_absent
            none = frame.filter is not None and view is not None and not view.rows
            return [heading(title, frame, width), NO_RANK_LINE if none else [(f" {note}", "muted")]]
        names = labels(view.rows, width * 2 // 5, meant=view.beyond_chance)
        if self.followed:  # aligned with the columns of the phases below
            names = [f"{' ' * (PHASES_LEFT - 2 - cell_len(name))}{name}" for name in names]
        self._left = len(names[0]) + 2
        room = width - self._left
        first = max(1, (view.first + max(0, view.columns - room)) * view.steps)
        signs = legend(view, wide=len(title) + line_width(legend(view, wide=True)) + 4 <= width)
        span = f", steps {numbers.count(first)}-{numbers.count(view.last_step)} "
        if len(title) + len(span) + line_width(signs) + 4 <= width and frame.filter is None:
            title += span
        below = _below(len(view.rows), height)
        high = height - 1 - below
        ends = hosts_end(view.rows)
        ends = ends if len(view.rows) + len(ends) <= high else set()
        tall = max(1, min(TALLEST, (high - len(ends)) // len(view.rows)))
        glyphs, chosen = cell_glyphs(view), self._place(view)
        lines: list[Line] = []
        self._places = []
        for place in range(min(len(view.rows), high)):
            row = cells_of(view, place, room, glyphs)
            name, blank = f" {names[place]} ", " " * self._left
            labels_of = [[(name if line == tall // 2 else blank, "text")] for line in range(tall)]
            if place == chosen:
                labels_of = [[(blank, "text+select")] for _ in labels_of]
                labels_of[tall // 2] = under_cursor([(name, "text")], cell_len(name))
            lines += [[*label, *row] for label in labels_of]
            self._places += [place] * tall
            if place in ends:
                lines.append([("─" * width, "rule")])
                self._places.append(-1)
        has_value = any(view.cells[chosen * view.columns : (chosen + 1) * view.columns])
        alone = frame.snapshot is not None and len(frame.snapshot.ranks) < 2
        note = self._pointed_cell(view, room) or in_words(view, view.rows[chosen], has_value=has_value, alone=alone)
        return [
            heading(title, frame, width, signs),
            *lines,
            *axes(view, self._left, room)[: below - 1],
            fit_line([(" " + cut_sentence(note, width - 1), "text")], width),
        ]

    def _pointed_cell(self, view: HeatView, room: int) -> str:
        """Return a description of the mark under the mouse; "" if there is none."""
        if self.pointed is None or not 0 < self.pointed[1] <= len(self._places):
            return ""
        place, shown = self._places[self.pointed[1] - 1], min(view.columns, room)
        x = self.pointed[0] - self._left
        if place < 0 or not 0 <= x < shown:
            return ""
        column = view.columns - shown + x
        return cell_in_words(view, view.rows[place], column, view.cells[place * view.columns + column])

    def _place(self, view: HeatView) -> int:
        """Return the index of the row under the cursor."""
        for place, row in enumerate(view.rows):
            if self.chosen is not None and (row.ranks[0] <= self.chosen <= row.ranks[1]):
                return place
        shares = [row.hot_share for row in view.rows]
        return shares.index(max(shares))

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        view = self._view(self.frame.snapshot)
        if view is None or not view.rows:
            return
        self.chosen = view.rows[moved(self._place(view), len(view.rows), by, to)].worst
        self.redraw()

    def page(self, direction: int) -> None:
        self.move(direction * max(1, self.room[1] - 4))

    def chosen_rank(self) -> int | None:
        """Return the worst rank of the row under the cursor."""
        view = self._view(self.frame.snapshot)
        return view.rows[self._place(view)].worst if view is not None and view.rows else None

    def choose(self, rank: int) -> None:
        self.chosen = rank
        self.redraw()

    async def on_click(self, event: events.Click) -> None:
        """Choose the clicked row; a second click inspects its worst rank."""
        view = self._view(self.frame.snapshot)
        if view is not None and 0 < event.y <= len(self._places) and self._places[event.y - 1] >= 0:
            self.move(to=self._places[event.y - 1])
            if event.chain == 2:
                await self.run_action("app.inspect")
