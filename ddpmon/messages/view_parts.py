"""Parts of a snapshot that are there only where a screen asks for them, and costs, which are always there."""

from __future__ import annotations

import msgspec

from ddpmon.messages.ranks import Stack
from ddpmon.messages.vocabulary import SYNC_GRADIENTS, SYNC_KINDS, Count, Rank, Seconds, Text


class AllReduceView(msgspec.Struct, frozen=True):
    """Cost of the gradient synchronisation, mean over steps and ranks; without DDP the cost of all collectives."""

    payload_bytes: float
    """Bytes of a step."""
    wait_ms: float
    transfer_ms: float
    exposed_share: float
    """Wait + transfer over the step: the part of communication that compute did not hide."""
    gain_without_waiting: float | None = None
    """Speed-up if the work of each step were spread evenly, so that nobody waits."""
    gain_with_even_transfer: float | None = None
    """The same if every step's transfer took its median."""
    beside_ms: float | None = None
    """Blocked in other synchronisations of a step: buffers, collectives that the script calls."""
    kind: Text = SYNC_KINDS[SYNC_GRADIENTS]
    """Kind, of SYNC_KINDS: where DDP synchronises no gradients, all collectives, whose bytes are not counted."""


class EfficiencyView(msgspec.Struct, frozen=True):
    """The POP Centre's efficiencies (co-design.pop-coe.eu/metrics); each at most 1."""

    parallel: float
    """mean(own) / step = load_balance x communication"""
    load_balance: float
    """mean(own) / mean over steps of max(own) = load_balance_persistent x load_balance_moving"""
    load_balance_persistent: float
    """mean over ranks of window means / max of window means: the same rank is late"""
    load_balance_moving: float
    """max of window means / mean over steps of max(own): a different rank is late each time"""
    communication: float
    """mean over steps of max(own) / step"""


class SeriesView(msgspec.Struct, frozen=True):
    """A quantity over a stretch of time for all ranks at once, oldest first; all lists are equally long."""

    name: Text
    seconds: list[Seconds]
    """Moment of the last step in each point, since the run started."""
    steps: list[Count]
    """The number of that step; 0: none."""
    low: list[float | None]
    median: list[float | None]
    """Median of each point; of several steps, the mean of their medians."""
    high: list[float | None]
    worst: list[Rank | None]
    """The rank with the highest value, or the lowest where that is the one to look at; None: nobody is known to be."""
    merged: Count = 1
    """So many steps are in a point, or seconds of samples."""
    first_s: Seconds = 0.0
    """Moments of the quantity's first and last value."""
    last_s: Seconds = 0.0


class HeatRow(msgspec.Struct, array_like=True, frozen=True):
    """A row of the heat map: one rank, or the worst of several at each moment."""

    hosts: tuple[Text, Text]
    """Hosts of its first and its last rank."""
    ranks: tuple[Rank, Rank]
    """The first and the last."""
    count: Count
    worst: Rank
    """The rank that is worst over all columns."""
    hot_share: float = 0.0
    """Share of the columns that are late, or at least 5% over the others; for waits half of the step, for GPUs idle
    half of the time."""
    hot_since: Count | None = None
    """The step since which all are; None: the last one is not."""
    meant: Count = 0
    """Number of its ranks that are late anywhere; 0: not asked for, or none."""


class HeatView(msgspec.Struct, frozen=True):
    """Ranks through time."""

    metric: Text
    steps: Count
    """In a column."""
    first: Count
    """The number of the first column, counted from the first step on: steps from first x steps."""
    columns: Count
    last_step: Count
    low: float
    """Values of a cell of 1 and of 254: fractions over the median, of the step, of the time in which the GPU did
    nothing, or losses."""
    high: float
    rows: list[HeatRow]
    cells: bytes
    """Row by row. 0: nothing known; 255: not finite."""
    beyond_chance: bool = False
    """A cell is 1: within the noise; or 2 and more: late, by the first of HEAT_LEVELS and further ones."""
    noise: float | None = None
    """The share up to which a cell is within the noise; None: it was not measured."""
    moments: list[Seconds | None] = msgspec.field(default_factory=list)
    """Moments at which columns ended, since the run started: HEAT_MOMENTS of them evenly from the first to the last."""


