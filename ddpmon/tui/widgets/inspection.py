"""Shows one rank compared with all others: the phases of its step, its machine, its Python stack, and how it ended."""

from __future__ import annotations

from ddpmon import numbers
from ddpmon.analysis.words import format_count
from ddpmon.messages import (
    DEVICE_COURSES,
    HEAT_MOST,
    HEAT_STEPS,
    QUANTITIES,
    RankView,
    SeriesRequest,
    Snapshot,
    StackView,
    ViewRequest,
)
from ddpmon.runs.logs import Log
from ddpmon.tui import rank_marks
from ddpmon.tui.blocks import ALL, LEAST_WIDTH, Block
from ddpmon.tui.frame import Frame, short_host
from ddpmon.tui.lines import Line, cut_text, fit_line, line_width, pane_title, paragraph, plain_text, wrap_text
from ddpmon.tui.widgets.columns import HEALTH_WORDS, decimals, how_far
from ddpmon.tui.widgets.failure import traceback_lines
from ddpmon.tui.widgets.findinglist import said_lines
from ddpmon.tui.widgets.machines import named_user
from ddpmon.tui.widgets.pane import Actions
from ddpmon.tui.widgets.peers import LABEL_WIDTH, LATENESS, OTHERS, beside, phase_history, script_phase
from ddpmon.tui.widgets.scrolling import ScrollingPane
from ddpmon.tui.widgets.worldmap import rank_in

_NOW_S = 1.5


def latest_stack(snapshot: Snapshot, rank: RankView) -> StackView:
    """Return the latest stack of a rank: for the inspected rank the hub's answer, for other ranks the stack from a
    stall.
    """
    view = snapshot.inspect
    if view is not None and view.rank == rank.rank:
        return view.where
    return StackView(rank.rank, rank.stack)


def age(snapshot: Snapshot, view: StackView) -> str:
    """Return the age of a stack in words and in steps: "5 s ago, 1,280 steps before this one"."""
    words = []
    if view.at is not None:  # absent if the clock of the rank's host differs
        seconds = snapshot.at - view.at
        words.append("just now" if seconds < _NOW_S else f"{numbers.duration(seconds)} ago")
    if view.steps_since:
        words.append(f"{format_count(view.steps_since, 'step')} before this one")
    return ", ".join(words)


def stack_lines(snapshot: Snapshot, rank: RankView, width: int, *, asked: bool, answers: bool) -> list[Line]:
    """Return the stack with its age, or a line that says why there is none.

    Args:
        snapshot: The snapshot.
        rank: The rank.
        width: Columns.
        asked: True if the user requested the stack. Then "asking…" is shown until the stack arrives.
        answers: True if the rank can answer now, which is impossible in a recording.

    """
    view = latest_stack(snapshot, rank)
    is_past = view.steps_since > 0 and (bool(view.why) or not asked)  # then the rank has moved on since
    stack = None if is_past else view.stack
    waits = answers and (view.asked or (asked and not view.why and stack is None))
    if stack is None and not waits and not asked:
        return []
    age_text = "asking…" if waits else age(snapshot, view) if stack is not None else ""
    lines: list[Line] = [pane_title(f"its Python stack{f', {age_text}' if age_text else ''}", width)]
    if view.why and asked:
        lines += [[(f" ▲ {row}", "warn")] for row in wrap_text(plain_text(view.why), width - 4)]
    if stack is None:
        return lines if waits or view.why else [*lines, [(" none was recorded", "muted")]]
    if stack.collective is not None:
        state = "waits in" if stack.blocked else "last issued"
        lines.append([(cut_text(f" {state} {plain_text(stack.collective.name)}", width), "text")])
    if not stack.frames:
        lines.append([(" no Python code", "muted")])
    for place, row in enumerate(stack.frames):
        own = place == stack.own
        lines.append([(cut_text(f" {'›' if own else ' '} {plain_text(row)}", width), "strong" if own else "muted")])
    return lines


