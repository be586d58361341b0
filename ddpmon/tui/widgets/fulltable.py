"""The full rank table: every column that some rank has a value for, sorted by any of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from rich.cells import cell_len

from ddpmon import numbers
from ddpmon.messages import QUANTITIES, Course, RankView, Snapshot, StripsWish, Wish, further
from ddpmon.messages.quantities import MS
from ddpmon.tui import rank_marks
from ddpmon.tui.blocks import Block
from ddpmon.tui.filters import runs_of
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, fit, padded, plain, under_cursor
from ddpmon.tui.units import cell
from ddpmon.tui.widgets.columns import HEALTH_WORDS, decimals, exit_text, how_far
from ddpmon.tui.widgets.course import cell as cell_glyph
from ddpmon.tui.widgets.inspection import usual_steps
from ddpmon.tui.widgets.pane import Actions
from ddpmon.tui.widgets.ranktable import RankTable
from ddpmon.tui.widgets.worldmap import everyone, short_host

Value = float | str | None


@dataclass(frozen=True)
class TableField:
    """One column: what it is sorted by, and how that is written."""

    head: str
    width: int
    """With a space in front, and one for the arrow of the sorted column."""
    value: Callable[[RankView], Value]
    text: Callable[[float, int], str] = numbers.aligned_ms
    """Takes the value and the number of decimals that milliseconds have."""
    role: str = "text"
    up: bool = False
    """Sorted from the smallest first."""
    left: bool = False
    accused: bool = False
    """Takes the marker's colour in a marked row."""

    def cell(self, rank: RankView, digits: int) -> str:
        """The value in this column's width."""
        value = self.value(rank)
        if value is None or isinstance(value, str):
            return self.place(value or numbers.NONE)
        return self.place(self.text(value, digits))

    def place(self, text: str) -> str:
        """Text in this column's width."""
        return " " + padded(text, self.width - 1, left=self.left)


def _measured(name: str, width: int, *, role: str = "text", up: bool = False, accused: bool = False) -> TableField:
    """The column of one of QUANTITIES."""
    row = QUANTITIES[name]
    if row.unit == MS and name != "gc":
        return TableField(row.heading, width, row.get, role=role, up=up, accused=accused)
    text = cell(row.unit)
    return TableField(row.heading, width, row.get, lambda value, _: text(value), role, up, accused=accused)


def _whole(value: float, _: int) -> str:
    return f"{value:.0f}"


_MACHINE = {
    "samples": 11, "tokens": 10, "cpu": 7, "starved": 9, "rss": 9, "gpu": 7, "gpu_memory": 9, "gpu_power": 7,
    "gpu_temperature": 6, "gpu_clock": 7, "gc": 8, "major_faults": 10, "read": 8, "written": 9, "threads": 9,
}  # fmt: skip
"""Widths."""
FIELDS = (
    TableField("rank", 6, lambda rank: float(rank.rank), _whole, up=True, accused=True),
    TableField("host", 14, lambda rank: short_host(rank.host) or None, role="muted", up=True, left=True),
    TableField("exit", 9, lambda rank: exit_text(rank) or None, accused=True),
    _measured("own", 9, accused=True),
    _measured("over", 9, accused=True),
    _measured("wait", 8, role="comm", up=True),
    _measured("data", 8),
    _measured("forward", 9),
    _measured("backward", 10),
    _measured("optimizer", 11),
    _measured("other", 8),
    _measured("transfer", 10, role="comm"),
    _measured("step", 9),
    _measured("late", 9),
    _measured("critical", 7),
    _measured("loss", 9),
    TableField("device", 8, lambda rank: plain(rank.device) if rank.health != "missing" else None, up=True, left=True),
    *(_measured(name, width) for name, width in _MACHINE.items()),
    *(_measured(row.name, max(8, len(row.heading) + 2)) for row in further(_MACHINE)),
    TableField("steps", 9, lambda rank: float(rank.steps) if rank.steps else None, lambda v, _: numbers.count(int(v))),
    TableField("pid", 9, lambda rank: float(rank.pid) if rank.pid else None, _whole, up=True),
    TableField("state", 15, lambda rank: HEALTH_WORDS.get(rank.health, plain(rank.health)), left=True, accused=True),
    TableField("stage", 23, how_far, left=True),
)
_STRIP_FROM, _STRIP_LEAST, _STRIP_MOST = 117, 29, 56
"""Columns of the table from which on own time through time stands in it, and those that it takes."""
_LEAST_BESIDE = 98
"""Columns of the table beside which there is a place for more of one rank."""
HOST = next(place for place, field in enumerate(FIELDS) if field.head == "host")
OWN = next(place for place, field in enumerate(FIELDS) if field.head == "own ms")


