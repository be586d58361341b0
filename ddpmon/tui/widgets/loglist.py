"""Shows the output of the ranks, the newest at the bottom, with the ranks of each line, and highlights matches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from rich.cells import cell_len

from ddpmon.analysis.words import named_ranks
from ddpmon.messages import ViewRequest
from ddpmon.runs.logs import LAUNCHER, FoldedLine, Log, who
from ddpmon.tui.frame import Frame, short_host
from ddpmon.tui.lines import CURSOR, Line, cut_text, join_pieces, pane_title, wrap_text
from ddpmon.tui.search import Search, SearchError
from ddpmon.tui.widgets.heading import NO_RANK_LINE, heading
from ddpmon.tui.widgets.pane import Actions
from ddpmon.tui.widgets.scrolling import ScrollingPane

_MOST_ROWS = 6
"""Maximum number of rows of an entry, unless it is the current match."""
_MOST_OF_LAUNCHER = 5
"""If more lines of the launcher than this number end a log, a view that follows the log stops at the last line of a
rank."""
FOUND = "strong+select"


@dataclass(frozen=True)
class EntryStyle:
    """The form in which all entries of a log are drawn."""

    width: int
    label: int
    """Width of the ranks' names in columns."""
    world_size: int
    search: Search
    wrapped: bool = True
    """True to wrap a long line into several rows, False to cut it."""
    pan: int = 0
    """Number of characters that are scrolled out on the left when lines are cut."""

    @property
    def room(self) -> int:
        """Return the width of the text in columns."""
        return max(8, self.width - self.label - 4)


def entry_lines(entry: FoldedLine, style: EntryStyle, *, chosen: bool = False) -> list[Line]:
    """Return an entry's lines, with its ranks, and a ! if the entry comes from stderr. chosen: True to draw
    the cursor.
    """
    name = cut_text(who(entry.ranks, style.world_size), style.label)
    mark, error = (CURSOR if chosen else " "), "! " if entry.stream == "err" else "  "
    return [
        [(mark if place == 0 else " ", "strong"), (f"{name if place == 0 else '':>{style.label}} ", "muted"),
         (error, "warn"), *found_in_row]
        for place, found_in_row in enumerate(_highlighted(_rows(entry.text, style, whole=chosen), entry.text, style))
    ]  # fmt: skip


def _rows(text: str, style: EntryStyle, *, whole: bool) -> list[str]:
    room = style.room
    if not style.wrapped:
        return [cut_text(text[style.pan :], room)]
    indent = len(text) - len(text.lstrip())
    rows = wrap_text(text, room - indent) if cell_len(text) > room > indent + 8 else [text.lstrip()]
    if len(rows) > _MOST_ROWS and not whole:
        rows = [*rows[: _MOST_ROWS - 1], "…"]
    return [cut_text(" " * indent + row, room) for row in rows]


def _highlighted(rows: Iterable[str], text: str, style: EntryStyle) -> Iterator[Line]:
    """Yield the rows, with the matches of the search in another colour.

    The rows have the same characters as the text, in the same order, because wrapping only changes spaces.
    """
    spans = style.search.match_spans(text)
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
            else:  # a space between two found characters is part of the match
                both = 0 < at < len(solid) and {solid[at - 1], solid[at]} <= found
                roles.append(FOUND if both and row[:column].strip() else "text")
        yield join_pieces(zip(row, roles, strict=True))


