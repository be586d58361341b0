"""The list of this user's runs, the latest first, with details of the run under the cursor."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual import events

from ddpmon import numbers
from ddpmon.analysis.verdict import beside_state
from ddpmon.redaction import redact_variables
from ddpmon.source.run_list import Listed, ListedVerdict
from ddpmon.tui.frame import BADGES, Badge, Frame
from ddpmon.tui.lines import (
    Line,
    cut_sentence,
    cut_text,
    fit_line,
    line_width,
    pad_text,
    pane_title,
    plain_text,
    under_cursor,
    wrap_text,
)
from ddpmon.tui.palette import Palette
from ddpmon.tui.widgets.pane import Pane
from ddpmon.tui.widgets.scrolling import moved, top_with

_READ_AGAIN_S = 2.0
_WITH_TOOK, _WITH_ID = 100, 140
"""Width in columns from which on a run's duration is shown, and width from which on its id and command are shown."""
_ABOUT_LINES, _WITH_ABOUT = 4, 13
"""Number of lines with details of the run under the cursor, and least height of the pane to show them."""
_NO_END = {"lost", "unknown"}
"""States in which the duration of a run is not known."""


def _badge(listed: Listed) -> Badge:
    return BADGES.get(listed.state) or Badge("●", listed.state.upper(), "text")


def _command(listed: Listed) -> str:
    return plain_text(" ".join([listed.run.script, *listed.run.script_args]))


def _took(listed: Listed, now: float) -> str:
    run = listed.run
    return numbers.NONE if listed.state in _NO_END else numbers.duration((run.ended_at or now) - run.created_at)


def _name_width(width: int) -> int:
    return 16 if width < _WITH_TOOK else 24


def header(width: int) -> str:
    """Return the names of the columns."""
    line = f"   {'state':<9}  {'name':<{_name_width(width)}} ranks     age"
    if width >= _WITH_TOOK:
        line += "    took"
    line += "  verdict"
    if width >= _WITH_ID:
        line += " " * (_verdict_end(width) - len(line)) + f"  {'id':<20}  command"
    return line


