"""Ranks through time, one column for one or several steps: since when, and how regularly.

The newest column moves from left to right and begins again at the left, over the oldest: what is old stays where it
was, so that few cells are sent to the terminal.
"""

from __future__ import annotations

from textual import events

from ddpmon.messages import HEAT_METRICS, HEAT_MOST, HEAT_STEPS, HeatRow, HeatView, HeatWish, Snapshot
from ddpmon.tui import numbers
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, cut, cut_sentence, fit, size, title
from ddpmon.tui.standing import GRADES
from ddpmon.tui.widgets.pane import Pane
from ddpmon.tui.widgets.worldmap import arriving, short_host

TITLES = {
    "own": "own time over median",
    "wait": "wait, share of step",
    "step": "step over its median",
    "loss": "loss",
}
_EIGHTHS = "▁▂▃▄▅▆▇█"
_ROLES = {"wait": "comm", "loss": "info"}
_TALLEST = 3
"""Lines that a rank takes where there are few."""
_BELOW = 2
"""Lines below the rows: where now is, and the row under the cursor in words."""
_LEFT = 4
"""Columns that the labels and the mark of now take at least."""
_SCALE = 253
"""Cells from 1 to 254 stand for the whole scale."""
_Cell = tuple[str, str]


def cell_looks(view: HeatView) -> list[_Cell]:
    """(glyph, role) of each value that a cell may have."""
    looks: list[_Cell] = [(" ", "text")]
    for code in range(_SCALE + 1):
        share = code / _SCALE
        if view.metric in _ROLES:
            looks.append((_EIGHTHS[min(7, int(share * 8))], _ROLES[view.metric]))
        else:
            over = view.low + share * (view.high - view.low)
            looks.append(next(((glyph, role) for least, glyph, role in GRADES if over >= least), ("·", "ok")))
    return [*looks, ("✖", "bad")]


def legend(view: HeatView) -> Line:
    """What the glyphs of a metric stand for."""
    if view.metric == "wait":
        return [("▁ 0%  ▄ half  █ all of it", "muted")]
    if view.metric == "loss":
        return [(f"▁ {numbers.loss(view.low)}  █ {numbers.loss(view.high)}  ✖ not finite", "muted")]
    return [("· <5%  ▃ 5%  ▆ 10%  █ 15%+", "muted")]


def labels(rows: list[HeatRow], width: int) -> list[str]:
    """Host and ranks of each row; the host only where it changes."""
    hosts, before = [], ""
    for row in rows:
        first, last = (short_host(host) or numbers.NONE for host in row.hosts)
        host = first if first == last else f"{first}-{last}"
        hosts.append("" if host == before else host)
        before = host
    ranks = [str(row.ranks[0]) if row.count == 1 else f"{row.ranks[0]}-{row.ranks[1]}" for row in rows]
    right = max(map(len, ranks), default=1)
    left = min(max(map(len, hosts), default=0), max(0, width - right - 1))
    return [f"{cut(host, left):<{left}} {each:>{right}}" for host, each in zip(hosts, ranks, strict=True)]


def sweep(view: HeatView, place: int, width: int, looks: list[_Cell]) -> Line:
    """A row in `width` columns, of which one marks where the newest ends and the oldest begins."""
    newest = view.first + view.columns - 1
    cells = view.cells[place * view.columns : (place + 1) * view.columns]
    line: Line = []
    for column in range(width):
        back = (newest - column) % width
        if back == width - 1:
            glyph, role = "│", "rule"
        else:
            at = view.columns - 1 - back
            glyph, role = looks[cells[at]] if at >= 0 else (" ", "text")
        if line and line[-1][1] == role:
            line[-1] = (line[-1][0] + glyph, role)
        else:
            line.append((glyph, role))
    return line


def in_words(view: HeatView, row: HeatRow) -> str:
    """What a row says: whose it is, how often, since when."""
    host = short_host(row.hosts[0]) or "no host"
    if row.count == 1:
        who = f"rank {row.worst} on {host}"
    else:
        who = f"rank {row.worst}, worst of {row.ranks[0]}-{row.ranks[1]}"
    if view.metric == "loss":
        return who
    over = "half of the step" if view.metric == "wait" else "5%+ over the median"
    if not row.hot_share:
        return f"{who}: never {over}"
    since = "" if row.hot_since is None else f", since step {numbers.count(row.hot_since)}"
    return f"{who}: {over} in {numbers.percent(row.hot_share)} of columns{since}"


