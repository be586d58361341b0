"""The timeline: each rank's phases in the last steps, the rank that arrived last, and an estimate of the steps without
late ranks.

This file also contains the list of the run's longest steps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from textual import events

from ddpmon import numbers
from ddpmon.analysis.words import named_ranks
from ddpmon.messages import HEAT_MOST, PHASES, Snapshot, TimelineRequest, TimelineStep, TimelineView, ViewRequest
from ddpmon.tui.blocks import Block
from ddpmon.tui.frame import Frame, arriving, finite_or_none, short_host
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
    with_mark,
)
from ddpmon.tui.widgets.heading import NO_RANK_LINE, GrantedFilter, heading
from ddpmon.tui.widgets.pane import Actions, BlockPane, Pane
from ddpmon.tui.widgets.scrolling import moved, top_with

IN_TIME = (
    ("optimizer", "▒", "muted"),
    ("other", "·", "muted"),
    ("data", "░", "data"),
    ("forward", "─", "compute"),
    ("backward", "━", "compute"),
    ("wait", "╌", "wait"),
    ("transfer", "═", "comm"),
)
"""(phase, glyph, role) in the order of a step. A step begins with the update from the previous gradients."""
LAST_STEP_GLYPH = "◆"
CALM_S, CALM_MANY_S = 0.9, 1.9
"""Seconds for which the bars of a live run stay unchanged. Nobody reads faster, and new bars are many bytes for a
terminal over ssh. The second value applies if the steps fill several bands."""
WIDTHS = (30, 15, 60)
"""Approximate widths of a step, in columns."""
_BELOW = 4
_LABEL = 16
_LEAST_WIDTH = 78
"""Width in columns of the timeline if the mean step and the longest steps are shown to its right."""
_ORDER = tuple(PHASES.index(name) for name, _, _ in IN_TIME)


_SHORT = {"optimizer": "opt", "forward": "fwd", "backward": "bwd", "transfer": "transf"}


def legend(room: int) -> Line:
    """Return the legend of the glyphs, in the longest form that fits into `room` columns, or in the shortest."""
    forms = [
        _legend(names, space, gap) for names, space, gap in (({}, " ", "  "), (_SHORT, " ", "  "), (_SHORT, "", " "))
    ]
    return next((form for form in forms if line_width(form) <= room), forms[-1])


def _legend(names: Mapping[str, str], space: str, gap: str) -> Line:
    entries = [(f"{glyph}{space}{names.get(name, name)}", role) for name, glyph, role in IN_TIME]
    entries.append((f"{LAST_STEP_GLYPH}{space}crit", "warn"))
    return [(f"{gap if place else ''}{text}", role) for place, (text, role) in enumerate(entries)]


def bar(phases_ms: tuple[float, ...], scale: float, width: int, *, last: bool) -> Line:
    """Draw one step of one rank.

    Args:
        phases_ms: Length of each phase in ms, in the order of `PHASES`.
        scale: Columns per millisecond.
        width: Maximum width in columns.
        last: True if the rank arrived last; the bar is then marked.

    """
    line: Line = []
    if len(phases_ms) < len(PHASES):
        return line
    total, filled, arrival = 0.0, 0, 0
    for place, (name, glyph, role) in zip(_ORDER, IN_TIME, strict=True):
        total += max(0.0, finite_or_none(phases_ms[place]) or 0.0)
        end = round(min(width, total * scale))
        if name == "wait":
            arrival = filled
        if end > filled:
            line.append((glyph * (end - filled), role))
            filled = end
    return with_mark(line, arrival - 1, (LAST_STEP_GLYPH, "warn")) if last and arrival else line


def what_if(view: TimelineView) -> str:
    """Return a sentence on the time that the shown steps would take if the late ranks were as fast as the others."""
    if view.mended is None:
        return "no rank is slow for long: fixing one gains nothing"
    real = sum(step.length_ms for step in view.steps)
    mended = sum(step.mended_ms or step.length_ms for step in view.steps)
    if mended <= 0:
        return ""
    steps = f"the {len(view.steps)} steps shown" if len(view.steps) > 1 else "this step"
    took = f"{steps} would take {numbers.ms(mended)} ms instead of {numbers.ms(real)}"
    return f"with {_mended(view)} fixed, {took}"


def _mended(view: TimelineView) -> str:
    """Return the name of the late ranks, or of their host."""
    if view.mended_host or len(view.mended_ranks) < 2:
        return short_host(view.mended_host) or f"rank {view.mended}"
    return named_ranks(view.mended_ranks, 0)


def clocks(snapshot: Snapshot | None) -> str:
    """Return a sentence on how well the hosts' clocks agree, which limits comparisons of their bars; "" if unknown."""
    if snapshot is None or not snapshot.clocks:
        return ""
    within = max(clock.within_ms for clock in snapshot.clocks)
    sure = [clock.surely_ms for clock in snapshot.clocks if clock.surely_ms is not None]
    surely = f", surely within ±{numbers.ms(max(sure))}" if len(sure) == len(snapshot.clocks) else ""
    return f" the hosts' clocks agree within ±{numbers.ms(within)} ms{surely}"


