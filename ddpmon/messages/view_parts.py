"""Parts of a snapshot that are included only if a screen requests them, and the costs, which are always included."""

from __future__ import annotations

import msgspec

from ddpmon.messages.ranks import Stack
from ddpmon.messages.vocabulary import (
    HEAT_MOST,
    PRINTED_LINES,
    SYNC_GRADIENTS,
    SYNC_KINDS,
    Count,
    Rank,
    Seconds,
    Text,
    require,
    require_equal_lengths,
)


class AllReduceView(msgspec.Struct, frozen=True):
    """Mean cost of the gradient synchronisation over steps and ranks. Without DDP: the mean cost of all collectives."""

    payload_bytes: float
    """Number of bytes that are reduced per step."""
    wait_ms: float
    transfer_ms: float
    exposed_share: float
    """(Wait + transfer) / length of the step: the part of communication that compute did not hide."""
    gain_without_waiting: float | None = None
    """Speed-up if the work of each step were spread evenly, so that no rank waits."""
    gain_with_even_transfer: float | None = None
    """Speed-up if the transfer of every step took the median time."""
    beside_ms: float | None = None
    """Time per step blocked in other synchronisations: buffers, and collectives that the script calls."""
    kind: Text = SYNC_KINDS[SYNC_GRADIENTS]
    """One of SYNC_KINDS. If DDP synchronises no gradients, the kind is "collective", and bytes are not counted."""


class EfficiencyView(msgspec.Struct, frozen=True):
    """The POP Centre's efficiencies (co-design.pop-coe.eu/metrics); each at most 1."""

    parallel: float
    """mean(own) / step = load_balance x communication"""
    load_balance: float
    """mean(own) / mean over steps of max(own) = load_balance_persistent x load_balance_moving"""
    load_balance_persistent: float
    """mean over ranks of window means / max of window means: below 1 if the same rank is always late"""
    load_balance_moving: float
    """max of window means / mean over steps of max(own): below 1 if a different rank is late each time"""
    communication: float
    """mean over steps of max(own) / step"""


class SeriesView(msgspec.Struct, frozen=True):
    """A quantity over a stretch of time for all ranks at once, oldest first; all lists are equally long."""

    name: Text
    seconds: list[Seconds]
    """Moment of the last step in each point, in seconds since the run started."""
    steps: list[Count]
    """Number of that step, or 0 if there is none."""
    low: list[float | None]
    median: list[float | None]
    """Median over the ranks. If a point merges several steps, the value is the mean of the steps' medians."""
    high: list[float | None]
    worst: list[Rank | None]
    """Rank with the worst value in each point, None if unknown. For some quantities the highest value is worst, for
    others the lowest."""
    merged: Count = 1
    """Number of steps that a point merges; for samples, the number of seconds."""
    first_s: Seconds = 0.0
    """Moment of the quantity's first value, in seconds since the run started."""
    last_s: Seconds = 0.0
    """Moment of the quantity's last value, in seconds since the run started."""

    def __post_init__(self) -> None:
        lists = self.seconds, self.steps, self.low, self.median, self.high, self.worst
        require_equal_lengths(lists, "points of a quantity over time")
        require(self.merged > 0, "steps in a point of a quantity over time", self.merged)


class HeatRow(msgspec.Struct, array_like=True, frozen=True):
    """A row of the heat map: one rank, or several ranks. If there are several, each column shows their worst value."""

    hosts: tuple[Text, Text]
    """Hosts of the first and of the last rank of the row."""
    ranks: tuple[Rank, Rank]
    """First and last rank of the row."""
    count: Count
    worst: Rank
    """The rank with the worst values over all columns."""
    hot_share: float = 0.0
    """Share of the columns that are hot: late, or at least 5% above the other ranks. A wait is hot from half of the
    step on, a GPU if it is idle for at least half of the time."""
    hot_since: Count | None = None
    """Step from which on every column is hot, or None if the last column is not hot."""
    meant: Count = 0
    """Number of ranks of the row that are late in any column, or 0 if lateness was not requested."""


class HeatView(msgspec.Struct, frozen=True):
    """Heat map of one quantity: a row for each rank or group of ranks, a column for each span of steps."""

    metric: Text
    steps: Count
    """Number of steps in a column."""
    first: Count
    """Index of the first column, counted from the run's first step. The column's first step is `first` x `steps`."""
    columns: Count
    last_step: Count
    low: float
    """Value that cell byte 1 stands for; byte 254 stands for `high`. Depending on the metric it is an excess over the
    median as a fraction, a share of the step, a share of the time in which the GPU was idle, or a loss."""
    high: float
    rows: list[HeatRow]
    cells: bytes
    """One byte per cell, row by row: 0 means that nothing is known, 255 that the value is not finite."""
    beyond_chance: bool = False
    """True if cells hold levels of lateness instead of values: 1 is within the noise; 2 and above are HEAT_LEVELS in
    order."""
    noise: float | None = None
    """Excess up to which a cell is within the noise, as a fraction, or None if it was not measured."""
    moments: list[Seconds | None] = msgspec.field(default_factory=list)
    """Moments at which HEAT_MOMENTS columns ended, in seconds since the run started. These columns are spaced evenly
    from the first to the last."""

    def __post_init__(self) -> None:
        require(len(self.rows) <= HEAT_MOST and self.columns <= HEAT_MOST, "rows of a heat map", len(self.rows))
        require(len(self.cells) == len(self.rows) * self.columns, "cells of a heat map", len(self.cells))
        require(self.steps > 0 and all(row.count > 0 for row in self.rows), "steps or ranks of a heat map", 0)


