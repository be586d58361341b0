"""Every rank's GPU and cores through time, a lane each: gaps in which a GPU does nothing are seen at once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial

from ddpmon import numbers
from ddpmon.messages import DEVICE_COURSES, HEAT_MOST, QUANTITIES, SAMPLE_SECONDS, Course, SamplesWish, Snapshot, Wish
from ddpmon.tui import axis
from ddpmon.tui.blocks import Block
from ddpmon.tui.filters import runs_of
from ddpmon.tui.frame import Frame
from ddpmon.tui.lines import Line, fit, title
from ddpmon.tui.sizes import TALL
from ddpmon.tui.units import written
from ddpmon.tui.widgets.area import MOMENTS, area, share
from ddpmon.tui.widgets.blockpane import BlockPane
from ddpmon.tui.widgets.inspection import BELOW, SIDE_BY_SIDE
from ddpmon.tui.widgets.pane import Actions
from ddpmon.tui.widgets.rankdetail import WHOLE

IDLE = 0.25
"""Share of a column's time in which a GPU worked, below which the column is marked."""
_LABEL = 7
_LEAST_WIDTH, _EACH = 40, 52
"""Columns of the screen that one quantity takes at least, and that one of several does."""
_TALLEST = 6
_ABOVE, _BELOW = 2, 1
"""Title, and what each column of lanes is; the axis."""
_TITLES = {
    "gpu": "gpu%", "gpu_memory": "gpu mem", "cpu": "cpu%, 100% per core", "starved": "starved", "rss": "mem",
    "cores": "cores busy on its host",
}  # fmt: skip
_BY_GPU = ("gpu", "gpu_memory", "cpu", "cores", "rss", "starved")
_BY_CPU = ("cpu", "cores", "starved", "rss")


def quantities(snapshot: Snapshot) -> tuple[str, ...]:
    """Return what is worth a lane, the most telling first."""
    order = _BY_GPU if any(rank.has_gpu_sample for rank in snapshot.ranks) else _BY_CPU
    return tuple(
        name for name in order if any(QUANTITIES[name].get(rank) is not None for rank in snapshot.ranks)
    )  # fmt: skip


