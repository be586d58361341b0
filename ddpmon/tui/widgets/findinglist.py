"""The list of findings, each with its text, first step, cost so far, evidence and advice; and the list of events."""

from __future__ import annotations

from rich.cells import cell_len

from ddpmon import config, numbers
from ddpmon.analysis import gpu_hours
from ddpmon.analysis.evidence_words import evidence_words
from ddpmon.analysis.words import format_count, lost_time
from ddpmon.messages import END_STATES, Event, Finding, Snapshot
from ddpmon.tui.frame import SEVERITY_ROLES, Frame
from ddpmon.tui.lines import Line, pane_title, paragraph, plain_text, wrap_text
from ddpmon.tui.widgets.pane import Pane
from ddpmon.tui.widgets.scrolling import ScrollingPane

_MARKS = {"info": ("●", "muted"), "warn": ("▲", "warn"), "critical": ("✖", "bad")}
_NOTABLE_HOURS = 0.1
"""Number of GPU hours below which the cost of a finding is shown only in seconds."""


def event_lines(happened: list[Event], notes: list[str], width: int) -> list[Line]:
    """Return title, events, and notes on what could not be measured, with long texts wrapped."""
    lines = [pane_title("events", width)]
    for event in sorted(happened, key=lambda event: event.at, reverse=True):
        mark, role = _MARKS.get(event.severity, _MARKS["info"])
        lines += paragraph(event.text, width, "text", [(f" {numbers.clock(event.at)} ", "muted"), (f"{mark} ", role)])
    return [*lines, *(line for note in notes for line in paragraph(note, width, "muted", [(" ○ ", "muted")]))]


class EventList(Pane):
    """The events of the run."""

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        snapshot = frame.snapshot
        if snapshot is None:
            return [pane_title("events", width), [(" nothing yet", "muted")]]
        return event_lines(snapshot.events, snapshot.notes, width)[:height]


def when_and_cost(finding: Finding, last_step: int, *, ended: bool = False) -> str:
    """Describe a finding's first step, its duration in steps, and its cost; "" if nothing of that is known.

    Args:
        finding: The finding.
        last_step: The run's last step, up to which a lasting finding counts.
        ended: True if the run has ended.

    """
    facts = []
    if finding.since_step is not None:
        end = last_step if finding.until_step is None else finding.until_step
        lasted = format_count(max(0, end - finding.since_step) + 1, "step")
        since = numbers.count(finding.since_step)
        if finding.until_step is None:
            facts.append(f"since step {since}: {lasted}")
        else:
            facts.append(f"from step {since} to {numbers.count(finding.until_step)}: {lasted}, ended")
    if finding.cost_ms is not None:
        facts.append(f"{numbers.ms(finding.cost_ms)} ms a step")
    if finding.cost_s is not None:
        cost = lost_time(finding.cost_s)
        facts.append(f"{cost} so far" if finding.is_lasting and not ended else cost)
    return ", ".join(facts)


def lost_hours(finding: Finding, snapshot: Snapshot) -> str:
    """Describe the cost in GPU hours and their price; "" if it is too small."""
    settings, hours = config.current(), gpu_hours.rank_hours(snapshot, finding.cost_s or 0.0)
    if hours < _NOTABLE_HOURS:
        return ""
    price, currency = settings.get("price.gpu_hour"), settings.get("price.currency")
    return f", {gpu_hours.format_hours(hours, gpu_hours.unit(snapshot.ranks), price, currency)}"


def said_lines(finding: Finding, width: int, *facts: Line) -> list[Line]:
    """Return a finding's text, facts about it, and the advice."""
    role = SEVERITY_ROLES.get(finding.severity, "text")
    mark = " ● " if role == "text" else " ✖ " if finding.explains == "failed" else " ▲ "
    advice = paragraph(f"next: {finding.advice}", width - 1, "strong", [("   ", "strong")]) if finding.advice else []
    return [*paragraph(finding.text, width - 1, role, [(mark, role)]), *facts, *advice]


def finding_lines(finding: Finding, snapshot: Snapshot, width: int, *, evidence: bool) -> list[Line]:
    """Return the lines of one finding, with its evidence if `evidence` is true."""
    when_text = when_and_cost(finding, snapshot.step, ended=snapshot.state in END_STATES)
    when = wrap_text(when_text + lost_hours(finding, snapshot), width - 4)
    facts: list[Line] = [[(f"   {row}", "text")] for row in when if row]
    words = [plain_text(each) for each in evidence_words(finding.evidence)] if evidence else []
    return said_lines(finding, width, *facts, *([(f"   {row}", "muted")] for row in _packed(words, width - 4) if row))


def _packed(words: list[str], width: int) -> list[str]:
    """Join the words of the evidence to rows. A name and its value stay together if both fit into a row."""
    rows: list[str] = []
    for each in words:
        longer = f"{rows[-1]} · {each}" if rows else f"evidence: {each}"
        if cell_len(longer) <= width or not rows:
            rows[-1:] = wrap_text(longer, width)
        else:
            rows += wrap_text(each, width)
    return rows


def findings_height(snapshot: Snapshot, width: int) -> int:
    """Return the number of lines that a title and all findings without evidence take; 0 if there are none."""
    lines = [len(finding_lines(finding, snapshot, width, evidence=False)) + 1 for finding in snapshot.findings]
    return sum(lines)


class FindingList(ScrollingPane):
    """A scrolling list of all findings, the most severe first, and of the run's events."""

    def __init__(self, *, whole: bool = True, id: str | None = None) -> None:
        """Make the list. whole: True to include the evidence of findings, and events."""
        super().__init__(id=id)
        self._whole = whole

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        snapshot = frame.snapshot
        if snapshot is None:
            return [pane_title("what is wrong", width)]
        lines: list[Line] = []
        for finding in snapshot.findings:
            lines += [*([[]] if lines else []), *finding_lines(finding, snapshot, width, evidence=self._whole)]
        if not lines:
            lines = [[(" nothing in the data that ddpmon measured", "muted")]]
        if self._whole and (snapshot.events or snapshot.notes):
            lines += [[], *event_lines(snapshot.events, snapshot.notes, width)]
        heading = pane_title(f"what is wrong: {format_count(len(snapshot.findings), 'finding')}", width)
        return [heading, *self.scrolled(lines, height - 1)]
