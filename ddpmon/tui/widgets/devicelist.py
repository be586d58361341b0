"""Every rank's machine, grouped by host: GPU, cores, memory, disk. Many hosts fold into a line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ddpmon.messages import QUANTITIES, RankView, Snapshot
from ddpmon.tui.blocks import Block
from ddpmon.tui.frame import Frame, finite
from ddpmon.tui.lines import Line, cut, padded, size, under_cursor
from ddpmon.tui.widgets import gauges
from ddpmon.tui.widgets.columns import how_far
from ddpmon.tui.widgets.heading import no_rank
from ddpmon.tui.widgets.machines import (
    WELL,
    Machine,
    Trouble,
    facts,
    machines,
    others_on_gpus,
    troubles,
    why_no_gpu,
    worst_first,
)
from ddpmon.tui.widgets.pane import Actions
from ddpmon.tui.widgets.ranktable import BY_RANK, RankTable, Sort, down
from ddpmon.tui.widgets.worldmap import arriving, everyone

_FOLD_FROM = 2
"""Screenfuls of ranks from which hosts are folded."""
_WORST = " each host's lowest gpu% and MHz, and its highest value in the other columns"
_WORDS_MOST = 24
_LEAST_WIDTH = 104
"""Columns from which a GPU's numbers and what is wrong with it stand beside each other."""
_WRONG_MOST = 2
"""Ranks in trouble that a folded host shows by themselves; of more, it shows the worst and the count."""


@dataclass(frozen=True)
class Entry:
    """A line of the list: a rank, or a host without one under the cursor, or a folded host with one of its ranks."""

    machine: Machine
    rank: RankView | None
    folded: bool = False


def _by(order: str, name: str) -> Sort:
    row = QUANTITIES[name]
    get = row.get
    return Sort(order, (lambda rank: finite(get(rank))) if row.worse == "low" else (lambda rank: down(get(rank))))