class LogList(ScrollingPane):
    """The log of all ranks or of one rank. It shows the newest lines until the user scrolls."""

    def __init__(self) -> None:
        super().__init__()
        self.printed: Log | None = None
        self.rank: int | None = None
        """The rank whose output is shown; None shows all ranks."""
        self._filtered = ""
        """The filter of the list of entries in which `_end` counts."""
        self._end: int | None = None
        """Number of the first entry below the screen, counted from the first printed entry; None while the log follows
        its end."""
        self._of_ranks = True
        """True if following stops at the last line of a rank when many lines of the launcher come after it."""
        self._first = 0
        """Number of the entry at the top of the screen, counted like `_end`."""
        self._room = 1
        """Number of lines for entries."""
        self.search = Search()
        self._at: int | None = None
        """Number of the entry with the current match, counted like `_end`; None if there is none."""
        self.in_sight: list[FoldedLine] = []
        self.found: list[FoldedLine] = []
        """All entries with a match; `in_sight` has the entries on the screen."""
        self._matches: tuple[Search, dict[str, bool]] = self.search, {}
        """Cache of a search: for each line of the last draw, whether it has a match. Printed lines never change."""
        self._trouble = ""
        """Reason why the last search was given up."""
        self.wrapped = True
        self._pan = 0
        """Number of characters that are scrolled out on the left when lines are cut."""

    @property
    def actions(self) -> Actions:
        return {"step": self.step, "follow": self.follow, "wrap": self.wrap, "pan": self.pan}

    def _entries(self) -> tuple[int, list[FoldedLine]]:
        """Return (number of entries before the first listed one, listed entries)."""
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

    def _shown_end(self, before: int, entries: list[FoldedLine]) -> int:
        """Return the number of the first entry below the screen, counted from the first printed entry."""
        last = before + len(entries)
        if self._end is not None:
            return max(before, min(last, self._end))
        after = next((i for i, entry in enumerate(reversed(entries)) if entry.ranks != {LAUNCHER}), 0)
        return last - after if self._of_ranks and after > _MOST_OF_LAUNCHER else last

    def _filtered_ranks(self) -> set[int] | None:
        """Return the ranks that pass the filter; None without a filter."""
        if self.frame.filter is None or self.frame.snapshot is None:
            return None
        return {rank.rank for rank in self.frame.listed_ranks}

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        if self._filtered != (frame.filter.text if frame.filter else ""):
            self._filtered, self._end, self._at = frame.filter.text if frame.filter else "", None, None
        before, entries = self._entries()
        found = self._found(entries)
        self.found = [entries[place] for place in found]
        end = self._shown_end(before, entries) - before
        above = [self._title(frame, width, len(entries) - end, [before + place for place in found])]
        if not entries and self.rank is None and self._filtered_ranks() == set():
            return [*above, NO_RANK_LINE]
        if elsewhere := self._printed_elsewhere(frame):
            above.append([(cut_text(f" {elsewhere}", width), "muted")])
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
        """Return the title, which names the ranks, the state of following, and the search."""
        every = "all ranks" if frame.filter is None else "some ranks"
        output_of = every if self.rank is None else "the launcher" if self.rank == LAUNCHER else f"rank {self.rank}"
        if host := self._other_machine(frame):
            output_of += f" on {short_host(host)}"
        if self._end is not None:
            how = f"held, {below:,} more below" if below else "held"
        else:  # a log has no times, so a replay shows all of it
            how = "following" if frame.cursor is None else "of the whole run"
            how += f", {below:,} launcher line{'s' * (below != 1)} below" if below else ""
        if not self.wrapped:
            how += f", from column {self._pan + 1}" if self._pan else ", lines cut"
        text = f"output of {output_of}, {how} "
        if not self.search.text and not self._trouble:
            whole = frame if self.rank is None else replace(frame, filter=None)
            return heading(text, whole, width, [("! stderr ", "muted")])
        count = f": {f'{len(found):,} lines' if found else 'no match'} "
        if self._at in found:
            count = f": {found.index(self._at) + 1:,} of {len(found):,} "
        searched = self._trouble or cut_text(self.search.text, max(8, width - len(text) - len(count) - 8)) + count
        return pane_title(text, width, [("/ ", "key"), (searched, "warn" if self._trouble else "info")])

    def _why_empty(self, frame: Frame) -> str:
        """Return the message that replaces missing output."""
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
        """Return the indices of the entries with a match. Give up if the search takes too long."""
        if not self.search.text:
            return []
        searched, before = self._matches
        known = before if searched is self.search else {}
        new = [text for text in dict.fromkeys(entry.text for entry in entries) if text not in known]
        try:
            matching = set(self.search.matching_lines(new))
        except SearchError as error:
            self._trouble, self.search = f"{self.search.text} {error} ", Search()
            return []
        known = known | {text: place in matching for place, text in enumerate(new)}
        self._matches = self.search, {entry.text: known[entry.text] for entry in entries}
        return [place for place, entry in enumerate(entries) if known[entry.text]]

    def find(self, search: Search | None) -> None:
        """Search for `search`, and go to the last match; None changes nothing."""
        if search is None:
            return
        self.search, self._at, self._trouble = search, None, ""
        self.next_match(-1)
        self.redraw()

    def next_match(self, by: int) -> str:
        """Go to the next (1) or previous (-1) match; after the last comes the first. Return an error message, or ""."""
        before, entries = self._entries()
        if not self.search.text:
            return "no search is active: / searches, e goes to the last error"
        found = [before + place for place in self._found(entries)]
        if not found:
            self.redraw()
            return "no match in these lines"
        last, end = before + len(entries), self._shown_end(before, entries)
        at = self._at if self._at is not None and self._first <= self._at < end else None
        if by > 0:
            ahead = [place for place in found if (place > at if at is not None else place >= self._first)]
        else:
            ahead = [place for place in reversed(found) if place < (end if at is None else at)]
        self._at = ahead[0] if ahead else found[0 if by > 0 else -1]
        if not self._first <= self._at < end or self._end is None:
            self._end = min(last, max(self._at + 1 + self._room // 3, before + self._room))
        start = self.search.match_spans(entries[self._at - before].text)[0][0]
        self._pan = 0 if self.wrapped or start < self.size.width // 2 else start - self.size.width // 4
        self.redraw()
        return ""

    def _printed_elsewhere(self, frame: Frame) -> str:
        """Return where to find the output of ranks on other machines; "" if all ranks are on this machine."""
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
        """Return the other machines with their ranks, if ranks on this machine print too."""
        if frame.snapshot is None or self.printed is None:
            return {}
        printing = {rank for entry in self.printed.entries for rank in entry.ranks} - self.printed.elsewhere
        hosts: dict[str, list[int]] = {}
        for rank in frame.ranks:
            hosts.setdefault(rank.host, []).append(rank.rank)
        others = {host: ranks for host, ranks in hosts.items() if not printing.intersection(ranks)}
        return others if len(others) < len(hosts) else {}

    def _other_machine(self, frame: Frame) -> str:
        """Return the other machine on which the shown rank prints; "" if the output is on this machine."""
        if self.rank is None:
            return ""
        return next((host for host, ranks in self._elsewhere(frame).items() if self.rank in ranks), "")

    @property
    def view_request(self) -> ViewRequest:
        """Return the request for the output of the shown rank, if the rank is on another machine."""
        if self.rank is None or not self._other_machine(self.frame):
            return ViewRequest()
        return ViewRequest(printed=self.rank)

    # --- keys ---

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        """Scroll by a number of entries, to the first entry (0) or to the end (-1). From the end, the log shows new
        entries as they arrive.
        """
        before, entries = self._entries()
        last = before + len(entries)
        if to is not None:
            self._end = min(last, before + self._room) if to >= 0 else None
        else:
            at = self._shown_end(before, entries) + (by or 0)
            self._end = None if at >= last else max(at, before + 1)
        self._of_ranks = self._of_ranks and self._end is not None
        self.redraw()

    def step(self, by: int) -> None:
        """Show the output of the next (1) or previous (-1) rank that printed something.

        The launcher counts as a rank, unless a filter is set. The entry before the first is all ranks together.
        """
        entries = [] if self.printed is None else self.printed.entries
        printing = {rank for entry in entries for rank in entry.ranks}
        if not self.frame.ended:  # after the run's end nobody can fetch their output
            printing.update(*self._elsewhere(self.frame).values())
        filtered = self._filtered_ranks()
        ranks: list[int | None] = [None, *sorted(printing if filtered is None else printing & filtered)]
        place = ranks.index(self.rank) if self.rank in ranks else 0
        self.of(ranks[(place + by) % len(ranks)])
        self.redraw()

    def follow(self) -> None:
        """Follow the newest output, or stop following it."""
        before, entries = self._entries()
        self._end = self._shown_end(before, entries) if self._end is None else None
        self.redraw()

    def wrap(self) -> None:
        """Switch between wrapping long lines and cutting them."""
        self.wrapped, self._pan = not self.wrapped, 0
        self.redraw()

    def pan(self, by: int) -> None:
        """Scroll cut lines sideways by quarters of the width, at most to the end of the longest visible line."""
        farthest = max((len(entry.text) for entry in self.in_sight), default=0) - self.size.width // 2
        self._pan = 0 if self.wrapped else max(0, min(farthest, self._pan + by * max(8, self.size.width // 4)))
        self.redraw()

    def of(self, rank: int | None) -> None:
        """Show the output of this rank, or of all ranks if `rank` is None."""
        self.rank, self._end, self._at, self._of_ranks = rank, None, None, True