def filled_fields(ranks: list[RankView]) -> list[int]:
    """Places in FIELDS of the columns that some rank has a value for."""
    return [place for place, field in enumerate(FIELDS) if any(field.value(rank) is not None for rank in ranks)]


def own_strip(course: Course | None, width: int) -> str:
    """Own time through time as blocks, the newest on the right."""
    if course is None:
        return numbers.NONE
    return "".join(cell_glyph(value) for value in course.cells[-width:]).rjust(width)


def ordered(ranks: list[RankView], by: int, *, backwards: bool) -> list[RankView]:
    """Ranks by one column; those without the value last, equal ones by rank. By own time, trouble comes first."""
    field = FIELDS[by]
    having = [rank for rank in ranks if field.value(rank) is not None]
    without = [rank for rank in ranks if field.value(rank) is None]
    having.sort(key=lambda rank: _comparable(field.value(rank)), reverse=field.up == backwards)
    in_order = having + without
    if by == OWN and not backwards:
        in_order.sort(key=lambda rank: -grade if (grade := rank_marks.grade(rank)[0]) >= 8 else 0)
    return in_order


def _comparable(value: Value) -> tuple[float, str]:
    if isinstance(value, str):
        return 0.0, value
    return (math.inf if value is None or math.isnan(value) else value), ""