class DeviceList(RankTable):
    """The devices, with the cursor of the rank table."""

    orders: ClassVar[tuple[Sort, ...]] = (
        Sort("trouble first", lambda rank: rank.rank, trouble_first=True),
        _by("lowest gpu% first", "gpu"),
        _by("most gpu mem first", "gpu_memory"),
        _by("hottest GPU first", "gpu_temperature"),
        _by("slowest GPU clock first", "gpu_clock"),
        _by("highest cpu% first", "cpu"),
        _by("most starved first", "starved"),
        _by("most mem first", "rss"),
        BY_RANK,
    )

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._fold: bool | None = None
        """None: whatever the room says."""
        self._folded = False
        self._room = 1
        self._above = 0
        """Lines over the list."""
        self._kept: tuple[Snapshot, tuple[object, ...], bool, list[Entry]] | None = None
        """Last list, as several blocks of a screen ask for it in each frame: its snapshot, its parameters, whether
        folded."""
        self._follow = False
        """The cursor moved: it must be in sight."""

    @property
    def actions(self) -> Actions:
        return {"sort": self.cycle_sort, "fold": self.fold}

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        snapshot = frame.snapshot
        if snapshot is None:
            return Block(_LEAST_WIDTH, 2, _LEAST_WIDTH, 2)
        above = 2 + len(self._lines_above(snapshot, width, height))
        self._room = max(1, height - above)
        lines = max(1, len(self.entries(snapshot, troubles(snapshot))))
        return Block(_LEAST_WIDTH, 3, _LEAST_WIDTH, above + lines + 2 * self._folded)

    def lines_in_sight(self) -> list[int | None]:
        snapshot = self.frame.snapshot
        listed = [] if snapshot is None else self.entries(snapshot, troubles(snapshot))
        ranks = [None if each.rank is None else each.rank.rank for each in listed[self._top : self._top + self._room]]
        return [*[None] * (self._above - 1), *ranks]

    @staticmethod
    def _lines_above(snapshot: Snapshot, width: int, height: int) -> list[Line]:
        why = why_no_gpu(snapshot)
        hosts = len({rank.host for rank in snapshot.ranks if rank.host})
        above = [_facts(facts(everyone(snapshot), hosts=hosts), width)] if hosts > 1 and height >= 6 else []
        also = [(why, "muted"), (others_on_gpus(snapshot), "text")]
        return above + [[(cut(f" {text}", width), role)] for text, role in also if text and height >= 6]

    def _groups(self, snapshot: Snapshot, trouble_of: Mapping[int, Trouble]) -> list[Machine]:
        order = self.orders[self.order]

        def key(rank: RankView) -> tuple[int, bool, float, int]:
            value = finite(order.key(rank))
            return worst_first(trouble_of, rank) if order.trouble_first else 0, value is None, value or 0.0, rank.rank

        return machines(sorted(self.kept(everyone(snapshot)), key=key))

    def entries(self, snapshot: Snapshot, trouble_of: Mapping[int, Trouble]) -> list[Entry]:
        """Return what is listed. A folded host shows the ranks that are in trouble by themselves."""
        asked = self.order, self._fold, self._room, self.chosen, self.frame.filter
        if self._kept is None or self._kept[0] is not snapshot or self._kept[1] != asked:
            listed = self._entries(snapshot, trouble_of)
            self._kept = snapshot, asked, self._folded, listed
        self._folded = self._kept[2]
        return self._kept[3]

    def _entries(self, snapshot: Snapshot, trouble_of: Mapping[int, Trouble]) -> list[Entry]:
        groups = self._groups(snapshot, trouble_of)
        lines = sum(len(group.ranks) for group in groups) + len(groups)
        self._folded = lines > _FOLD_FROM * self._room and len(groups) > 1 if self._fold is None else self._fold
        listed: list[Entry] = []
        for group in groups:
            marked = _worst(group, trouble_of) if self._folded else list(group.ranks)
            unmarked = [rank for rank in group.ranks if rank not in marked] if self._folded else []
            under = next((rank for rank in unmarked if rank.rank == self.chosen), next(iter(unmarked), None))
            listed.append(Entry(group, under, folded=self._folded))
            listed += [Entry(group, rank) for rank in marked]
        return listed

    def listed(self, snapshot: Snapshot) -> list[RankView]:
        """Ranks that the cursor can be on."""
        return [entry.rank for entry in self.entries(snapshot, troubles(snapshot)) if entry.rank is not None]

    def heading(self, snapshot: Snapshot | None, width: int) -> Line:
        order = self.orders[self.order].name
        folded = ", the worst per host" if self._folded else ""
        legend: Line | None = [("f ", "key"), ("every rank ", "muted")] if self._folded else None
        return self.title(f"what are the machines doing{folded}, {order} ", snapshot, width, legend)

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        snapshot = frame.snapshot
        if snapshot is None or height < 3:
            return [self.heading(snapshot, width)]
        trouble_of = troubles(snapshot)
        above = self._lines_above(snapshot, width, height)
        self._above = len(above) + 2
        self._room = max(1, height - self._above)
        listed = self.entries(snapshot, trouble_of)
        self._scroll(listed)
        shown = listed[self._top : self._top + self._room]
        header, *lines = self._lines(snapshot, shown, trouble_of, width - 1)
        if len(listed) > self._room:
            lines = self._with_scrollbar(lines, width, len(listed))
        elif self._folded and self._room - len(lines) >= 2:
            lines += [[], [(_WORST, "muted")]]
        if not listed:
            lines.append(no_rank(frame))
        return [self.heading(snapshot, width), *above, header, *lines]

    def _scroll(self, listed: list[Entry]) -> None:
        if self._follow:
            self._follow = False
            place = next((i for i, each in enumerate(listed) if each.rank and each.rank.rank == self.chosen), 0)
            above = place - 1 if place and listed[place - 1].rank is None else place  # its host with it
            self._top = max(place - self._room + 1, min(self._top, above))
        self._top = max(0, min(self._top, len(listed) - self._room))

    def _lines(
        self, snapshot: Snapshot, shown: list[Entry], trouble_of: Mapping[int, Trouble], width: int
    ) -> list[Line]:  # fmt: skip
        early = arriving(snapshot)
        words = [how_far(rank) for rank in snapshot.ranks] if early else []
        most = max(Counter(rank.host for rank in snapshot.ranks if rank.rank in trouble_of).values(), default=0)
        counted = f"{most}: " if self._folded and most > 1 else ""  # before the words on a host's line
        words += [counted + trouble.words for trouble in trouble_of.values()]
        telling = min(_WORDS_MOST, max(map(len, words), default=0)) + 3 if words else 0
        names = [_name(entry) for entry in shown if entry.folded]
        first = min(24, max([6, *(len(name) + 1 for name in names)]))
        columns = gauges.place(snapshot.ranks, width - 1 - first - telling)
        header: Line = [(f" {'host':<{first}}" if self._folded else f" {'rank':>{first}}", "muted")]
        header += [(column.heading, "muted") for column in columns]
        lines = [header]
        for entry in shown:
            if entry.rank is None and not entry.folded:
                lines.append(_host(entry.machine, width))
                continue
            line = _folded(entry, trouble_of, first, columns) if entry.folded else (
                _rank(entry, trouble_of, first, columns, early=early)
            )  # fmt: skip
            chosen = entry.rank is not None and entry.rank.rank == self.chosen
            lines.append(under_cursor(line, width) if chosen else line)
        return lines

    def cycle_sort(self) -> None:
        """The next order that some rank has a value for."""
        ranks = [] if self.frame.snapshot is None else everyone(self.frame.snapshot)
        for step in range(1, len(self.orders) + 1):
            place = (self.order + step) % len(self.orders)
            if any(finite(self.orders[place].key(rank)) is not None for rank in ranks):
                self.order = place
                break
        self._top = 0
        self.redraw()

    def fold(self) -> None:
        """A line per host, or every rank."""
        self._fold = not self._folded
        self._follow = self.chosen is not None
        self.redraw()

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        top = self._top
        super().move(by, to=to)
        self._top, self._follow = top, True
        self.redraw()

    def rank_at(self, snapshot: Snapshot, y: int) -> RankView | None:
        listed = self.entries(snapshot, troubles(snapshot))
        place = self._top + y - self._above
        return listed[place].rank if y >= self._above and place < len(listed) else None


