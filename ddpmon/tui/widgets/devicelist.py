"""The machine of each rank, grouped by host: GPU, cores, memory, disk. In a long list, each host has a single line (it
is folded).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import ClassVar, cast

from ddpmon.messages import RankView, Snapshot
from ddpmon.tui.blocks import Block
from ddpmon.tui.frame import Frame, arriving
from ddpmon.tui.lines import Line, cut_text, line_width, pad_text, under_cursor
from ddpmon.tui.widgets import gauges
from ddpmon.tui.widgets.columns import Sort, how_far, ordered
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
from ddpmon.tui.widgets.ranktable import BY_RANK, Entry, RankTable

_FOLD_FROM = 2
"""Number of screenfuls of ranks from which hosts are folded."""
_WORST = " each host's lowest gpu% and MHz, and its highest value in the other columns"
_WORDS_MOST = 24
_LEAST_WIDTH = 104
"""Width in columns from which a GPU's numbers and its problem fit on one line."""
_WRONG_MOST = 2
"""Largest number of ranks with problems that a folded host lists. If there are more, the host shows the rank with the
worst problem and a count."""


@dataclass(frozen=True)
class MachineEntry(Entry):
    """A line of the list: a rank, a host's heading, or a folded host that represents one of its ranks."""

    machine: Machine
    folded: bool = False


class DeviceList(RankTable):
    """The list of devices, with the cursor of the rank table."""

    orders: ClassVar[tuple[Sort, ...]] = (
        Sort("trouble first", "rank", trouble_first=True),
        Sort("lowest gpu% first", "gpu", backwards=True),
        Sort("most gpu mem first", "gpu_memory"),
        Sort("hottest GPU first", "gpu_temperature"),
        Sort("slowest GPU clock first", "gpu_clock", backwards=True),
        Sort("highest cpu% first", "cpu"),
        Sort("most starved first", "starved"),
        Sort("most mem first", "rss"),
        BY_RANK,
    )

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._fold: bool | None = None
        """True if the user folded the hosts, False if the user unfolded the hosts. None before either: only a long list
        is folded."""
        self._room = 1
        """Number of lines for ranks and hosts that fit if the list has the whole screen."""
        self._trouble_of: Mapping[int, Trouble] = {}
        """The problems of the listed ranks."""
        self._heads: list[tuple[int, str]] = []
        """For each column of the list: the screen column after its heading, and its name."""

    @property
    def actions(self) -> Actions:
        return {**super().actions, "fold": self.fold}

    @property
    def _folded(self) -> bool:
        entries = [] if self.frame.snapshot is None else self.entries(self.frame.snapshot)
        return any(entry.folded for entry in entries)

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        snapshot = frame.snapshot
        if snapshot is None:
            return Block(_LEAST_WIDTH, 2, _LEAST_WIDTH, 2)
        above = 2 + len(self.remarks(snapshot, width, height))
        self._room = max(1, height - above)
        entries = self.entries(snapshot)
        folded = any(entry.folded for entry in entries)
        return Block(_LEAST_WIDTH, 3, _LEAST_WIDTH, above + max(1, len(entries)) + 2 * folded)

    def remarks(self, snapshot: Snapshot, width: int, height: int) -> list[Line]:
        why = why_no_gpu(snapshot)
        hosts = len({rank.host for rank in snapshot.ranks if rank.host})
        above = [_facts(facts(snapshot.ranks, hosts=hosts), width)] if hosts > 1 and height >= 6 else []
        also = [(why, "muted"), (others_on_gpus(snapshot), "text")]
        return above + [[(cut_text(f" {text}", width), role)] for text, role in also if text and height >= 6]

    def parameters(self) -> tuple[object, ...]:
        return *super().parameters(), self._fold, self._room, self.chosen

    def entries(self, snapshot: Snapshot) -> Sequence[MachineEntry]:
        return cast("Sequence[MachineEntry]", super().entries(snapshot))  # `new_entries` made them

    def new_entries(self, snapshot: Snapshot) -> Sequence[MachineEntry]:
        """Return the lines of the list. Below the line of a folded host, its ranks with problems have lines of their
        own.
        """
        trouble_of = self._trouble_of = troubles(snapshot)
        groups = machines(ordered(self.filtered(snapshot), self.sort, partial(worst_first, trouble_of)))
        lines = sum(len(group.ranks) for group in groups) + len(groups)
        folded = lines > _FOLD_FROM * self._room and len(groups) > 1 if self._fold is None else self._fold
        listed: list[MachineEntry] = []
        for group in groups:
            marked = _worst(group, trouble_of) if folded else list(group.ranks)
            unmarked = [rank for rank in group.ranks if rank not in marked] if folded else []
            under = next((rank for rank in unmarked if rank.rank == self.chosen), next(iter(unmarked), None))
            listed.append(MachineEntry(under, group, folded=folded))
            listed += [MachineEntry(rank, group) for rank in marked]
        return listed

    def heading(self, snapshot: Snapshot | None, width: int) -> Line:
        folded = self._folded
        text = f"what are the machines doing{', the worst per host' * folded}, {self.sort.name} "
        return self.title(text, snapshot, width, [("f ", "key"), ("every rank ", "muted")] if folded else None)

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        lines = super().draw(frame, width, height)
        note = frame.snapshot is not None and height - len(lines) >= 2 and self._folded
        return [*lines, [], [(_WORST, "muted")]] if note else lines

    def rows(self, snapshot: Snapshot, entries: Sequence[Entry], width: int) -> list[Line]:
        shown = cast("Sequence[MachineEntry]", entries)
        trouble_of, folded, early = self._trouble_of, self._folded, arriving(snapshot)
        words = [how_far(rank) for rank in snapshot.ranks] if early else []
        most = max(Counter(rank.host for rank in snapshot.ranks if rank.rank in trouble_of).values(), default=0)
        counted = f"{most}: " if folded and most > 1 else ""  # before the words on a host's line
        words += [counted + trouble.words for trouble in trouble_of.values()]
        telling = min(_WORDS_MOST, max(map(len, words), default=0)) + 3 if words else 0
        names = [_name(entry) for entry in shown if entry.folded]
        first = min(24, max([6, *(len(name) + 1 for name in names)]))
        columns = gauges.fit_gauges(snapshot.ranks, width - 1 - first - telling)
        header: Line = [(f" {'host':<{first}}" if folded else f" {'rank':>{first}}", "muted")]
        header += [(column.heading, "muted") for column in columns]
        ends = accumulate((first, *(len(column.heading) for column in columns)), initial=1)
        self._heads = list(zip([*ends][1:], ["rank", *(column.name for column in columns)], strict=True))
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

    def column_at(self, x: int) -> str | None:
        return next((name for end, name in self._heads if x < end), None)

    def fold(self) -> None:
        """Switch between a line per host and a line per rank."""
        self._fold = not self._folded
        if self.chosen is not None:
            self.scroll_to_cursor()
        self.redraw()


