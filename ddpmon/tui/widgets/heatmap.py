"""Ranks through time, one column for one or several steps: since when, and how regularly.

The newest column moves from left to right and begins again at the left, over the oldest: what is old stays where it
was, so that few cells are sent to the terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.cells import cell_len
from textual import events

from ddpmon import numbers
from ddpmon.analysis.over_time.fold import fold
from ddpmon.messages import (
    HEAT_JUDGED,
    HEAT_METRICS,
    HEAT_MOST,
    HEAT_STEPS,
    NOTABLE,
    OWN_PHASES,
    HeatRow,
    HeatView,
    HeatWish,
    Snapshot,
    Wish,
)
from ddpmon.messages.cells import LEAST, MOST
from ddpmon.tui.blocks import Block
from ddpmon.tui.charted import Offered
from ddpmon.tui.filters import spans
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, cut_sentence, fit, joined, padded, size, under_cursor
from ddpmon.tui.rank_marks import GRADES
from ddpmon.tui.widgets.blockpane import BlockPane
from ddpmon.tui.widgets.course import LEVELS
from ddpmon.tui.widgets.heading import NO_RANK, Granted, heading
from ddpmon.tui.widgets.worldmap import arriving, everyone, short_host

TITLES = {
    "own": "own time over peers",
    **{phase: f"{phase} over peers" for phase in OWN_PHASES},
    "wait": "wait, share of step",
    "step": "step over its median",
    "loss": "loss",
    "gpu": "GPU utilization",
}
BEYOND_CHANCE = {**{metric: f"{metric} beyond chance" for metric in HEAT_JUDGED}, "own": "own time beyond chance"}
_JUDGED = (("·", "ok"), ("▁", "text"), *((glyph, role) for _, glyph, role in reversed(GRADES)))
"""Marks of what chance explains, and of what exceeds it, by each of HEAT_LEVELS."""
_IDLE = ((0.75, "█", "bad"), (0.50, "▆", "warn"), (0.25, "▃", "text"))
"""Marks of a GPU that does nothing for at least so much of its time."""
_WORDS = {
    "own": f"{NOTABLE:.0%}+ over peers",
    **{phase: f"{phase} {NOTABLE:.0%}+ over peers" for phase in OWN_PHASES},
    "wait": "half of the step",
    "gpu": "under 50% busy",
}
"""What the values of a row are called; else the step is over its median."""
_ROLES = {"wait": "comm", "loss": "info"}
TALLEST = 3
"""Lines that a row takes where there are few."""
_BELOW = 2
"""Lines below the rows: where now is, and the row under the cursor in words."""
_LEFT = 4
"""Columns that the labels and the mark of now take at least."""
PHASES_OF = 64
"""Ranks up to which the hub judges every phase of all of them for one screen."""
PHASES_LEFT = 20
"""Columns of the labels where phases of ranks stand below."""
_LEAST_WIDTH = 140
"""Columns beside which there is a place for them."""
_SCALE = MOST - LEAST
"""Cells between that of the lowest value and that of the highest."""
_Cell = tuple[str, str]


def cell_glyphs(view: HeatView) -> list[_Cell]:
    """(glyph, role) of each value that a cell may have."""
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
    """What the glyphs of a metric stand for. wide: also what needs no legend to be guessed."""
    if view.beyond_chance:
        of = " of own" if view.metric in OWN_PHASES else ""
        return [("· chance  " * wide + "▁ <5%  ▃ 5%  ▆ 10%  █ 15%+" + of * wide, "muted")]
    if view.metric == "wait":
        return [("▁ 0%  ▄ half  █ all of it", "muted")]
    if view.metric == "loss":
        return [(f"▁ {numbers.loss(view.low)}  █ {numbers.loss(view.high)}  ✖ not finite", "muted")]
    if view.metric == "gpu":
        return [("· busy  ▃ <75%  ▆ <50%  █ <25%", "muted")]
    return [(f"· <5%{' of own' * (view.metric in OWN_PHASES)}  ▃ 5%  ▆ 10%  █ 15%+", "muted")]


def labels(rows: list[HeatRow], width: int, *, meant: bool = False) -> list[str]:
    """Host and ranks of each row; the host only where it changes. meant: add how many of folded ranks stand out."""
    hosts, before = [], ""
    for row in rows:
        first, last = (short_host(host) or numbers.NONE for host in row.hosts)
        host = first if first == last else f"{first}-{last}"
        hosts.append("" if host == before else host)
        before = host
    ranks = [_span(row) for row in rows]
    most = max((row.count for row in rows), default=1)
    if meant and most > 1:
        room = len(f"{most}/{most}")  # always, so that no column moves when one comes to be meant
        few = [f"{row.meant}/{row.count}" if row.meant and row.count > 1 else "" for row in rows]
        ranks = [f"{each} {share:>{room}}" for each, share in zip(ranks, few, strict=True)]
    right = max(map(len, ranks), default=1)
    left = min(max(map(cell_len, hosts), default=0), max(0, width - right - 1))
    return [f"{padded(host, left, left=True)} {each:>{right}}" for host, each in zip(hosts, ranks, strict=True)]


def _span(row: HeatRow) -> str:
    """The ranks of a row: 0-7, or 0…7 where not all of these are in it."""
    first, last = row.ranks
    whole = row.count == last - first + 1
    return str(first) if row.count == 1 else f"{first}{'-' if whole else '…'}{last}"


def hosts_end(rows: Sequence[HeatRow]) -> set[int]:
    """The places of rows after which another host begins; none where rows are hosts themselves, or several."""
    ends, place = set(), 0
    for _, group in groupby(rows, key=lambda row: row.hosts):
        place += len(list(group))
        ends.add(place - 1)
    return ends - {len(rows) - 1} if len(ends) < len(rows) else set()


def sweep(view: HeatView, place: int, width: int, glyphs: list[_Cell]) -> Line:
    """A row in `width` columns, of which one marks where the newest ends and the oldest begins."""
    newest = view.first + view.columns - 1
    cells = view.cells[place * view.columns : (place + 1) * view.columns]
    shown: list[_Cell] = []
    for column in range(width):
        back = (newest - column) % width
        at = view.columns - 1 - back
        shown.append(("│", "rule") if back == width - 1 else glyphs[cells[at]] if at >= 0 else (" ", "text"))
    return joined(shown)


def in_words(view: HeatView, row: HeatRow, *, has_value: bool = True) -> str:
    """A row in words: whose it is, how often it is hot, since when. has_value: any cell has one."""
    host = short_host(row.hosts[0]) or "no host"
    who = f"rank {row.worst} on {host}" if row.count == 1 else f"rank {row.worst}, worst of {_span(row)}"
    if row.count > 1 and row.meant:
        among = " alone" if row.meant == 1 else f", worst of {row.meant}"
        who = f"rank {row.worst}{among} of {row.count} ({_span(row)})"
    if not has_value:
        return f"{who}: nothing known"
    if view.metric == "loss":
        return who
    over = "beyond chance" if view.beyond_chance else _WORDS.get(view.metric, "5%+ over the median")
    if not row.hot_share:
        return f"{who}: never {over}{' by itself' * (view.beyond_chance and view.metric != 'step')}"
    if row.hot_share == 1:
        return f"{who}: {over} in every column"  # since when is not to be seen here
    since = "" if row.hot_since is None else f", since step {numbers.count(row.hot_since)}"
    return f"{who}: {over} in {numbers.percent(row.hot_share)} of columns{since}"


def _below(rows: int, height: int) -> int:
    """Lines below so many rows. Where these fit only so, the one of where now is goes: each row marks it."""
    return _BELOW - (rows == height - _BELOW)


class HeatMap(BlockPane):
    """The heat map with its cursor."""

    def __init__(self) -> None:
        super().__init__()
        self.metric, self.steps = HEAT_METRICS[0], HEAT_STEPS[0]
        self.beyond_chance = True
        """What exceeds chance; else by fixed percentages."""
        self.by_host = False
        """A row for each host."""
        self.chosen: int | None = None
        """A rank in the row under the cursor; None: the worst row."""
        self._granted = Granted()
        self._places: list[int] = []
        """Of each line below the title, the row that it is of; -1: of none."""

    @property
    def metrics(self) -> list[str]:
        """Metrics that can be shown: phases that are measured, GPU utilization where a rank has it."""
        ranks = [] if self.frame.snapshot is None else self.frame.snapshot.ranks
        gpu = any(rank.gpu is not None and rank.gpu.percent is not None for rank in ranks)
        without = {name for rank in ranks for name in rank.unmeasured} | ({"gpu"} if not gpu else set())
        return [metric for metric in HEAT_METRICS if metric not in without]

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        """All ranks, each as high as leaves the larger part of the screen for their phases.

        Folded where they do not fit, so that what folding leaves is theirs too.
        """
        ranks = [] if frame.snapshot is None else everyone(frame.snapshot)
        hosts = len({rank.host for rank in ranks if rank.host})
        rows = max(1, hosts if self.by_host else len(ranks))
        rules = 0 if self.by_host else max(0, hosts - 1)
        most = max(1, height - 1 - _below(rows, height))
        if most < rows <= PHASES_OF and not self.by_host:
            rows, rules = len(fold([rank.host for rank in ranks], most)), 0
        tall = max(1, min(TALLEST, height // (3 * rows)))
        return Block(_LEAST_WIDTH, 4, height=1 + _BELOW + rows * tall + rules)

    def lines_in_sight(self) -> list[int | None]:
        """The worst rank of the row on each line below the title."""
        view = self._view(self.frame.snapshot)
        rows = [] if view is None else view.rows
        return [rows[place].worst if 0 <= place < len(rows) else None for place in self._places]

    @property
    def wish(self) -> Wish:
        """What it needs to fill its place."""
        return Wish(heat=self.heat_wish)

    @property
    def heat_wish(self) -> HeatWish:
        """The same, as the hub is told of it."""
        width, height = self.room
        ranks = [] if self.frame.snapshot is None else everyone(self.frame.snapshot)
        wanted = spans(self.frame.filter, ranks)
        listed = sum(self.frame.filter is None or self.frame.filter.lets(rank) for rank in ranks)
        rows, columns = height - 1 - _below(listed, height), width - _LEFT
        if self.by_host:
            rows = min(rows, len({rank.host for rank in ranks if rank.host}))
        rows, columns = (max(1, min(HEAT_MOST, each)) for each in (rows, columns))
        return HeatWish(self.metric, self.steps, rows, columns, wanted, self.beyond_chance)

    def next_metric(self) -> None:
        """The next metric that there is."""
        metrics = self.metrics
        place = metrics.index(self.metric) if self.metric in metrics else 0
        self.metric = metrics[(place + 1) % len(metrics)]

    @property
    def offered(self) -> Offered:
        """What can be shown."""
        return Offered("heat", [(metric, TITLES[metric]) for metric in self.metrics], self.metric, self._show_metric)

    def _show_metric(self, metric: str) -> None:
        self.metric = metric

    def next_window(self) -> None:
        """More steps in a column; after the most, one again."""
        self.steps = HEAT_STEPS[(HEAT_STEPS.index(self.steps) + 1) % len(HEAT_STEPS)]

    def next_scale(self) -> None:
        """What exceeds chance, or fixed percentages."""
        self.beyond_chance = not self.beyond_chance

    def fold(self) -> None:
        """A row for each host, or for each rank."""
        self.by_host = not self.by_host
        self.redraw()

    def _view(self, snapshot: Snapshot | None) -> HeatView | None:
        """The map in the snapshot, if it is the one that this pane asked for."""
        heat = None if snapshot is None or not self._granted.fits(self.frame) else snapshot.heat
        return heat if heat is not None and (heat.metric, heat.steps) == (self.metric, self.steps) else None

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        view = self._view(frame.snapshot)
        a_column = f"{self.steps} step{'s' * (self.steps > 1)}/column"
        judged = self.beyond_chance if view is None else view.beyond_chance
        titles = TITLES | BEYOND_CHANCE if judged else TITLES
        title = f"heat{' by host' * self.by_host}: {titles[self.metric]}, {a_column}"
        if view is None or not view.rows or height < 4:
            early = frame.snapshot is None or arriving(frame.snapshot)
            note = "no step yet" if early else frame.why_absent
            none = frame.filter is not None and view is not None and not view.rows
            return [heading(title, frame, width), NO_RANK if none else [(f" {note}", "muted")]]
        names = labels(view.rows, width * 2 // 5, meant=view.beyond_chance)
        if self.followed:  # the same columns stand below one another
            names = [f"{' ' * (PHASES_LEFT - 2 - cell_len(name))}{name}" for name in names]
        room = width - len(names[0]) - 2
        first = max(1, (view.first + max(0, view.columns - room + 1)) * view.steps)
        signs = legend(view, wide=len(title) + size(legend(view, wide=True)) + 4 <= width)
        span = f", steps {numbers.count(first)}-{numbers.count(view.last_step)} "
        if len(title) + len(span) + size(signs) + 4 <= width and frame.filter is None:
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
            row = sweep(view, place, room, glyphs)
            name, blank = f" {names[place]} ", " " * (len(names[0]) + 2)
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
        note = in_words(view, view.rows[chosen], has_value=has_value)
        return [
            heading(title, frame, width, signs),
            *lines,
            *[self._now(view, len(names[0]) + 2, room)] * (below == _BELOW),
            fit([(" " + cut_sentence(note, width - 1), "text")], width),
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
        note = f"step {numbers.count(view.last_step)}"
        if column + 2 + len(note) <= left + room:
            return [(" " * column + f"▴ {note}", "muted")]
        return [(" " * (column - len(note) - 1) + f"{note} ▴", "muted")]

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
        self.move(direction * max(1, self.room[1] - 4))

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
        if view is not None and 0 < event.y <= len(self._places) and self._places[event.y - 1] >= 0:
            self.move(to=self._places[event.y - 1])