class DeviceLanes(BlockPane):
    """The lanes of the ranks that are in sight in the list."""

    def __init__(self, *, whole_width: bool = False, id: str | None = None) -> None:
        """whole_width: they stand below all of a rank's detail, or any of it on a tall screen: no key is theirs."""
        super().__init__(id=id)
        self._whole_width = whole_width
        self._seconds = SAMPLE_SECONDS[0]
        """Seconds of each column."""

    def next_window(self) -> None:
        """More seconds in a column; after the most, one again."""
        self._seconds = SAMPLE_SECONDS[(SAMPLE_SECONDS.index(self._seconds) + 1) % len(SAMPLE_SECONDS)]

    @property
    def actions(self) -> Actions:
        return {} if self._whole_width else {"window": self.next_window}

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        ranks = 0 if frame.snapshot is None else len(frame.snapshot.ranks)
        if not ranks or frame.snapshot is None or not quantities(frame.snapshot):
            return None
        least = _ABOVE + min(ranks, 4) + _BELOW
        if self._whole_width and height < TALL:
            spare = height - (ranks + 2) - WHOLE
            if width < SIDE_BY_SIDE or spare < _ABOVE + ranks + _BELOW:
                return None
            least = _used(ranks, spare)
        return Block(
            width if self._whole_width else _LEAST_WIDTH,
            least,
            height=_ABOVE + (_TALLEST + 1) * ranks + _BELOW,
            used=partial(_used, ranks),
        )

    def _shown(self, snapshot: Snapshot | None) -> tuple[list[int | None], tuple[str, ...]]:
        """The ranks of lines, and the quantities, that there is room for. Beside the list each stands in its line."""
        width, height = self.room
        names = () if snapshot is None else quantities(snapshot)[: max(1, width // _EACH)]
        lines = self.in_sight()
        if self.beside:
            return lines[1 : max(1, height - 1 - _BELOW)], names
        ranks: list[int | None] = [rank for rank in lines if rank is not None]
        return ranks[: max(0, height - _ABOVE - _BELOW)], names

    @property
    def wish(self) -> Wish:
        lines, names = self._shown(self.frame.snapshot)
        ranks = [rank for rank in lines if rank is not None]
        if not ranks or not names:
            return Wish()
        columns = max(1, min(HEAT_MOST, MOMENTS * (self.room[0] // len(names) - _LABEL - 1)))
        kept = tuple(name for name in DEVICE_COURSES if name in names)
        return Wish(samples=SamplesWish(kept, self._seconds, columns, runs_of(ranks)))

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        ranks, names = self._shown(frame.snapshot)
        view = None if frame.snapshot is None else frame.snapshot.samples
        if view is None or view.seconds != self._seconds or not view.courses or not ranks or not names:
            said = "coming…" if frame.behind_s is None and view is None else "nothing measured yet"
            return [title("through time ", width), [(f" {said}", "muted")]]
        each = width // len(names)
        span_s = float(MOMENTS * (each - _LABEL - 1) * view.seconds)
        span = numbers.span(min(span_s, float(view.columns * view.seconds)))
        legend: Line = [(f" gpu% under {100 * IDLE:.0f} ", "warn")] if "gpu" in names else []
        tall, air = 1, 0
        if not self.beside:
            room = height - _ABOVE - _BELOW
            tall = max(1, min(_TALLEST, room // len(ranks)))
            air = int((tall + 1) * len(ranks) <= room and tall > 1)
        courses = {(course.rank, course.name): course for course in view.courses}
        shown, listed = (sum(rank is not None for rank in some) for some in (ranks, self.in_sight()))
        part = f", {shown} of {listed} ranks" if shown < listed else ""
        lines = [title(f"through time, the last {span}{part} ", width, legend), self._heads(courses, names, each)]
        chosen = self.chosen_rank()
        for rank in ranks:
            if rank is None:
                lines.append([])
                continue
            label: Line = [(f"{rank:>{_LABEL - 2}}", "strong" if rank == chosen else "text"), ("  ", "text")]
            lanes = [_lane(courses.get((rank, name)), label, name, each, tall) for name in names]
            lines += [[piece for lane in lanes for piece in fit(lane[row], each)] for row in range(tall)]
            lines += [[]] * air
        below: Line = [(" " * _LABEL + axis.ages(span_s, each - _LABEL - 1), "muted")]
        return [*lines[: height - _BELOW], [piece for _ in names for piece in fit(below, each)]]

    @staticmethod
    def _heads(courses: Mapping[tuple[int, str], Course], names: tuple[str, ...], each: int) -> Line:
        """Return what each column of lanes is, and what fills one."""
        line: Line = []
        for name in names:
            course = next((course for (_, of), course in courses.items() if of == name), None)
            unit = QUANTITIES[name].unit
            full = "" if course is None else f", full: {written(unit)(course.high)}"
            full += " GiB" * (course is not None and name in {"rss", "gpu_memory"})
            line += fit([(f"{'rank':>{_LABEL - 2}}  {_TITLES[name]}{full}", "muted")], each)
        return line


class RankLanes(DeviceLanes):
    """The lanes of one rank, below all that is known of it."""

    def __init__(self) -> None:
        super().__init__(whole_width=True)

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        if width < SIDE_BY_SIDE or frame.snapshot is None or not quantities(frame.snapshot):
            return None
        return Block(width, BELOW, height=BELOW)


def _used(ranks: int, lines: int) -> int:
    """Return the lines that are used, of so many, as all lanes are equally high."""
    around = _ABOVE + _BELOW
    return around + (lines - around) // ranks * ranks if lines >= around + ranks else lines


def _lane(course: Course | None, label: Line, name: str, width: int, tall: int) -> list[Line]:
    """A course, its label beside the lowest line."""
    room = max(0, width - _LABEL - 1)
    if course is None:
        drawn: list[Line] = [*[[]] * (tall - 1), [(numbers.NONE, "muted")]]
    else:
        drawn = _area(name, course.cells, room, tall)
    blank: Line = [(" " * _LABEL, "text")]
    return [[*(label if row == tall - 1 else blank), *line] for row, line in enumerate(drawn)]


@lru_cache(maxsize=256)
def _area(name: str, cells: bytes, width: int, tall: int) -> list[Line]:
    """Kept, because samples come every second and frames twice as often."""
    return area(cells, width, tall, partial(_role, name))


def _role(name: str, cell: int) -> str:
    if name == "gpu":
        return "warn" if share(cell) < IDLE else "info"
    return "info" if name in {"cpu", "cores"} else "muted"