def _worst(group: Machine, trouble_of: Mapping[int, Trouble]) -> list[RankView]:
    """Return the ranks of a folded host that get lines of their own. At least one rank is left for the host's line."""
    wrong = [rank for rank in group.ranks if rank.rank in trouble_of]
    if len(wrong) <= min(_WRONG_MOST, len(group.ranks) - 1):
        return wrong
    return sorted(wrong, key=lambda rank: worst_first(trouble_of, rank))[: len(group.ranks) > 1]


def _name(entry: MachineEntry) -> str:
    count = len(entry.machine.ranks)
    return f"{entry.machine.host} ×{count}"


def _facts(texts: list[str], width: int) -> Line:
    """Return a line with as many facts as fit."""
    line: Line = [(" " + texts[0], "strong")]
    for fact in texts[1:]:
        if line_width(line) + len(fact) + 3 <= width:
            line += [(" · ", "rule"), (fact, "text")]
    return line


def _host(machine: Machine, width: int) -> Line:
    name, *rest = _facts([machine.host, *facts(machine.ranks)], width - 4)
    line: Line = [name, *rest, (" ", "rule")]
    return [*line, ("─" * max(0, width - line_width(line)), "rule")]


def _rank(
    entry: MachineEntry,
    trouble_of: Mapping[int, Trouble],
    first: int,
    columns: list[gauges.Gauge],
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
        line += column.cell(rank, trouble.role if column.name in trouble.quantities else "text")
    words = trouble.words or (how_far(rank) if early and rank is not None else "")
    return [*line, (f"  {cut_text(words, _WORDS_MOST)}", trouble.role)]


def _folded(
    entry: MachineEntry, trouble_of: Mapping[int, Trouble], first: int, columns: list[gauges.Gauge]
) -> Line:  # fmt: skip
    ranks = entry.machine.ranks
    worst = max((trouble_of.get(rank.rank, WELL) for rank in ranks), key=lambda trouble: trouble.order)
    wrong = sum(rank.rank in trouble_of for rank in ranks)
    line: Line = [
        (worst.glyph, worst.role),
        (" " + pad_text(_name(entry), first - 1, left=True), "strong"),
    ]
    for column in columns:
        if column.name == "gpu_number":
            line.append((" " * len(column.heading), "text"))
        else:
            line += column.cell(column.worst(ranks), "text")
    return [*line, (f"  {wrong}: {worst.words}" if wrong > _WRONG_MOST else "", worst.role)]