class HeatMap(Pane):
    """The heat map with its cursor."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.metric, self.steps = HEAT_METRICS[0], HEAT_STEPS[0]
        self.chosen: int | None = None
        """A rank in the row under the cursor; None: the worst row."""
        self._tall = 1

    @property
    def wish(self) -> HeatWish:
        """What it needs to fill its place."""
        width, height = self.size
        rows, columns = height - 1 - _BELOW, width - _LEFT
        return HeatWish(self.metric, self.steps, max(1, min(HEAT_MOST, rows)), max(1, min(HEAT_MOST, columns)))

    def _view(self, snapshot: Snapshot | None) -> HeatView | None:
        """What there is to show, if it is what was asked for."""
        heat = None if snapshot is None else snapshot.heat
        return heat if heat is not None and (heat.metric, heat.steps) == (self.metric, self.steps) else None

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        view = self._view(frame.snapshot)
        a_column = f"{self.steps} step{'s' * (self.steps > 1)}/column"
        heading = f"heat: {TITLES[self.metric]}, {a_column}"
        if view is None or not view.rows or height < 4:
            early = frame.snapshot is None or arriving(frame.snapshot)
            said = "no step yet" if early else "coming…" if frame.behind_s is None else "not kept; space goes on"
            return [title(heading, width), [(f" {said}", "muted")]]
        names = labels(view.rows, width // 3)
        room = width - len(names[0]) - 2
        first = max(1, (view.first + max(0, view.columns - room + 1)) * view.steps)
        signs = legend(view)
        span = f", steps {numbers.count(first)}-{numbers.count(view.last_step)} "
        if len(heading) + len(span) + size(signs) + 4 <= width:
            heading += span
        self._tall = max(1, min(_TALLEST, (height - 1 - _BELOW) // len(view.rows)))
        looks, chosen = cell_looks(view), self._place(view)
        lines = [title(heading, width, signs)]
        for place in range(min(len(view.rows), height - 1 - _BELOW)):
            row = sweep(view, place, room, looks)
            under = "+select" if place == chosen else ""
            for line in range(self._tall):
                name = names[place] if line == self._tall // 2 else " " * len(names[0])
                lines.append([(f" {name} ", "text" + under), *row])
        return [
            *lines,
            self._now(view, len(names[0]) + 2, room),
            fit([(" " + cut_sentence(in_words(view, view.rows[chosen]), width - 1), "text")], width),
        ]

    def span(self, before: list[Line], after: list[Line], width: int) -> tuple[int, int]:
        """Only what differs: mostly the newest columns and the mark beside them."""
        if not before or not after or any(size(line) != sum(len(text) for text, _ in line) for line in before + after):
            return 0, width
        cells = [[(glyph, role) for text, role in line for glyph in text] for line in (before[0], after[0])]
        old, new = ([*row, *[(" ", "text")] * (width - len(row))][:width] for row in cells)
        places = [i for i in range(width) if old[i] != new[i]]
        return (places[0], places[-1] + 1) if places else (0, width)

    def _now(self, view: HeatView, left: int, room: int) -> Line:
        """Under the newest column: its step."""
        column = left + (view.first + view.columns - 1) % room
        said = f"step {numbers.count(view.last_step)}"
        if column + 2 + len(said) <= left + room:
            return [(" " * column + f"▴ {said}", "muted")]
        return [(" " * (column - len(said) - 1) + f"{said} ▴", "muted")]

    def _place(self, view: HeatView) -> int:
        """The row under the cursor."""
        for place, row in enumerate(view.rows):
            if self.chosen is not None and (row.ranks[0] <= self.chosen <= row.ranks[1]):
                return place
        shares = [row.hot_share for row in view.rows]
        return shares.index(max(shares))

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        """Move the cursor by so many rows, or to a row (negative: from the end)."""
        view = self._view(self.frame.snapshot)
        if view is None or not view.rows:
            return
        place = to % len(view.rows) if to is not None else self._place(view) + (by or 0)
        self.chosen = view.rows[max(0, min(place, len(view.rows) - 1))].worst
        self.redraw()

    def page(self, direction: int) -> None:
        """Move the cursor by a screenful."""
        self.move(direction * max(1, self.size.height - 4))

    def chosen_rank(self) -> int | None:
        """The worst rank of the row under the cursor."""
        view = self._view(self.frame.snapshot)
        return view.rows[self._place(view)].worst if view is not None and view.rows else None

    def choose(self, rank: int) -> None:
        """Put the cursor on a rank."""
        self.chosen = rank
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        """Choose the row that was clicked."""
        view = self._view(self.frame.snapshot)
        if view is not None and 0 < event.y <= len(view.rows) * self._tall:
            self.move(to=(event.y - 1) // self._tall)
