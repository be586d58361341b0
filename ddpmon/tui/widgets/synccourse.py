"""What all-reduce costs through time: wait and transfer on one scale, and the efficiencies that follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ddpmon.messages import HEAT_MOST, Course, SyncWish, Wish
from ddpmon.messages.cells import NOTHING
from ddpmon.tui import numbers
from ddpmon.tui.blocks import Block
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, fit, title
from ddpmon.tui.widgets.area import MOMENTS, area, share
from ddpmon.tui.widgets.blockpane import BlockPane
from ddpmon.tui.widgets.inspection import usual_steps

_TIMES = (("wait", "wait"), ("transfer", "comm"))
_EFFICIENCIES = (("parallel", "text"), ("load balance", "text"), ("communication", "text"))
"""Names of courses, and their roles."""
_LABEL = 22
"""Columns of a name and its newest value."""
_BLANK: Line = [(" " * _LABEL, "text")]
_SIDE_BY_SIDE = 110
_TALLEST = 8


class SyncCourse(BlockPane):
    """Times beside efficiencies, or above them, as a block of a screen."""

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        snapshot = frame.snapshot
        if snapshot is None or snapshot.efficiency is None or not snapshot.step:
            return None
        rows = len(_EFFICIENCIES) if width >= _SIDE_BY_SIDE else len(_TIMES) + len(_EFFICIENCIES)
        return Block(60, 1 + rows, height=1 + (_TALLEST + 1) * rows)

    @property
    def _columns(self) -> int:
        """Of the screen that each course has."""
        width = self.size.width
        return max(1, (width // 2 if width >= _SIDE_BY_SIDE else width) - _LABEL - 1)

    @property
    def wish(self) -> Wish:
        steps = usual_steps(self.frame.snapshot)
        return Wish(sync=SyncWish(steps, min(HEAT_MOST, MOMENTS * self._columns)))

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        view = None if frame.snapshot is None else frame.snapshot.sync
        if view is None or not view.courses:
            note = "coming…" if view is None else "no step yet"
            return [title("through time ", width), [(f" {note}", "muted")]]
        courses = {course.name: course for course in view.courses}
        steps = min(view.steps * min(view.columns, MOMENTS * self._columns), view.last_step)
        of = f"through time, the last {numbers.count(steps)} steps "
        beside = width >= _SIDE_BY_SIDE
        if not beside:
            lines = rows(courses, (*_TIMES, *_EFFICIENCIES), width, height - 1)
        else:
            left = rows(courses, _TIMES, width // 2, height - 1)
            right = rows(courses, _EFFICIENCIES, width - width // 2, height - 1)
            lines = [
                [*fit(left[y] if y < len(left) else [], width // 2), *(right[y] if y < len(right) else [])]
                for y in range(max(len(left), len(right)))
            ]
        full = courses["wait"].high if "wait" in courses else 0.0
        legend: Line = [(f" wait and transfer up to {numbers.ms(full)} ms, efficiencies to 100% ", "muted")]
        return [title(of, width, legend), *lines]


def rows(
    courses: Mapping[str, Course], named: Sequence[tuple[str, str]], width: int, height: int
) -> list[Line]:  # fmt: skip
    """A course each, one below the other, all equally high."""
    tall = max(1, min(_TALLEST, height // len(named)))
    air = int((tall + 1) * len(named) <= height and tall > 1)
    lines: list[Line] = []
    for name, role in named:
        course = courses.get(name)
        if course is None:
            drawn: list[Line] = [*[[]] * (tall - 1), [(numbers.NONE, "muted")]]
        else:
            drawn = area(course.cells, max(1, width - _LABEL - 1), tall, partial(_always, role))
        label: Line = [(f" {name:<14}{_newest(course):>6} ", "text" if course is not None else "muted")]
        lines += [[*(label if row == tall - 1 else _BLANK), *line] for row, line in enumerate(drawn)]
        lines += [[]] * air
    return lines


def _always(role: str, _: int) -> str:
    return role


def _newest(course: Course | None) -> str:
    """The newest value that is known."""
    cells = b"" if course is None else course.cells.rstrip(bytes([NOTHING]))
    if course is None or not cells:
        return numbers.NONE
    value = course.low + share(cells[-1]) * (course.high - course.low)
    return numbers.ms(value) if course.name in dict(_TIMES) else numbers.percent(value)