SIDE_BY_SIDE = 128
"""Width in columns from which on the numbers and everything else are shown side by side."""
BELOW = 8
"""Number of lines for the lanes below a rank's details, if the details need few enough lines."""
_LAST_LINES = 6
"""Minimum number of lines of the rank's output."""
_FEW_STEPS = 100
"""Number of steps of a run below which a column of a history is one step."""


def steps_per_column(snapshot: Snapshot | None) -> int:
    """Return the default number of steps in a column of a history."""
    done = 0 if snapshot is None else snapshot.step
    return HEAT_STEPS[int(done >= _FEW_STEPS)]


def rank_title(rank: RankView) -> str:
    """Return a rank's name, host and device, such as "rank 13 · node01 · cuda:5"."""
    parts = [f"rank {rank.rank}", short_host(rank.host), plain_text(rank.device) if rank.health != "missing" else ""]
    return " · ".join(part for part in parts if part)


def history_request(rank: int, steps: int, width: int) -> SeriesRequest:
    """Return the request for the history of a rank.

    Args:
        rank: The rank.
        steps: Steps per column.
        width: Width in columns of the whole inspection, of which the history gets a part.

    """
    room = _left_width(width) - LABEL_WIDTH
    return SeriesRequest((), ((rank, rank),), max(1, min(HEAT_MOST, room)), steps)


def _left_width(width: int) -> int:
    """Return the width of the numbers and their histories. Everything else is shown to their right or below."""
    return width // 2 - 1 if width >= SIDE_BY_SIDE else width


def _process(rank: RankView, width: int) -> list[Line]:
    facts = [HEALTH_WORDS.get(rank.health, plain_text(rank.health))]
    if rank.health != "missing":
        facts += [
            how_far(rank),
            format_count(rank.steps, "step"),
            f"local rank {rank.local_rank} of node {rank.node_rank}",
        ]
    if rank.window is not None:
        facts.append(
            f"its means cover steps {rank.window[0]:,} to {rank.window[1]:,}, the last steps that its peers also have"
        )
    if rank.pid:
        facts.append(f"pid {rank.pid}")
    role = "warn" if rank.health in {"silent", "dead"} else "text"
    lines: list[Line] = [pane_title("process", width), *paragraph(", ".join(facts), width - 1, role)]
    if environment := ", ".join(_environment(rank)):
        lines += paragraph(environment, width - 1)
    if rank.throttled:
        lines.append([(f" ▲ its GPU throttles: {plain_text(rank.throttled)}", "warn")])
    if rank.gpu_users:
        lines += paragraph(f"also on its GPU: {'; '.join(map(named_user, rank.gpu_users))}", width - 1)
    return lines


def _environment(rank: RankView) -> list[str]:
    """Return the hardware, libraries and settings with which a rank runs."""
    environment = rank.environment
    if environment is None:
        return []
    facts = [
        plain_text(environment.device_name),
        f"torch {plain_text(environment.torch_version)}" if environment.torch_version else "",
    ]
    facts.append(plain_text(environment.backend))
    for count, one, many in (
        (environment.parameters, "parameter in DDP", "parameters in DDP"),
        (environment.cores, "core", None),
        (environment.compute_threads, "compute thread", None),
        (environment.loader_workers, "DataLoader worker", None),
        (environment.restart, "restart", None),
    ):
        facts.append(format_count(count, one, many) if count else "")
    if environment.loader_workers == 0:
        facts.append("no DataLoader workers")
    return [fact for fact in facts if fact]


def _findings(rank: RankView, snapshot: Snapshot, width: int) -> list[Line]:
    findings = [finding for finding in snapshot.findings if rank.rank in finding.ranks]
    lines = [line for finding in findings for line in said_lines(finding, width)]
    return [pane_title("evidence", width), *lines] if lines else []