class TimelineStep(msgspec.Struct, array_like=True, frozen=True):
    """A step of the whole world."""

    step: Count
    length_ms: float
    critical: Rank | None
    """The rank that arrived last."""
    mended_ms: float | None
    """Length that the step would have had with `mended` as its peers."""


class TimelineRow(msgspec.Struct, array_like=True, frozen=True):
    """A rank in the last steps."""

    rank: Rank
    host: Text
    phases_ms: list[tuple[float, ...]]
    """Phases of each step, in the order of PHASES."""


class LongStep(msgspec.Struct, array_like=True, frozen=True):
    """One of the longest steps of a run."""

    step: Count
    length_ms: float
    rank: Rank
    """That arrived last, or else did most."""
    phase: Text
    """Phase, of PHASES, that is longest over its usual length."""
    over_ms: float
    """Excess of that phase."""


class TimelineView(msgspec.Struct, frozen=True):
    """The last steps, rank by rank."""

    steps: list[TimelineStep]
    """Oldest first."""
    rows: list[TimelineRow]
    """The latest to arrive first."""
    ranks: Rank
    """In the world, of those that were wished for."""
    mended: Rank | None = None
    """The rank that holds the others back, whose own time is its peers' in `mended_ms`; of several the first."""
    mended_ranks: list[Rank] = msgspec.field(default_factory=list)
    """All of them."""
    mended_host: Text = ""
    """The host that holds the others back; "": ranks do."""
    longest: list[LongStep] = msgspec.field(default_factory=list)
    """The longest first, where they are wished for."""
    longest_since: Count = 0
    """The first step that was looked at for them."""


class CostView(msgspec.Struct, frozen=True):
    """Cost of all-reduce, and the efficiencies, over other steps than the snapshot's window."""

    over: Text
    """One of COST_WINDOWS."""
    window: tuple[Count, Count]
    """The first and the last step."""
    steps: Count
    """That the costs are of."""
    all_reduce: AllReduceView | None
    efficiency: EfficiencyView | None
    slowest: Rank | None = None
    """The rank with the most own time."""
    slowest_over: float | None = None
    """Its own time over the median of the others', as a fraction."""


class PrintedLine(msgspec.Struct, array_like=True, frozen=True):
    """A line of a rank's output."""

    stream: Text
    """"out", "err", or "launcher" where its launcher prints for it."""
    text: Text


class PrintedView(msgspec.Struct, frozen=True):
    """The last lines that a rank printed."""

    rank: Rank
    total: Count = 0
    """Number of lines that were read so far: `lines` are the last of those."""
    lines: list[PrintedLine] = msgspec.field(default_factory=list)
    why: Text = ""
    """Why there is none, in words."""


class StackView(msgspec.Struct, frozen=True):
    """Last known place of a rank's training thread, by its latest stack."""

    rank: Rank
    stack: Stack | None = None
    at: Seconds | None = None
    """Moment of the stack, Unix seconds; None: on a host whose clock is another."""
    asked: bool = False
    """A viewer asked, and it has not answered yet."""
    why: Text = ""
    """Why there is no stack, in words; empty: nothing is in its way."""
    steps_since: Count = 0
    """Steps that it has finished since: where there are some, it is elsewhere by now."""


class Course(msgspec.Struct, array_like=True, frozen=True):
    """One quantity of a rank, or of a core, through time. A cell a column, the newest last; 0: nothing known; 255: not
    finite.
    """

    rank: Rank
    """The rank, or the number of the core, as the kernel counts them."""
    name: Text
    low: float
    """Values of a cell of 1 and of 254."""
    high: float
    cells: bytes
    peers: bytes = b""
    """The median of its peers; empty: it is not compared."""
    longer: Text = ""
    """Moment since which it takes longer than its peers, in words; empty: it does not."""


class CoursesView(msgspec.Struct, frozen=True):
    """Courses through the same steps or seconds."""

    per_column: Count
    """Steps in a column, or seconds."""
    columns: Count
    """0 of cores: nobody tells of them, now or later."""
    courses: list[Course]
    """None before anything is measured."""
    last_step: Count = 0
    host: Text = ""
    """The machine whose cores they are."""


class InspectView(msgspec.Struct, frozen=True):
    """One rank through time, and where it is."""

    rank: Rank
    history: CoursesView
    """Its own time, each of PHASES, its step and its loss; empty before its first step."""
    where: StackView
