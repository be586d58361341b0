"""Shows the ranks' output, newest at the bottom."""

from __future__ import annotations

from dataclasses import replace

from ddpmon.analysis.words import named_ranks
from ddpmon.messages import PrintedWish, Wish
from ddpmon.runs.logs import LAUNCHER, FoldedLine, Log, who
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, cut, size, wrap
from ddpmon.tui.widgets.heading import NO_RANK, heading
from ddpmon.tui.widgets.pane import Actions
from ddpmon.tui.widgets.scrolling import ScrollingPane
from ddpmon.tui.widgets.worldmap import short_host

_MOST_ROWS = 6
"""Most rows of one entry on the screen."""


def entry_lines(entry: FoldedLine, label: int, width: int, world_size: int) -> list[Line]:
    """One entry: who printed it (stderr with a ! before it), and the text, in as many rows as it needs."""
    room = max(8, width - label - 4)
    name = cut(who(entry.ranks, world_size), label)
    error = entry.stream == "err"
    indent = len(entry.text) - len(entry.text.lstrip())
    rows = wrap(entry.text, room - indent) if size([(entry.text, "")]) > room > indent + 8 else [entry.text.lstrip()]
    if len(rows) > _MOST_ROWS:
        rows = [*rows[: _MOST_ROWS - 1], "…"]
    return [
        [(f" {name if place == 0 else '':>{label}} ", "muted"), ("! " if error else "  ", "warn"),
         (cut(" " * indent + row, room), "text")]
        for place, row in enumerate(rows)
    ]  # fmt: skip