def _ending(rank: RankView, width: int) -> list[Line]:
    end = rank.exit
    if end is None:
        return []
    how = [f"exit code {end.code}"] if end.code is not None else []
    how += [f"ended by {plain_text(end.signal)}"] if end.signal else []
    unsaid = "an uncaught exception" if end.error or end.traceback else "exited unexpectedly"
    lines: list[Line] = [
        pane_title("how it ended", width),
        [(f" {', '.join(how) or unsaid}", "bad" if rank_marks.has_failed(rank) else "text")],
    ]
    trace = traceback_lines(end)
    for place, row in enumerate(trace):
        role = "bad" if place == len(trace) - 1 else "text"
        lines += [
            [(f"  {part}", role)]
            for part in (wrap_text(row, width - 3) if role == "bad" else [cut_text(row, width - 2)])
        ]
    return lines


def _last_output(printed: Log | None, rank: int, width: int, rows: int) -> list[Line]:
    """Return the last lines that a rank printed, at most `rows`; no lines if the rank printed none."""
    lines: list[Line] = []
    for entry in reversed(printed.entries if printed is not None else []):
        if len(lines) >= rows:
            break
        if rank in entry.ranks:
            mark = "!" if entry.stream == "err" else " "
            lines.append([(f" {mark} ", "warn"), (cut_text(plain_text(entry.text), width - 4), "text")])
    return (
        [pane_title("its last output; 7 shows all", width, [(" ! stderr ", "muted")]), *reversed(lines)]
        if lines
        else []
    )


def inspection(
    snapshot: Snapshot,
    rank: RankView,
    width: int,
    height: int = 0,
    *,
    asked: bool = False,
    answers: bool = True,
    missing: str = "",
    printed: Log | None = None,
) -> list[Line]:
    """Return all lines about one rank, without the title, the most important first.

    Args:
        snapshot: The snapshot.
        rank: The rank.
        width: Columns.
        height: Lines that the result should fill, though it may be longer.
        asked: True if the user asked for the rank's stack.
        answers: True if the rank can be asked now.
        missing: Text that replaces a missing history.
        printed: The output of the ranks.

    """
    beside_each_other = width >= SIDE_BY_SIDE
    left_width = _left_width(width)
    right_width = width - left_width - 1 if beside_each_other else width
    digits = decimals(snapshot.ranks)
    names = dict.fromkeys(name for each in snapshot.ranks for name in each.named_ms)
    view = snapshot.inspect if snapshot.inspect is not None and snapshot.inspect.rank == rank.rank else None
    times = phase_history(rank, snapshot, None if view is None else view.history, left_width, missing)
    others = beside((*(script_phase(name, digits) for name in names), *LATENESS, *OTHERS), rank, snapshot)
    left: list[Line] = [*times, *others] or [[(" nothing measured yet", "muted")]]
    trouble = [*_findings(rank, snapshot, right_width), *_ending(rank, right_width)]
    process = _process(rank, right_width)
    stack = stack_lines(snapshot, rank, right_width, asked=asked, answers=answers)
    if beside_each_other:
        right = [*stack, *trouble, *process] if asked else [*trouble, *stack, *process]
        room = max(_LAST_LINES, height, len(left)) - len(right) - 1
        right += _last_output(printed, rank.rank, right_width, max(_LAST_LINES, room))
        return [
            [
                *fit_line(left[y] if y < len(left) else [], left_width),
                (" ", "text"),
                *(right[y] if y < len(right) else []),
            ]
            for y in range(max(len(left), len(right)))
        ]
    process += _last_output(printed, rank.rank, width, _LAST_LINES)
    if not times:
        others = left
    if asked:
        return [*stack, *trouble, *times, *others, *process]
    if rank.exit is not None and rank_marks.has_failed(rank):
        return [*trouble, *stack, *times, *others, *process]
    if rank.health in {"silent", "dead"} or snapshot.state == "stalled":
        return [*trouble, *stack, *process, *times, *others]
    return [*times, *trouble, *stack, *others, *process]