class FullTable(RankTable):
    """All ranks, all columns. The column of ranks stays where it is; the others can be moved sideways."""

    def __init__(self) -> None:
        super().__init__()
        self._listed: tuple[Snapshot, tuple[object, ...], list[RankView]] | None = None
        """Last list, as several blocks of a screen ask for it in each frame: its snapshot, and its parameters."""
        self._by = OWN
        self._backwards = False
        self._first = 0
        """Columns that are out of sight on the left."""
        self._shown: list[int] = []
        self._hidden = 0
        """Columns out of sight on the right."""

    @property
    def actions(self) -> Actions:
        return {"sort": self.cycle_sort, "reverse": self.reverse, "pan": self.pan}

    def listed(self, snapshot: Snapshot) -> list[RankView]:
        asked = self._by, self._backwards, self.frame.filter
        if self._listed is None or self._listed[0] is not snapshot or self._listed[1] != asked:
            ranks = ordered(self.kept(everyone(snapshot)), self._by, backwards=self._backwards)
            self._listed = snapshot, asked, ranks
        return self._listed[2]

    def heading(self, snapshot: Snapshot | None, width: int) -> Line:
        way = "smallest" if FIELDS[self._by].up != self._backwards else "largest"
        order = "trouble first, then own time" if self._by == OWN and not self._backwards else (
            f"by {FIELDS[self._by].head}, {way} first"
        )  # fmt: skip
        more = [f"← {self._first}"] if self._first else []
        more += [f"{self._hidden} →"] if self._hidden else []
        legend: Line | None = [(f"more columns: {'  '.join(more)} ", "muted")] if more else None
        return self.title(f"ranks, {order} ", snapshot, width, legend)

    def rows(self, snapshot: Snapshot, ranks: list[RankView], width: int) -> list[Line]:
        strips = self._strips(snapshot) if self._strip_width(width) else {}
        strip_width = self._strip_width(width) if strips else 0
        fields = self._fit(snapshot, width - strip_width)
        digits = decimals(snapshot.ranks)
        named = rank_marks.accused(snapshot)
        header: Line = [(" ", "text")]
        for field in fields:
            sorted_by = field.head == FIELDS[self._by].head
            arrow = ("▴" if field.up != self._backwards else "▾") if sorted_by else ""
            header.append((field.place(field.head + arrow), "title" if sorted_by else "muted"))
        if strip_width:
            header = [*fit(header, width - strip_width), (self._strip_head(snapshot, strip_width), "muted")]
        lines = [header]
        for rank in ranks:
            glyph, alarm = rank_marks.marker(rank, named)
            line: Line = [(glyph, alarm)]
            for field in fields:
                role = alarm if field.accused and glyph != " " else field.role
                line.append((field.cell(rank, digits), role))
            if strip_width:
                strip = own_strip(strips.get(rank.rank), strip_width - 1)
                line = [*fit(line, width - strip_width), (" ", "text")]
                line.append((strip, alarm if glyph != " " else "compute"))
            lines.append(under_cursor(line, width) if rank.rank == self.chosen else line)
        return lines

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        needs = super().needs(frame, width, height)
        return None if needs is None else replace(needs, least_width=_LEAST_BESIDE)

    @staticmethod
    def _strip_width(width: int) -> int:
        """Columns for own time through time; none where they would take the place of numbers that belong together."""
        return 0 if width < _STRIP_FROM else min(_STRIP_MOST, _STRIP_LEAST + (width - _STRIP_FROM) // 4)

    @property
    def wish(self) -> Wish:
        """Own time through time of the ranks in sight."""
        width = self._strip_width(self.room[0] - 1)
        ranks = [rank for rank in self.lines_in_sight() if rank is not None]
        if not width or not ranks or self.frame.snapshot is None or not self.frame.snapshot.step:
            return Wish()
        return Wish(strips=StripsWish(usual_steps(self.frame.snapshot), width - 1, runs_of(ranks)))

    @staticmethod
    def _strips(snapshot: Snapshot) -> dict[int, Course]:
        return {} if snapshot.strips is None else {course.rank: course for course in snapshot.strips.courses}

    @staticmethod
    def _strip_head(snapshot: Snapshot, width: int) -> str:
        """The scale, and how many steps it is of."""
        view = snapshot.strips
        if view is None or not view.courses:
            return ""
        low, high = (numbers.ms(value) for value in (view.courses[0].low, view.courses[0].high))
        steps = min(view.columns * view.steps, view.last_step)
        return padded(f" own {low}–{high} ms, {numbers.count(steps)} steps", width, left=True)

    def _fit(self, snapshot: Snapshot, width: int) -> list[TableField]:
        """The columns in sight; also notes how many are out of it."""
        ranks = everyone(snapshot)
        filled = [place for place in filled_fields(ranks) if place]
        host = replace(FIELDS[HOST], width=min(17, max([7, *(cell_len(short_host(rank.host)) + 2 for rank in ranks)])))
        fields = [host if field is FIELDS[HOST] else field for field in FIELDS]
        room = width - 1 - fields[0].width
        # no further to the right than until the last column is in sight
        last, used = len(filled), 0
        while last and used + fields[filled[last - 1]].width <= room:
            last -= 1
            used += fields[filled[last]].width
        self._first = max(0, min(self._first, last))
        self._shown, used = [], 0
        for place in filled[self._first :]:
            used += fields[place].width
            if used > room:
                break
            self._shown.append(place)
        self._hidden = len(filled) - self._first - len(self._shown)
        return [fields[0], *(fields[place] for place in self._shown)]

    def cycle_sort(self) -> None:
        """Sort by the next column, and bring it into sight."""
        snapshot = self.frame.snapshot
        places = [] if snapshot is None else filled_fields(everyone(snapshot))
        if not places:
            return
        self._by = next((place for place in places if place > self._by), places[0])
        self._backwards = False
        if self._by and self._by not in self._shown:
            self._first = places.index(self._by) - 1
        self._top = 0
        self.redraw()

    def reverse(self) -> None:
        """The same column the other way round."""
        self._backwards = not self._backwards
        self._top = 0
        self.redraw()

    def pan(self, by: int) -> None:
        """Move the columns sideways."""
        self._first += by
        self.redraw()
