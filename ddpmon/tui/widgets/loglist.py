"""Shows the ranks' output, newest at the bottom: who printed each line, and what a search found in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from rich.cells import cell_len

from ddpmon.analysis.words import named_ranks
from ddpmon.messages import Wish
from ddpmon.runs.logs import LAUNCHER, FoldedLine, Log, who
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import CURSOR, Line, cut, joined, title, wrap
from ddpmon.tui.search import Search, SearchError
from ddpmon.tui.widgets.heading import NO_RANK, heading
from ddpmon.tui.widgets.pane import Actions
from ddpmon.tui.widgets.scrolling import ScrollingPane
from ddpmon.tui.widgets.worldmap import short_host

_MOST_ROWS = 6
"""Most rows of one entry on the screen, unless a search went to it."""
FOUND = "strong+select"


@dataclass(frozen=True)
class EntryStyle:
    """The look of all entries of a log."""

    width: int
    label: int
    """Columns for who printed it."""
    world_size: int
    search: Search
    wrapped: bool = True
    """A long line takes several rows; else it is cut."""
    pan: int = 0
    """Characters left of the screen where lines are cut."""

    @property
    def room(self) -> int:
        """Return the columns for the text."""
        return max(8, self.width - self.label - 4)


def entry_lines(entry: FoldedLine, style: EntryStyle, *, chosen: bool = False) -> list[Line]:
    """One entry: who printed it (stderr with a ! before it), and the text, in as many rows as it needs.

    chosen: the search went to it.
    """
    name = cut(who(entry.ranks, style.world_size), style.label)
    mark, error = (CURSOR if chosen else " "), "! " if entry.stream == "err" else "  "
    return [
        [(mark if place == 0 else " ", "strong"), (f"{name if place == 0 else '':>{style.label}} ", "muted"),
         (error, "warn"), *found_in_row]
        for place, found_in_row in enumerate(_highlighted(_rows(entry.text, style, whole=chosen), entry.text, style))
    ]  # fmt: skip


def _rows(text: str, style: EntryStyle, *, whole: bool) -> list[str]:
    room = style.room
    if not style.wrapped:
        return [cut(text[style.pan :], room)]
    indent = len(text) - len(text.lstrip())
    rows = wrap(text, room - indent) if cell_len(text) > room > indent + 8 else [text.lstrip()]
    if len(rows) > _MOST_ROWS and not whole:
        rows = [*rows[: _MOST_ROWS - 1], "…"]
    return [cut(" " * indent + row, room) for row in rows]


def _highlighted(rows: Iterable[str], text: str, style: EntryStyle) -> Iterator[Line]:
    """The rows, with what the search found in the text in another colour.

    Wrapping changes nothing but spaces: the characters between them are still those of the text, in their order.
    """
    spans = style.search.spans(text)
    if not spans:
        yield from ([(row, "text")] for row in rows)
        return
    found = {place for first, end in spans for place in range(first, end)}
    solid = [place for place, ch in enumerate(text) if not ch.isspace() and (style.wrapped or place >= style.pan)]
    at = 0
    for row in rows:
        roles: list[str] = []
        for column, ch in enumerate(row):
            if not ch.isspace():
                roles.append(FOUND if at < len(solid) and solid[at] in found else "text")
                at += 1
            else:  # between two characters that were found, so was it
                both = 0 < at < len(solid) and {solid[at - 1], solid[at]} <= found
                roles.append(FOUND if both and row[:column].strip() else "text")
        yield joined(zip(row, roles, strict=True))


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
        self._first = 0
        """Entry at the top of the screen, counted in the same way."""
        self._room = 1
        """Lines of the screen for entries."""
        self.search = Search()
        self._at: int | None = None
        """Entry that the search went to, counted in the same way; None: to none."""
        self.in_sight: list[FoldedLine] = []
        self.found: list[FoldedLine] = []
        """Entries on the screen, and all those that the search finds."""
        self._trouble = ""
        """Reason that the last search was given up."""
        self.wrapped = True
        self._pan = 0
        """Characters left of the screen where lines are not wrapped."""

    @property
    def actions(self) -> Actions:
        return {"step": self.step, "follow": self.follow, "wrap": self.wrap, "pan": self.pan}

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
            self._filtered, self._end, self._at = frame.filter.text if frame.filter else "", None, None
        before, entries = self._entries()
        found = self._found(entries)
        self.found = [entries[place] for place in found]
        end = len(entries) if self._end is None else max(0, min(len(entries), self._end - before))
        above = [self._title(frame, width, len(entries) - end, [before + place for place in found])]
        if not entries and self.rank is None and self._filtered_ranks() == set():
            return [*above, NO_RANK]
        if elsewhere := self._printed_elsewhere(frame):
            above.append([(cut(f" {elsewhere}", width), "muted")])
        if not entries:
            return [*above, [(f" {self._why_empty(frame)}", "muted")]]
        world_size = 0 if frame.snapshot is None else frame.snapshot.run.world_size
        style = EntryStyle(width, 9 if width < 100 else 14, world_size, self.search, self.wrapped, self._pan)
        rows: list[Line] = []
        self._room, first = max(1, height - len(above)), end
        while first > 0 and len(rows) < self._room:
            first -= 1
            rows = [*entry_lines(entries[first], style, chosen=before + first == self._at), *rows]
        self._first, self.in_sight = before + first, entries[first:end]
        return [*above, *rows[max(0, len(rows) - self._room) :]]

    def _title(self, frame: Frame, width: int, below: int, found: list[int]) -> Line:
        """The title: whose output it is, whether it is followed, and what is searched for."""
        every = "all ranks" if frame.filter is None else "some ranks"
        output_of = every if self.rank is None else "the launcher" if self.rank == LAUNCHER else f"rank {self.rank}"
        if host := self._other_machine(frame):
            output_of += f" on {short_host(host)}"
        if self._end is not None:
            how = f"held, {below:,} more below" if below else "held"
        else:  # a log has no times: beside a recording that plays it stands whole
            how = "following" if frame.cursor is None else "of the whole run"
        text = f"output of {output_of}, {how} "
        if not self.search.text and not self._trouble:
            whole = frame if self.rank is None else replace(frame, filter=None)
            return heading(text, whole, width, [("! stderr ", "muted")])
        count = f": {f'{len(found):,} lines' if found else 'no match'} "
        if self._at in found:
            count = f": {found.index(self._at) + 1:,} of {len(found):,} "
        searched = self._trouble or cut(self.search.text, max(8, width - len(text) - len(count) - 8)) + count
        return title(text, width, [("/ ", "key"), (searched, "warn" if self._trouble else "info")])

    def _why_empty(self, frame: Frame) -> str:
        """Return what stands for the output where there is none."""
        fetched = frame.snapshot.printed if frame.snapshot is not None else None
        if fetched is not None and fetched.rank == self.rank and fetched.why:
            return fetched.why
        return (
            "the ranks have printed nothing yet"
            if frame.snapshot is None or not frame.ended
            else "the ranks printed nothing"
        )

    # --- search ---

    def _found(self, entries: list[FoldedLine]) -> list[int]:
        """The places of the entries that the search finds; one that takes too long ends."""
        if not self.search.text:
            return []
        try:
            return self.search.places(entry.text for entry in entries)
        except SearchError as error:
            self._trouble, self.search = f"{self.search.text} {error} ", Search()
            return []

    def find(self, search: Search | None) -> None:
        """Search for something else, and go to where it was found last; None: leave it as it was."""
        if search is None:
            return
        self.search, self._at, self._trouble = search, None, ""
        self.next_match(-1)
        self.redraw()

    def next_match(self, by: int) -> str:
        """Go to the next match (1) or the previous one (-1), around the ends; returns why there is none to go to."""
        before, entries = self._entries()
        if not self.search.text:
            return "no search is active: / searches, e goes to the last error"
        found = [before + place for place in self._found(entries)]
        if not found:
            self.redraw()
            return "no match in these lines"
        last = before + len(entries)
        end = last if self._end is None else self._end
        at = self._at if self._at is not None and self._first <= self._at < end else None
        if by > 0:
            ahead = [place for place in found if (place > at if at is not None else place >= self._first)]
        else:
            ahead = [place for place in reversed(found) if place < (end if at is None else at)]
        self._at = ahead[0] if ahead else found[0 if by > 0 else -1]
        if not self._first <= self._at < end or self._end is None:
            self._end = min(last, max(self._at + 1 + self._room // 3, before + self._room))
        start = self.search.spans(entries[self._at - before].text)[0][0]
        self._pan = 0 if self.wrapped or start < self.size.width // 2 else start - self.size.width // 4
        self.redraw()
        return ""

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
        return Wish(printed=self.rank)

    # --- keys ---

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        """Scroll by so many entries, to the first (0) or to the end, which is followed from then on."""
        before, entries = self._entries()
        last = before + len(entries)
        if to is not None:
            self._end = min(last, before + self._room) if to >= 0 else None
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
        self.of(ranks[(place + by) % len(ranks)])
        self.redraw()

    def follow(self) -> None:
        """Follow the newest output, or hold it where it is."""
        before, entries = self._entries()
        self._end = before + len(entries) if self._end is None else None
        self.redraw()

    def wrap(self) -> None:
        """Wrap long lines, or cut them."""
        self.wrapped, self._pan = not self.wrapped, 0
        self.redraw()

    def pan(self, by: int) -> None:
        """Scroll sideways, where lines are cut."""
        self._pan = 0 if self.wrapped else max(0, self._pan + by * max(8, self.size.width // 4))
        self.redraw()

    def of(self, rank: int | None) -> None:
        """Show the output of this rank."""
        self.rank, self._end, self._at = rank, None, None