class Inspection(ScrollingPane):
    """A scrolling pane with everything about the inspected rank."""

    def __init__(self) -> None:
        super().__init__()
        self.rank = 0
        self.printed: Log | None = None
        self._asked = False
        """True if the user asked for the rank's stack."""
        self._steps: int | None = None
        """Steps per column that the user chose; None before a choice."""

    @property
    def actions(self) -> Actions:
        return {"window": self.widen, "step": self.step}

    def open(self, rank: int) -> None:
        """Inspect this rank, from the next frame on."""
        self.rank, self._top, self._asked = rank, 0, False

    def show_stack(self) -> None:
        """Show the rank's Python stack first."""
        self._top, self._asked = 0, True
        self.redraw()

    @property
    def steps(self) -> int:
        """Return the steps per column of the rank's history."""
        return self._steps or steps_per_column(self.frame.snapshot)

    def widen(self) -> None:
        """Show more steps per column; after the maximum, one step again."""
        self._steps = HEAT_STEPS[(HEAT_STEPS.index(self.steps) + 1) % len(HEAT_STEPS)]

    def needs(self, frame: Frame, width: int, height: int) -> Block | None:
        """Return the size of the whole screen. If the rank's details fit above the lanes, the size is less by the lines
        of the lanes.
        """
        snapshot, rank, above = frame.snapshot, rank_in(frame.snapshot, self.rank), ALL
        measured = rank is not None and any(QUANTITIES[name].get(rank) is not None for name in DEVICE_COURSES)
        if snapshot is not None and rank is not None and width >= SIDE_BY_SIDE and measured:
            above = 1 + len(self._lines(frame, snapshot, rank, width, 0))
        return Block(LEAST_WIDTH, 1, height=height - BELOW if above <= height - BELOW else ALL)

    def lines_in_sight(self) -> list[int | None]:
        """Return the inspected rank, to which the lanes below belong."""
        return [self.rank]

    @property
    def view_request(self) -> ViewRequest:
        """Return the request for the rank's history in the pane's width."""
        return ViewRequest(inspect=history_request(self.rank, self.steps, self.size.width))

    def _lines(self, frame: Frame, snapshot: Snapshot, rank: RankView, width: int, height: int) -> list[Line]:
        """Return all lines about the inspected rank."""
        return inspection(
            snapshot, rank, width, height,
            asked=self._asked, answers=frame.cursor is None and not frame.ended,
            missing=frame.why_absent if rank.steps else "", printed=self.printed,
        )  # fmt: skip

    def step(self, by: int) -> None:
        """Inspect the next (1) or previous (-1) rank; after the last comes the first."""
        numbers_ = [rank.rank for rank in self.frame.listed_ranks]
        if not numbers_:
            return
        after = [number for number in numbers_ if number > self.rank]
        before = [number for number in numbers_ if number < self.rank]
        self.open((after or numbers_)[0] if by > 0 else (before or numbers_)[-1])

    def heading(self, rank: RankView, width: int) -> Line:
        """Return the title, such as "rank 13 · node01 · cuda:5 ───── [ rank 12 · rank 14 ]"."""
        line = pane_title(rank_title(rank), width)
        numbers_ = [each.rank for each in self.frame.listed_ranks if each.rank != rank.rank]
        if not numbers_:
            return line
        before = max((number for number in numbers_ if number < rank.rank), default=numbers_[-1])
        after = min((number for number in numbers_ if number > rank.rank), default=numbers_[0])
        ways = f" [ rank {before} · rank {after} ] "
        room = width - line_width([(ways, "")]) - 1
        return [*fit_line(line, room), (ways, "muted"), ("─", "rule")] if room > 30 else line

    def draw(self, frame: Frame, width: int, height: int) -> list[Line]:
        snapshot, rank = frame.snapshot, rank_in(frame.snapshot, self.rank)
        if snapshot is None or rank is None:
            return [pane_title(f"rank {self.rank}", width), [(" no data of this rank yet", "muted")]]
        lines = self._lines(frame, snapshot, rank, width, height - 1)
        return [self.heading(rank, width), *self.scrolled(lines, height - 1)]