class LastSteps(Pane):
    """The timeline with its cursor."""

    def __init__(self) -> None:
        super().__init__()
        self.width_of_a_step = WIDTHS[0]
        self.place = 0
        """Index of the rank under the cursor, in the order of arrival."""
        self._first = 0
        self.step = 0
        """Number of the shown step, which is one of the run's longest steps; 0 if the last steps are shown."""
        self._granted = GrantedFilter()
        self._filtered = ""
        """The filter of the list of ranks in which `place` is an index."""
        self._stays: tuple[float, TimelineView | None] = 0.0, None
        """Monotonic time since which the current bars are shown, and the view from which they were drawn."""
        self._last_request: tuple[float, TimelineRequest | None] = 0.0, None
        """Monotonic time at which the request last changed, and the request."""

    @property
    def actions(self) -> Actions:
        return {"window": self.next_width, "longest": self.next_longest}

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        return Block(_LEAST_WIDTH, 3)

    @property
    def rows(self) -> int:
        """Return how many ranks fit."""
        return max(1, self.room[1] - 2 - _BELOW)

    @property
    def bands(self) -> int:
        """Return how many bands fit below one another. A band shows all ranks in a part of the steps."""
        ranks = len(self.frame.ranks)
        fit_in = (self.room[1] - 2) // (ranks + 2)
        return fit_in if fit_in > 1 and ranks and not self.step else 1

    @property
    def view_request(self) -> ViewRequest:
        steps = max(1, (self.room[0] - _LABEL) // self.width_of_a_step)
        rank_filter = self.frame.filter
        if self._filtered != ("" if rank_filter is None else rank_filter.text):
            self._filtered = "" if rank_filter is None else rank_filter.text
            self.place = self._first = 0
        columns, rows = min(HEAT_MOST, steps * self.bands), min(HEAT_MOST, self.rows)
        request = TimelineRequest(columns, rows, self._first, self.frame.listed_spans, True, self.step)
        if request != self._last_request[1]:
            self._last_request = time.monotonic(), request
        return ViewRequest(timeline=request)

    def next_width(self) -> None:
        """Show the steps wider or narrower."""
        self.width_of_a_step = WIDTHS[(WIDTHS.index(self.width_of_a_step) + 1) % len(WIDTHS)]

    def next_longest(self, by: int) -> None:
        """Show the next (1) or previous (-1) of the run's longest steps. Beyond both ends of this list, show the latest
        steps.
        """
        timeline = None if self.frame.snapshot is None else self.frame.snapshot.timeline
        places = [0, *(each.step for each in timeline.longest)] if timeline is not None else [0]
        place = places.index(self.step) if self.step in places else 0
        self.step = places[(place + by) % len(places)]

    def _view(self, snapshot: Snapshot | None) -> TimelineView | None:
        timeline = None if snapshot is None or not self._granted.fits(self.frame) else snapshot.timeline
        if timeline is not None:  # a filter may leave fewer ranks than were scrolled past
            self._first = max(0, min(self._first, timeline.ranks - self.rows))
        return self._calmed(timeline) if timeline is not None and timeline.steps and timeline.rows else None

    def _calmed(self, new: TimelineView) -> TimelineView:
        """Return the view that is already shown, unless it is too old, or the request or the late ranks changed."""
        runs_on = self.frame.cursor is None and self.frame.behind_s is None and not self.frame.ended
        now = time.monotonic()
        since, old = self._stays
        calm_s = CALM_MANY_S if self.bands > 1 else CALM_S
        # Answers to the same request have equally many steps and ranks.
        views = [(len(view.steps), len(view.rows), view.mended) for view in (old, new) if view is not None]
        alike = len(views) > 1 and views[0] == views[1]
        if old is None or not (alike and runs_on and now - since < calm_s and now - self._last_request[0] > CALM_S):
            self._stays = since, old = (now if old is not new else since), new
        return old

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        view = self._view(frame.snapshot)
        if view is None or height < 2 + _BELOW:
            early = frame.snapshot is None or arriving(frame.snapshot)
            reason = "no step yet" if early else frame.why_absent
            timeline = None if frame.snapshot is None or not self._granted.fits(frame) else frame.snapshot.timeline
            none = timeline is not None and bool(timeline.steps) and not timeline.ranks
            return [heading("the last steps", frame, width), NO_RANK_LINE if none else [(f" {reason}", "muted")]]
        across = max(1, min(len(view.steps), (width - _LABEL) // self.width_of_a_step))
        shown = range(max(0, len(view.steps) - across * self.bands), len(view.steps))
        heading_text = "the last step" if len(shown) == 1 else f"the last {len(shown)} steps"
        if self.step and [step.step for step in view.steps] == [self.step]:
            heading_text = f"step {numbers.count(self.step)}, one of the longest"
        signs = legend(width - len(heading_text) - 5)
        self.place = max(0, min(self.place, view.ranks - 1))
        each = (width - _LABEL) // across
        longest = max(_length(view.steps[at], "real") for at in shown)
        scale = (each - 1) / longest if longest > 0 else 0.0
        bands = [range(begin, min(shown.stop, begin + across)) for begin in range(shown.start, shown.stop, across)]
        lines: list[Line] = [heading(heading_text, frame, width, signs)]
        air = int(2 * len(view.rows) <= height - 2 - _BELOW and len(bands) == 1)
        for band in bands:
            lines += [self._heads(view, band, each), *self._rows_of(view, band, scale, each, air)]
            lines += [[]] * (len(bands) > 1)
        agreement = clocks(frame.snapshot)
        if len(bands) > 1:
            words = "; ".join(text for text in (what_if(view), agreement.strip()) if text)
            return [*lines[: height - 1], [(" " + cut_sentence(words, width - 1), "text")]]
        caption: Line = [(cut_sentence(agreement, width - 1), "muted")] if agreement else []
        return [*lines[: height - _BELOW], caption, *self._real_and_mended(view, shown, scale, each, width)]

    def _rows_of(self, view: TimelineView, band: range, scale: float, each: int, air: int) -> list[Line]:
        """Draw the steps `band` of every rank, with one line per rank and `air` empty lines below it."""
        lines: list[Line] = []
        for place, row in enumerate(view.rows):
            mark = "▲" if row.rank == view.mended or row.rank in view.mended_ranks else " "
            name = f"{pad_text(short_host(row.host), _LABEL - 9)} {row.rank:>6} "
            line: Line = [(f"{mark}{name}", "warn" if mark != " " else "text")]
            if place + self._first == self.place:
                line = under_cursor(line, _LABEL)
            for at in band:
                last = view.steps[at].critical == row.rank
                line += (
                    fit_line(bar(row.phases_ms[at], scale, each - 1, last=last), each)
                    if at < len(row.phases_ms)
                    else []
                )
            lines += [line, *[[]] * air]
        return lines

    @staticmethod
    def _heads(view: TimelineView, band: range, each: int) -> Line:
        line: Line = [(" " * _LABEL, "text")]
        for step in view.steps[band.start : band.stop]:
            label = f"step {numbers.count(step.step)}  {numbers.ms(step.length_ms)} ms"
            label = label if len(label) < each else f"{numbers.ms(step.length_ms)} ms"
            line.append((f"{cut_text(label, each - 1):<{each}}", "muted"))
        return line

    def _real_and_mended(
        self, view: TimelineView, shown: range, scale: float, each: int, width: int
    ) -> list[Line]:  # fmt: skip
        """Draw the steps as they were, and as they would have been without the late ranks."""
        words: Line = [(" " + cut_sentence(what_if(view), width - 1), "text")]
        if view.mended is None:
            return [words]

        def row(name: str, role: str, which: str) -> Line:
            line: Line = [(f" {cut_text(name, _LABEL - 1):<{_LABEL - 1}}", role)]
            for step in view.steps[shown.start : shown.stop]:
                length = _length(step, which)
                line += fit_line([("━" * max(0, min(each - 1, round(length * scale))), role)], each)
            return line

        name = f"{_mended(view)} fixed"
        if len(name) >= _LABEL and not view.mended_host:
            name = f"{view.mended if len(view.mended_ranks) < 2 else f'{len(view.mended_ranks)} ranks'} fixed"
        return [row("as it was", "warn", "real"), row(name, "ok", "mended"), words]

    def move(self, by: int | None = None, *, to: int | None = None) -> None:
        view = self._view(self.frame.snapshot)
        if view is None:
            return
        self.place = moved(self.place, view.ranks, by, to)
        self._first = top_with(self.place, self._first, self.rows)
        self.redraw()

    def page(self, direction: int) -> None:
        self.move(direction * self.rows)

    def chosen_rank(self) -> int | None:
        view = self._view(self.frame.snapshot)
        place = self.place - self._first
        return view.rows[place].rank if view is not None and 0 <= place < len(view.rows) else None

    def choose(self, rank: int) -> None:
        view = self._view(self.frame.snapshot)
        ranks = [] if view is None else [row.rank for row in view.rows]
        if rank in ranks:
            self.place = self._first + ranks.index(rank)
            self.redraw()

    async def on_click(self, event: events.Click) -> None:
        """Choose the clicked rank; a second click inspects it."""
        view = self._view(self.frame.snapshot)
        if view is None or event.y < 2:
            return
        across = max(1, min(len(view.steps), (self.room[0] - _LABEL) // self.width_of_a_step))
        several = len(view.steps) > across
        air = int(2 * len(view.rows) <= self.room[1] - 2 - _BELOW and not several)
        line = (event.y - 1) % (len(view.rows) + 2) if several else event.y - 1
        place = (line - 1) // (1 + air)
        if 0 <= place < len(view.rows):
            self.move(to=self._first + place)
            if event.chain == 2:
                await self.run_action("app.inspect")


def _length(step: TimelineStep, which: str) -> float:
    return finite_or_none(step.length_ms if which == "real" or step.mended_ms is None else step.mended_ms) or 0.0


_LONGEST_WIDTH, _LONGEST_MOST = 41, 12


def longest_steps(view: TimelineView, width: int, height: int) -> list[Line]:
    """Return one line per step, the longest step first, and mark the shown one."""
    shown = view.steps[0].step if len(view.steps) == 1 else 0
    lines: list[Line] = []
    for each in view.longest[:height]:
        line: Line = [
            (f" {numbers.count(each.step):>7} {numbers.ms(each.length_ms):>6} ms", "text"),
            (f"  rank {each.rank}", "text"),
        ]
        if each.over_ms > 0:
            line.append((f" +{numbers.ms(each.over_ms)} {plain_text(each.phase)}", "muted"))
        lines.append(under_cursor(line, width) if each.step == shown else line)
    return lines


class LongestSteps(BlockPane):
    """The longest steps, as a block of a screen."""

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        begun = frame.snapshot is not None and frame.snapshot.step > 0
        return Block(_LONGEST_WIDTH, 4, _LONGEST_WIDTH + 15, 1 + _LONGEST_MOST) if begun else None

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        view = None if frame.snapshot is None else frame.snapshot.timeline
        legend: Line = [(" v ", "key"), ("shows one ", "muted")]
        if view is None or not view.longest:
            return [
                pane_title("the longest steps ", width, legend),
                [(" coming…" if view is None else " none yet", "muted")],
            ]
        since = f" since step {numbers.count(view.longest_since)}" if view.longest_since > 2 else ""
        return [pane_title(f"the longest steps{since} ", width, legend), *longest_steps(view, width, height - 1)]