class TimelineStep(msgspec.Struct, array_like=True, frozen=True):
    """One step, summarised over all ranks."""

    step: Count
    length_ms: float
    critical: Rank | None
    """The rank that arrived last, or None if it is not known."""
    mended_ms: float | None
    """Length in ms that the step would have had if the ranks in `mended_ranks` had been as fast as their peers."""


class TimelineRow(msgspec.Struct, array_like=True, frozen=True):
    """The phases of a rank in the last steps."""

    rank: Rank
    host: Text
    phases_ms: list[tuple[float, ...]]
    """Lengths of the phases of each step in ms, in the order of PHASES."""


class LongStep(msgspec.Struct, array_like=True, frozen=True):
    """One of the longest steps of a run."""

    step: Count
    length_ms: float
    rank: Rank
    """Rank that arrived last. If that rank is unknown, the rank with the most own time."""
    phase: Text
    """The one of PHASES that exceeds its usual length by the most."""
    over_ms: float
    """Time in ms by which that phase exceeds its usual length."""


class TimelineView(msgspec.Struct, frozen=True):
    """Timeline of the last steps: the phases of each rank in each step."""

    steps: list[TimelineStep]
    """The steps of the timeline, oldest first."""
    rows: list[TimelineRow]
    """Some of the requested ranks, the rank that arrives latest first."""
    ranks: Rank
    """Number of all requested ranks, including ranks without a row."""
    mended: Rank | None = None
    """First of `mended_ranks`, or None if no rank holds the others back."""
    mended_ranks: list[Rank] = msgspec.field(default_factory=list)
    """Ranks that hold the others back. `mended_ms` assumes that each of these ranks needs only as much own time as its
    peers."""
    mended_host: Text = ""
    """Host whose ranks together hold the others back, or "" if single ranks do."""
    longest: list[LongStep] = msgspec.field(default_factory=list)
    """The longest steps of the run, the longest first, if requested."""
    longest_since: Count = 0
    """First step that was examined for `longest`."""

    def __post_init__(self) -> None:
        require(self.ranks >= len(self.rows), "ranks of the last steps", self.ranks)


class CostView(msgspec.Struct, frozen=True):
    """Cost of all-reduce, and the efficiencies, over steps that a viewer selects instead of the snapshot's window."""

    over: Text
    """One of COST_WINDOWS."""
    window: tuple[Count, Count]
    """The first and the last step."""
    steps: Count
    """Number of steps over which the costs are computed."""
    all_reduce: AllReduceView | None
    efficiency: EfficiencyView | None
    slowest: Rank | None = None
    """The rank with the most own time."""
    slowest_over: float | None = None
    """Excess of the slowest rank's own time over the median of the other ranks, as a fraction."""


class PrintedLine(msgspec.Struct, array_like=True, frozen=True):
    """A line of a rank's output."""

    stream: Text
    """"out" or "err", or "launcher" if the launcher prints the rank's output."""
    text: Text


class PrintedView(msgspec.Struct, frozen=True):
    """The last lines that a rank printed."""

    rank: Rank
    total: Count = 0
    """Number of lines that were read so far, of which `lines` has the last ones."""
    lines: list[PrintedLine] = msgspec.field(default_factory=list)
    why: Text = ""
    """Text that says why there is no output, or "" if there is output."""

    def __post_init__(self) -> None:
        require(len(self.lines) <= min(PRINTED_LINES, self.total), "lines of a rank's output", len(self.lines))


class StackView(msgspec.Struct, frozen=True):
    """Latest known stack of a rank's training thread, with its age."""

    rank: Rank
    stack: Stack | None = None
    at: Seconds | None = None
    """Moment of the stack in Unix seconds, or None if the rank is on a host with another clock."""
    asked: bool = False
    """True if a viewer has requested the stack and the rank has not answered yet."""
    why: Text = ""
    """Text that says why there is no stack, or "" if nothing prevents one."""
    steps_since: Count = 0
    """Number of steps that the rank has finished since it sent the stack. If not 0, the stack is out of date."""


class Course(msgspec.Struct, array_like=True, frozen=True):
    """A quantity of a rank, or of a CPU core, over time.

    Each cell is a column of the chart, the newest last. A cell of 0 means that nothing is known, a cell of 255 that the
    value is not finite.
    """

    rank: Rank
    """The rank, or the kernel's number of the core."""
    name: Text
    low: float
    """Value that cell byte 1 stands for; byte 254 stands for `high`."""
    high: float
    cells: bytes
    peers: bytes = b""
    """Cells of the median of the rank's peers, or empty if the rank is not compared with peers."""
    longer: Text = ""
    """Text that says since when the rank takes longer than its peers, or "" if the rank does not take longer."""


class CoursesView(msgspec.Struct, frozen=True):
    """Quantities over the same steps or seconds."""

    per_column: Count
    """Number of steps or seconds in a column."""
    columns: Count
    """Number of columns. For cores, 0 means that they are not measured, now or later."""
    courses: list[Course]
    """One course per quantity and rank; empty before anything is measured."""
    last_step: Count = 0
    host: Text = ""
    """Host of the cores, if the courses are of cores."""

    def __post_init__(self) -> None:
        require(self.columns <= HEAT_MOST and self.per_column > 0, "columns of courses", self.columns)
        cells = [cells for course in self.courses for cells in (course.cells, course.peers or course.cells)]
        require(all(len(each) == self.columns for each in cells), "lengths of courses", [*map(len, cells)][:4])


class InspectView(msgspec.Struct, frozen=True):
    """One rank over time, and the latest stack of its training thread."""

    rank: Rank
    history: CoursesView
    """Courses of the rank's own time, each of PHASES, its step length and its loss; empty before the rank's first
    step."""
    where: StackView
