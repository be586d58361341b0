"""Every run of this user, the latest first."""

from __future__ import annotations

import time

from textual import events

from ddpmon.tui import numbers
from ddpmon.tui.allruns import Listed
from ddpmon.tui.frame import LOOKS, Frame, Look
from ddpmon.tui.lines import Line, cut, fit, plain, size, title
from ddpmon.tui.widgets.pane import Pane

_WITH_ID = 120
"""Columns from which the ids are shown."""
_OTHER_LOOKS = {"stopping": Look("■", "STOPPING", "warn")}


def _age(seconds: float) -> str:
    return f"{numbers.duration(seconds)} ago"


def run_line(listed: Listed, now: float, width: int, *, shown: bool, under: str) -> Line:
    """One run: whether it is the one on the other screens, state, name, ranks, age, how long, command."""
    run = listed.run
    look = _OTHER_LOOKS.get(listed.state) or LOOKS.get(listed.state) or Look("●", listed.state.upper(), "text")
    took = numbers.NONE if listed.state == "lost" else numbers.duration((run.ended_at or now) - run.created_at)
    line: Line = [
        ("›" if shown else " ", "info" + under),
        (f" {look.glyph} {look.word:<9}", look.role + under),
        (f" {cut(plain(run.name), 20):<20}", "strong" + under),
        (f" {run.world_size or '?':>5}", "text" + under),
        (f" {_age(now - run.created_at):>11}", "text" + under),
        (f" {took:>7}", "text" + under),
    ]
    if width >= _WITH_ID:
        line.append((f"  {plain(run.id):<20}", "muted" + under))
    command = plain(" ".join([run.script, *run.script_args]))
    line.append(("  " + cut(command, max(0, width - size(line) - 2)), "muted" + under))
    return fit(line, width, "text" + under)


class RunList(Pane):
    """The runs with a cursor, which stays on its run."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.listed: list[Listed] = []
        self.chosen: str | None = None
        """Id of the run under the cursor."""
        self._top = 0

    def chosen_run(self) -> Listed | None:
        """The run under the cursor; the latest before it was moved."""
        return next((each for each in self.listed if each.run.id == self.chosen), next(iter(self.listed), None))

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        going = sum(each.runs for each in self.listed)
        heading = title(f"runs, the latest first: {len(self.listed):,}, {going} running", width)
        if not self.listed:
            return [heading, [(" none yet; ddpmon run --nproc 4 SCRIPT starts one", "muted")]]
        header = f"   {'state':<9}  {'name':<20} ranks {'started':>11} {'took':>7}"
        header += f"  {'id':<20}  command" if width >= _WITH_ID else "  command"
        room = max(1, height - 2)
        self._top = max(0, min(self._top, len(self.listed) - room))
        now = time.time()
        chosen = self.chosen_run()
        watched = "" if frame.snapshot is None else frame.snapshot.run.id
        return [heading, [(header, "muted")], *(
            run_line(
                each, now, width, shown=each.run.id == watched, under="+select" if each is chosen else ""
            )
            for each in self.listed[self._top : self._top + room]
        )]  # fmt: skip

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        """Move the cursor by so many lines, or to a line (negative: from the end)."""
        chosen = self.chosen_run()
        if chosen is None:
            return
        place = self.listed.index(chosen) + (by or 0) if to is None else to % len(self.listed)
        place = max(0, min(place, len(self.listed) - 1))
        self.chosen = self.listed[place].run.id
        room = max(1, self.size.height - 2)
        self._top = max(place - room + 1, min(self._top, place))
        self.redraw()

    def page(self, direction: int) -> None:
        """Move the cursor by a screenful."""
        self.move(direction * max(1, self.size.height - 3))

    def on_click(self, event: events.Click) -> None:
        """Choose the run that was clicked."""
        place = self._top + event.y - 2
        if event.y >= 2 and place < len(self.listed):
            self.chosen = self.listed[place].run.id
            self.redraw()