def _worst(group: Machine, trouble_of: Mapping[int, Trouble]) -> list[RankView]:
    """The ranks of a folded host that are shown by themselves; one stays for the host's own line to stand for."""
    wrong = [rank for rank in group.ranks if rank.rank in trouble_of]
    if len(wrong) <= min(_WRONG_MOST, len(group.ranks) - 1):
        return wrong
    return sorted(wrong, key=lambda rank: worst_first(trouble_of, rank))[: len(group.ranks) > 1]


def _name(entry: Entry) -> str:
    count = len(entry.machine.ranks)
    return f"{entry.machine.host} ×{count}"


def _facts(texts: list[str], width: int) -> Line:
    """Return as many facts as fit."""
    line: Line = [(" " + texts[0], "strong")]
    for fact in texts[1:]:
        if size(line) + len(fact) + 3 <= width:
            line += [(" · ", "rule"), (fact, "text")]
    return line


def _host(machine: Machine, width: int) -> Line:
    name, *rest = _facts([machine.host, *facts(machine.ranks)], width - 4)
    line: Line = [name, *rest, (" ", "rule")]
    return [*line, ("─" * max(0, width - size(line)), "rule")]


def _rank(
    entry: Entry,
    trouble_of: Mapping[int, Trouble],
    first: int,
    columns: list[gauges.Placed],
    *,
    early: bool,
) -> Line:
    rank = entry.rank
    trouble = trouble_of.get(rank.rank, WELL) if rank is not None else WELL
    line: Line = [
        (trouble.glyph, trouble.role),
        (f"{rank.rank if rank is not None else '':>{first}}", trouble.role),
    ]
    for column in columns:
        line += column.cell(rank, trouble.role if column.gauge.name in trouble.quantities else "text")
    words = trouble.words or (how_far(rank) if early and rank is not None else "")
    return [*line, (f"  {cut(words, _WORDS_MOST)}", trouble.role)]


def _folded(
    entry: Entry, trouble_of: Mapping[int, Trouble], first: int, columns: list[gauges.Placed]
) -> Line:  # fmt: skip
    ranks = entry.machine.ranks
    worst = max((trouble_of.get(rank.rank, WELL) for rank in ranks), key=lambda trouble: trouble.order)
    wrong = sum(rank.rank in trouble_of for rank in ranks)
    line: Line = [
        (worst.glyph, worst.role),
        (" " + padded(_name(entry), first - 1, left=True), "strong"),
    ]
    for column in columns:
        if column.gauge.names:
            line.append((" " * len(column.heading), "text"))
        else:
            line += column.cell(column.gauge.worst(ranks), "text")
    return [*line, (f"  {wrong}: {worst.words}" if wrong > _WRONG_MOST else "", worst.role)]