def _verdict_end(width: int) -> int:
    """Return the screen column after the verdict's last column."""
    return width if width < _WITH_ID else width - max(54, width * 2 // 5)


WATCHED = "◉"
"""Marks the run that all screens show."""


def run_line(listed: Listed, verdict: ListedVerdict, now: float, width: int, *, mark: str) -> Line:
    """Return the line of one run: mark, state, name, ranks, age and verdict; if wide, also duration, id and command."""
    run, badge = listed.run, _badge(listed)
    line: Line = [
        (mark, ("key" if mark == "A" else "info")),
        (f" {badge.glyph} {badge.word:<9}", badge.role),
        (" " + pad_text(plain_text(run.name), _name_width(width), left=True), "strong"),
        (f" {run.world_size or '?':>5}", "text"),
        (f" {numbers.duration(now - run.created_at):>7}", "text"),
    ]
    if width >= _WITH_TOOK:
        line.append((f" {_took(listed, now):>7}", "text"))
    verdict_text = cut_sentence(
        plain_text(verdict.brief) or numbers.NONE, max(1, _verdict_end(width) - line_width(line) - 2)
    )
    line.append(("  " + verdict_text, ("text" if verdict.sentence else "muted")))
    if width >= _WITH_ID:
        line = fit_line(line, _verdict_end(width), "text")
        line.append((f"  {plain_text(run.id):<20}", "muted"))
        line.append(("  " + cut_text(_command(listed), max(0, width - line_width(line) - 2)), "muted"))
    return fit_line(line, width, "text")


def about(listed: Listed, verdict: str, now: float, width: int) -> list[Line]:
    """Return details of one run, in `_ABOUT_LINES` lines."""
    run, badge = listed.run, _badge(listed)
    facts = [f"{run.world_size} rank{'s' if run.world_size != 1 else ''}" if run.world_size else "unknown ranks"]
    if run.nnodes > 1:
        facts[0] += f" on {run.nnodes} nodes"
    facts += [] if listed.state in _NO_END else [f"{'took' if run.ended else 'up'} {_took(listed, now)}"]
    facts += [f"exit code {run.shell_code}"] if run.shell_code is not None else []
    facts.append(f"id {plain_text(run.id)}")
    nothing = f"{badge.word.lower()}; {'it left no report' if run.ended else 'enter watches it'}"
    rows = wrap_text(
        plain_text(verdict or (listed.run.elsewhere() if listed.state in _NO_END else "") or nothing), width - 2
    )
    if len(rows) > 2:
        rows = [rows[0], cut_sentence(" ".join(rows[1:]), width - 2)]
    variables = " ".join(f"{name}={value}" for name, value in redact_variables(run.environment).items())
    command = plain_text(f"{variables} {_command(listed)}".strip())
    folder = f"   in {plain_text(run.cwd)}"
    room = max(0, width - 3 - len(folder))
    return [
        pane_title(f"{plain_text(run.name)}   {', '.join(facts)}", width),
        *([(" " + row, "text" if verdict else "muted")] for row in rows),
        [(" " + (cut_text(command, room) + folder if room > 20 else cut_text(command, width - 2)), "muted")],
    ]


class RunList(Pane):
    """The list of runs with a cursor, which stays on its run."""

    def __init__(self, read: Callable[[], list[Listed]], verdict: Callable[[Listed], ListedVerdict]) -> None:
        """Make the list. read: function that returns all current runs. verdict: function that returns the verdict of an
        ended run.
        """
        super().__init__()
        self._read = read
        self._read_at: float | None = None
        self.listed: list[Listed] = []
        self.chosen: str | None = None
        """Id of the run under the cursor."""
        self.marked: str | None = None
        """Id of the run with which another one will be compared."""
        self._verdict = verdict
        self._top = 0

    def show(self, frame: Frame, palette: Palette) -> None:
        now = time.monotonic()
        if self._read_at is None or now - self._read_at >= _READ_AGAIN_S or not self.listed:
            self._read_at = now
            self.listed = self._read()
        super().show(frame, palette)

    def read_again(self) -> None:
        """Read the runs again at the next frame, because this dashboard changed one of them."""
        self._read_at = None

    def chosen_run(self) -> Listed | None:
        """Return the run under the cursor; before the cursor was moved, the latest run."""
        runs = (each for each in self.listed if each.pid is None)
        return self.of(self.chosen) or next(runs, None) or next(iter(self.listed), None)

    def of(self, run_id: str | None) -> Listed | None:
        """Return the listed run with this id."""
        return next((each for each in self.listed if each.run.id == run_id), None)

    def list_lines(self, height: int) -> int:
        """Return how many runs fit into `height` lines."""
        return max(1, height - 2 - (_ABOUT_LINES if height >= _WITH_ABOUT else 0))

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        going = sum(each.runs for each in self.listed)
        unwatched = sum(each.pid is not None for each in self.listed)
        marked = self.of(self.marked)
        heading = f"runs, the latest first: {len(self.listed) - unwatched:,}, {going} running"
        heading += f"; {unwatched} unwatched" if unwatched else ""
        if marked is not None:
            heading += f"   A: {plain_text(marked.run.name)}, c compares"
        if not self.listed:
            return [
                pane_title(heading, width),
                [(" there is no run yet; ddpmon run --nproc 4 SCRIPT starts one", "muted")],
            ]
        room = self.list_lines(height)
        self._top = max(0, min(self._top, len(self.listed) - room))
        now = time.time()
        chosen = self.chosen_run()
        watched = None if frame.snapshot is None else frame.snapshot.run

        def verdict_of(each: Listed) -> ListedVerdict:
            reported, snapshot = self._verdict(each), frame.snapshot
            if reported.sentence or snapshot is None or watched is None or each.run.id != watched.id:
                return reported
            if each.run.ended and not frame.ended:  # a replay is at an earlier moment
                return reported
            brief = beside_state(snapshot.verdict, snapshot.state, snapshot.findings, snapshot.step)
            return ListedVerdict(snapshot.verdict, brief)

        lines = [pane_title(heading, width), [(header(width), "muted")]]
        for each in self.listed[self._top : self._top + room]:
            shown = watched is not None and each.run.id == watched.id
            mark = "A" if each is marked else WATCHED if shown else " "
            line = run_line(each, verdict_of(each), now, width, mark=mark)
            lines.append(under_cursor(line, width) if each is chosen else line)
        if height >= _WITH_ABOUT and chosen is not None:
            lines += [[]] * (height - _ABOUT_LINES - len(lines))
            lines += about(chosen, verdict_of(chosen).sentence, now, width)
        return lines

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        chosen = self.chosen_run()
        if chosen is None:
            return
        place = moved(self.listed.index(chosen), len(self.listed), by, to)
        self.chosen = self.listed[place].run.id
        self._top = top_with(place, self._top, self.list_lines(self.size.height))
        self.redraw()

    def page(self, direction: int) -> None:
        self.move(direction * max(1, self.list_lines(self.size.height) - 1))

    async def on_click(self, event: events.Click) -> None:
        """Choose the clicked run; a second click watches it."""
        place = self._top + event.y - 2
        if 2 <= event.y < 2 + self.list_lines(self.size.height) and place < len(self.listed):
            self.chosen = self.listed[place].run.id
            self.redraw()
            if event.chain == 2:
                await self.run_action("app.open")
