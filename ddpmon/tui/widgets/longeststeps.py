"""The longest steps of the run, and what was long in each: where to look."""

from __future__ import annotations

from ddpmon import numbers
from ddpmon.messages import TimelineView
from ddpmon.tui.blocks import Block
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, plain, title, under_cursor
from ddpmon.tui.widgets.pane import BlockPane

_LEAST_WIDTH, _MOST = 41, 12


def longest_steps(view: TimelineView, width: int, height: int) -> list[Line]:
    """A line a step, the longest first; the one that is shown is marked."""
    shown = view.steps[0].step if len(view.steps) == 1 else 0
    lines: list[Line] = []
    for each in view.longest[:height]:
        line: Line = [
            (f" {numbers.count(each.step):>7} {numbers.ms(each.length_ms):>6} ms", "text"),
            (f"  rank {each.rank}", "text"),
        ]
        if each.over_ms > 0:
            line.append((f" +{numbers.ms(each.over_ms)} {plain(each.phase)}", "muted"))
        lines.append(under_cursor(line, width) if each.step == shown else line)
    return lines


class LongestSteps(BlockPane):
    """The longest steps as a block of a screen."""

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        begun = frame.snapshot is not None and frame.snapshot.step > 0
        return Block(_LEAST_WIDTH, 4, _LEAST_WIDTH + 15, 1 + _MOST) if begun else None

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        view = None if frame.snapshot is None else frame.snapshot.timeline
        legend: Line = [(" v ", "key"), ("shows one ", "muted")]
        if view is None or not view.longest:
            return [
                title("the longest steps ", width, legend),
                [(" coming…" if view is None else " none yet", "muted")],
            ]
        since = f" since step {numbers.count(view.longest_since)}" if view.longest_since > 2 else ""
        return [title(f"the longest steps{since} ", width, legend), *longest_steps(view, width, height - 1)]
