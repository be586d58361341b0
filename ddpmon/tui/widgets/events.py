"""The events of a run, newest first."""

from __future__ import annotations

from ddpmon import numbers
from ddpmon.messages import Event
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, plain, title, wrap
from ddpmon.tui.widgets.pane import Pane

_MARKS = {"info": ("●", "muted"), "warn": ("▲", "warn"), "critical": ("✖", "bad")}
_INDENT = 12
"""Columns of margin, time, mark and the spaces between them."""


def event_lines(happened: list[Event], notes: list[str], width: int) -> list[Line]:
    """Title and events, then what could not be measured; long ones go on in the next line."""
    lines = [title("events", width)]
    for event in sorted(happened, key=lambda event: event.at, reverse=True):
        mark, role = _MARKS.get(event.severity, _MARKS["info"])
        rows = wrap(plain(event.text), width - _INDENT)
        lines.append([(f" {numbers.clock(event.at)} ", "muted"), (f"{mark} ", role), (rows[0], "text")])
        lines += [[(" " * _INDENT + row, "text")] for row in rows[1:]]
    for note in notes:
        rows = wrap(plain(note), width - 3)
        lines.append([(" ○ ", "muted"), (rows[0], "muted")])
        lines += [[("   " + row, "muted")] for row in rows[1:]]
    return lines


class EventList(Pane):
    """The events of the run."""

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        snapshot = frame.snapshot
        if snapshot is None:
            return [title("events", width), [(" nothing yet", "muted")]]
        return event_lines(snapshot.events, snapshot.notes, width)[:height]