class LogList(ScrollingPane):
    """The log, following its end until it is scrolled; of all ranks or of one."""

    def __init__(self) -> None:
        super().__init__()
        self.printed: Log | None = None
        self.rank: int | None = None
        """Only what this rank printed."""
        self._filtered = ""
        """The filter that `_end` counts in."""
        self._end: int | None = None
        """Entries above the bottom of the screen, counted from the first there ever was; None: all, and follow."""

    @property
    def actions(self) -> Actions:
        return {"step": self.step}

    def _entries(self) -> tuple[int, list[FoldedLine]]:
        """(how many there were before the first, entries that are listed)."""
        if self.printed is None:
            return 0, []
        before = self.printed.total - len(self.printed.entries)
        if self.rank is not None:
            return 0, [entry for entry in self.printed.entries if self.rank in entry.ranks]
        filtered = self._filtered_ranks()
        if filtered is None:
            return before, self.printed.entries
        fitting = [(entry, entry.ranks & filtered) for entry in self.printed.entries]
        return 0, [replace(entry, ranks=ranks) for entry, ranks in fitting if ranks]

    def _filtered_ranks(self) -> set[int] | None:
        """The ranks that the filter lets through; None: no filter."""
        if self.frame.filter is None or self.frame.snapshot is None:
            return None
        return {rank.rank for rank in self.frame.listed}

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        if self._filtered != (frame.filter.text if frame.filter else ""):
            self._filtered, self._end = frame.filter.text if frame.filter else "", None
        before, entries = self._entries()
        end = len(entries) if self._end is None else max(0, min(len(entries), self._end - before))
        every = "all ranks" if frame.filter is None else "some ranks"
        output_of = every if self.rank is None else "the launcher" if self.rank == LAUNCHER else f"rank {self.rank}"
        if host := self._other_machine(frame):
            output_of += f" on {short_host(host)}"
        if self._end is not None:
            how = f"{len(entries) - end:,} more below, G goes to the end"
        else:  # a log has no times: beside a recording that plays it stands whole
            how = "following" if frame.cursor is None else "of the whole run"
        whole = frame if self.rank is None else replace(frame, filter=None)
        titled = heading(f"output of {output_of}, {how} ", whole, width, [("! stderr ", "muted")])
        room = height - 1
        if not entries and self.rank is None and self._filtered_ranks() == set():
            return [titled, NO_RANK]
        if elsewhere := self._printed_elsewhere(frame):
            titled_lines, room = [titled, [(cut(f" {elsewhere}", width), "muted")]], room - 1
        else:
            titled_lines = [titled]
        if not entries:
            fetched = frame.snapshot.printed if frame.snapshot is not None else None
            if fetched is not None and fetched.rank == self.rank and fetched.why:
                return [*titled_lines, [(f" {fetched.why}", "muted")]]
            empty_text = "nothing printed yet" if frame.snapshot is None or not frame.ended else "nothing was printed"
            return [*titled_lines, [(f" {empty_text}", "muted")]]
        world_size = 0 if frame.snapshot is None else frame.snapshot.run.world_size
        label = 9 if width < 100 else 14
        rows: list[Line] = []
        for entry in reversed(entries[:end]):
            rows = [*entry_lines(entry, label, width, world_size), *rows]
            if len(rows) >= room:
                break
        return [*titled_lines, *rows[max(0, len(rows) - room) :]]

    def _printed_elsewhere(self, frame: Frame) -> str:
        """Return where the output of the other machines' ranks is: it stays there, so none of it is in these logs."""
        if frame.snapshot is None:
            return ""
        hosts = self._elsewhere(frame)
        if not hosts or self.rank is not None:
            return ""
        first, *others = hosts
        whose = named_ranks(hosts[first], frame.snapshot.run.world_size)
        more = f", and {len(others)} more machine{'s' * (len(others) > 1)} likewise" if others else ""
        fetched = "" if frame.ended else "; ] fetches each rank's"
        return f"{whose} print{'s' * (len(hosts[first]) == 1)} on {first}: ddpmon logs {first}:{more}{fetched}"

    def _elsewhere(self, frame: Frame) -> dict[str, list[int]]:
        """Other machines with their ranks, where some print here and others there."""
        if frame.snapshot is None or self.printed is None:
            return {}
        printing = {rank for entry in self.printed.entries for rank in entry.ranks} - self.printed.elsewhere
        hosts: dict[str, list[int]] = {}
        for rank in frame.ranks:
            hosts.setdefault(rank.host, []).append(rank.rank)
        others = {host: ranks for host, ranks in hosts.items() if not printing.intersection(ranks)}
        return others if len(others) < len(hosts) else {}

    def _other_machine(self, frame: Frame) -> str:
        """The one that the rank prints on whose output is shown; "" where all of it is here."""
        if self.rank is None:
            return ""
        return next((host for host, ranks in self._elsewhere(frame).items() if self.rank in ranks), "")

    @property
    def wish(self) -> Wish:
        """The output of a rank of another machine, while that is what is shown."""
        if self.rank is None or not self._other_machine(self.frame):
            return Wish()
        return Wish(printed=PrintedWish(self.rank))

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        """Scroll by so many entries, to the first (0) or to the end, which is followed from then on."""
        before, entries = self._entries()
        last = before + len(entries)
        if to is not None:
            self._end = min(last, before + max(1, self.size.height - 1)) if to >= 0 else None
        else:
            at = (last if self._end is None else self._end) + (by or 0)
            self._end = None if at >= last else max(at, before + 1)
        self.redraw()

    def step(self, by: int) -> None:
        """Another rank's output: all, then each that printed something, the launcher among them unless one filters."""
        entries = [] if self.printed is None else self.printed.entries
        printing = {rank for entry in entries for rank in entry.ranks}
        if not self.frame.ended:  # else nobody is there to be asked for it
            printing.update(*self._elsewhere(self.frame).values())
        filtered = self._filtered_ranks()
        ranks: list[int | None] = [None, *sorted(printing if filtered is None else printing & filtered)]
        place = ranks.index(self.rank) if self.rank in ranks else 0
        self.rank, self._end = ranks[(place + by) % len(ranks)], None
        self.redraw()

    def of(self, rank: int | None) -> None:
        """Show the output of this rank."""
        self.rank, self._end = rank, None
