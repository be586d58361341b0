"""Shows all-reduce through time: wait and transfer on one scale, and the efficiencies that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ddpmon import numbers
from ddpmon.messages import HEAT_MOST, Course, Snapshot, SyncWish, Wish
from ddpmon.messages.cells import NOTHING
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
_TALLEST = 12
_WITH_AIR = 4
"""Lines that a course may take from which on one of them parts it from the next."""


@dataclass(frozen=True)
class Lane:
    """A course with its name."""

    name: str
    role: str
    course: Course | None
    named: str = "text"
    """The role of the name."""


def beside(width: int) -> int:
    """Return how many lanes stand beside each other."""
    return 2 if width >= _SIDE_BY_SIDE else 1


def moments(width: int) -> int:
    """That a lane shows in a block so wide."""
    return MOMENTS * max(1, width // beside(width) - _LABEL - 1)


def courses_wish(snapshot: Snapshot | None, width: int) -> SyncWish:
    """Steps of a column and columns of what stands in a block so wide."""
    return SyncWish(usual_steps(snapshot), min(HEAT_MOST, moments(width)))


def lines_each(lines: int, rows: int) -> int:
    """Return the lines, of so many, for each row of lanes."""
    return max(1, min(_TALLEST + 1, lines // rows))


class SyncCourse(BlockPane):
    """Times beside efficiencies, or above them, as a block of a screen."""

    @staticmethod
    def rows(width: int) -> int:
        """Lanes below one another."""
        return len(_EFFICIENCIES) if beside(width) > 1 else len(_TIMES) + len(_EFFICIENCIES)

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        snapshot = frame.snapshot
        if snapshot is None or snapshot.efficiency is None or not snapshot.step:
            return None
        rows = self.rows(width)
        return Block(60, 1 + rows, height=1 + (_TALLEST + 1) * rows)

    @property
    def wish(self) -> Wish:
        return Wish(sync=courses_wish(self.frame.snapshot, self.room[0]))

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        view = None if frame.snapshot is None else frame.snapshot.sync
        if view is None or not view.courses:
            note = "coming…" if view is None else "no step yet"
            return [title("through time ", width), [(f" {note}", "muted")]]
        courses = {course.name: course for course in view.courses}
        steps = min(view.steps * min(view.columns, moments(width)), view.last_step)
        of = f"through time, the last {numbers.count(steps)} steps "
        times, efficiencies = (
            [Lane(name, role, courses.get(name)) for name, role in named] for named in (_TIMES, _EFFICIENCIES)
        )
        sides = [times, efficiencies] if beside(width) > 1 else [[*times, *efficiencies]]
        full = courses["wait"].high if "wait" in courses else 0.0
        legend: Line = [(f" wait and transfer up to {numbers.ms(full)} ms, efficiencies to 100% ", "muted")]
        return [title(of, width, legend), *side_by_side(sides, width, height - 1)]


def side_by_side(sides: Sequence[Sequence[Lane]], width: int, height: int) -> list[Line]:
    """Each side's lanes below one another, all sides as high as the one of most lanes."""
    each = lines_each(height, max(map(len, sides)))
    lines = each * max(map(len, sides))
    drawn = [below_one_another(side, width // len(sides), lines) for side in sides]
    return [
        [piece for side in drawn for piece in fit(side[y] if y < len(side) else [], width // len(sides))]
        for y in range(max(map(len, drawn)))
    ]


def below_one_another(lanes: Sequence[Lane], width: int, height: int) -> list[Line]:
    """Lanes that are all equally high."""
    each = max(1, height // len(lanes)) if lanes else 1
    air = int(each >= _WITH_AIR)
    tall = each - air
    lines: list[Line] = []
    for lane in lanes:
        if lane.course is None:
            drawn: list[Line] = [*[[]] * (tall - 1), [(numbers.NONE, "muted")]]
        else:
            drawn = area(lane.course.cells, max(1, width - _LABEL - 1), tall, partial(_always, lane.role))
        named = lane.named if lane.course is not None else "muted"
        label: Line = [(f" {lane.name:<14}{_newest(lane.course):>6} ", named)]
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
