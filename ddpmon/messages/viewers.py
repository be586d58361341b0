"""What viewers are shown: the snapshot and its parts.

The types say what a value may be; the decoder of viewers refuses a snapshot with others. A measured quantity may be
any float, nan and infinity too.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from ddpmon.messages.ranks import Stack
from ddpmon.messages.words import MAX_TEXT, MAX_US, MAX_WORLD, PHASES, SYNC_GRADIENTS, SYNC_KINDS

Rank: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_WORLD)]
WorldSize: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_WORLD)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_US)]
"""Of steps, bytes and whatever else is counted."""
Seconds: TypeAlias = Annotated[float, Meta(ge=-MAX_US, le=MAX_US)]
"""A moment or a span of time: finite."""
Text: TypeAlias = Annotated[str, Meta(max_length=4 * MAX_TEXT)]


class Gpu(msgspec.Struct, frozen=True):
    """A rank's GPU, latest values."""

    percent: float | None = None
    memory_used_bytes: Count | None = None
    memory_total_bytes: Count | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    clock_mhz: float | None = None
    throttled: Text | None = None
    """Why it holds its clocks down; "" if it does not."""


class Exit(msgspec.Struct, frozen=True):
    """How a rank ended."""

    code: int | None = None
    signal: Text | None = None
    error: Text | None = None
    """One line, of the exception that nobody caught."""
    traceback: Text | None = None


class Environment(msgspec.Struct, array_like=True, frozen=True):
    """What a rank runs on and with, as it said itself. Empty or 0: not known."""

    device_name: Text = ""
    """The GPU's own name."""
    cores: Count = 0
    """That the process may run on."""
    compute_threads: Count = 0
    """That torch uses for one operation on the CPU."""
    torch_version: Text = ""
    backend: Text = ""
    parameters: Count = 0
    gradient_bytes: Count = 0
    buffer_bytes: Count = 0
    restart: Count = 0
    """torchrun's restart count."""
    loader_workers: Count | None = None
    """Of the DataLoader that was read last."""


class RankView(msgspec.Struct, frozen=True):
    """One rank over the current window. None: not known."""

    rank: Rank
    host: Text = ""
    local_rank: Count = 0
    node_rank: Count = 0
    pid: Count = 0
    device: Text = "cpu"
    stage: Text = "importing"
    """One of STAGES."""
    health: Text = "missing"
    """"missing" (never heard), "ok", "silent" (heartbeat overdue), "dead" (process gone), "left" (said goodbye)."""
    steps: Count = 0
    step_ms: float | None = None
    own_ms: float | None = None
    over_median: float | None = None
    """Own time over the world's median own time, as a fraction: 0.15 is 15% slower."""
    phases_ms: tuple[float, ...] | None = None
    """Mean per step, in the order of PHASES; adds up to step_ms."""
    late_ms: float | None = None
    """Mean lateness: own arrival less the world's median arrival in the gradient synchronisation, each less what the
    rank had waited in the step until then."""
    critical_share: float | None = None
    loss: float | None = None
    samples_per_s: float | None = None
    cpu_percent: float | None = None
    rss_bytes: Count | None = None
    gpu: Gpu | None = None
    exit: Exit | None = None
    cpu_starved_share: float | None = None
    """Share of the last seconds in which the training thread could run but got no core."""
    tokens_per_s: float | None = None
    learning_rate: float | None = None
    gc_ms: float | None = None
    """Python's garbage collector, mean per step, inside whatever phase it fell into."""
    major_faults_per_s: float | None = None
    read_bytes_per_s: float | None = None
    written_bytes_per_s: float | None = None
    threads: Count | None = None
    stack: Stack | None = None
    """Where its training thread was last, of a run that stands still or has ended."""
    environment: Environment | None = None
    named_ms: dict[Text, float] = msgspec.field(default_factory=dict)
    """Time inside each `ddpmon.phase` that any rank of the world had, mean per step, part of the phases."""
    unmeasured: list[Text] = msgspec.field(default_factory=list)
    """Phases of which nothing is measured in this kind of training: their numbers in `phases_ms` mean nothing."""
    window: tuple[Count, Count] | None = None
    """First and last step that its means are of, where it told of none since and they are not the snapshot's."""
    minor_faults_per_s: float | None = None
    sent_bytes_per_s: float | None = None
    """Over the network, by its whole host."""
    received_bytes_per_s: float | None = None

    def phase_ms(self, name: str) -> float | None:
        """A phase of the rank's step; None where it is not measured, or not yet."""
        place, phases = PHASES.index(name), self.phases_ms or ()
        return phases[place] if place < len(phases) and name not in self.unmeasured else None


class BucketView(msgspec.Struct, frozen=True):
    """The all-reduce of one of DDP's buckets, mean over steps and ranks."""

    model: Count
    index: Count
    payload_bytes: Count
    launch_ms: float
    """After the start of the step."""
    end_ms: float
    transfer_ms: float
    """On the rank that took the shortest in each step: the one that waited for nobody."""
    parameters: list[Text]


class AllReduceView(msgspec.Struct, frozen=True):
    """What the gradient synchronisation costs, mean over steps and ranks; without DDP what all collectives cost."""

    payload_bytes: float
    """Of a step."""
    wait_ms: float
    transfer_ms: float
    exposed_share: float
    """Wait + transfer over the step: the part of communication that compute did not hide."""
    gain_without_waiting: float | None = None
    """How many times faster the run were if the work of each step were spread evenly, so that nobody waits."""
    gain_with_even_transfer: float | None = None
    """The same if every step's transfer took its median."""
    beside_ms: float | None = None
    """Blocked in other synchronisations of a step: buffers, collectives that the script calls."""
    kind: Text = SYNC_KINDS[SYNC_GRADIENTS]
    """Of SYNC_KINDS: where DDP synchronises no gradients, what all collectives cost, whose bytes are not known."""


class EfficiencyView(msgspec.Struct, frozen=True):
    """The POP Centre's efficiencies (co-design.pop-coe.eu/metrics); each at most 1."""

    parallel: float
    """load_balance x communication"""
    load_balance: float
    """load_balance_persistent x load_balance_moving"""
    load_balance_persistent: float
    load_balance_moving: float
    communication: float


class TimesView(msgspec.Struct, frozen=True):
    """Where a run's time went, in seconds; the world's, not a sum over ranks."""

    start_s: Seconds
    """From the launch to the end of the first step."""
    training_s: Seconds
    """In training steps since then."""
    paused_s: dict[Text, Seconds] = msgspec.field(default_factory=dict)
    """By kind of pause, of PAUSES; those that were."""
    counts: dict[Text, Count] = msgspec.field(default_factory=dict)
    """How many of each there were."""


class PausingView(msgspec.Struct, frozen=True):
    """What a run does just now instead of training."""

    kind: Text
    """One of PAUSES."""
    ranks: list[Rank]
    """Those that do it."""
    seconds: Seconds


class Series(msgspec.Struct, frozen=True):
    """A quantity over time for all ranks at once, oldest first; all lists are equally long."""

    seconds: list[Seconds] = msgspec.field(default_factory=list)
    """Since the run started."""
    low: list[float | None] = msgspec.field(default_factory=list)
    median: list[float | None] = msgspec.field(default_factory=list)
    high: list[float | None] = msgspec.field(default_factory=list)


class SeriesView(msgspec.Struct, frozen=True):
    """A quantity over a stretch of time for all ranks at once, oldest first; all lists are equally long."""

    name: Text
    seconds: list[Seconds]
    """Since the run started, of the last step in each point."""
    steps: list[Count]
    """The number of that step; 0: not known."""
    low: list[float | None]
    median: list[float | None]
    """Of a point of several steps: the mean of their medians."""
    high: list[float | None]
    worst: list[Rank | None]
    """The rank with the highest value, or the lowest where that is the one to look at; None: nobody is known to be."""
    merged: Count = 1
    """So many steps are in a point, or seconds of samples."""
    first_s: Seconds = 0.0
    """When the quantity was first told of, and last."""
    last_s: Seconds = 0.0


class Event(msgspec.Struct, frozen=True):
    """Something that happened to the run."""

    at: Seconds
    """Unix seconds."""
    severity: Text
    """"info", "warn" or "critical"."""
    text: Text


class DeviceMark(msgspec.Struct, frozen=True):
    """What a finding says of the machines of its ranks."""

    words: Text
    """As in: throttled."""
    columns: list[Text]
    """Of Devices: those that show it."""
    order: Count
    """Of several, the highest is said."""


class Finding(msgspec.Struct, frozen=True):
    """Something wrong that the evidence carries; the report's schema names the fields."""

    kind: Text
    severity: Text
    text: Text
    ranks: list[Rank] = msgspec.field(default_factory=list)
    phase: Text | None = None
    since_step: Count | None = None
    until_step: Count | None = None
    cost_ms: float | None = None
    evidence: dict[Text, Any] = msgspec.field(default_factory=dict)
    advice: Text | None = None
    subject: Text = ""
    """What it is about where that is neither its ranks nor the world: a host, or what the run does besides training."""
    brief: Text = ""
    """The text in fewer words, where there are fewer."""
    explains: Text = ""
    """Of STATES, the one that it is the reason of: "failed" or "stalled"."""
    device: DeviceMark | None = None


class Attempt(msgspec.Struct, frozen=True):
    """An attempt of a run that ended before its ranks were restarted."""

    number: Count
    """Counts from 1."""
    world_size: WorldSize
    steps: Count
    """Finished in it."""
    ranks: list[Rank] = msgspec.field(default_factory=list)
    """Who failed first, all alike; empty where that is not known."""
    cause: Text | None = None
    exit: Text | None = None
    """How the first of them ended, where the cause does not say it: "exit 1"."""


class RunView(msgspec.Struct, frozen=True):
    """What is being watched."""

    id: Text
    name: Text
    world_size: WorldSize
    nnodes: Count = 1
    script: Text = ""
    started_at: Seconds = 0.0
    ended_at: Seconds | None = None
    exit_code: int | None = None
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    """Earlier ones, oldest first; empty where ranks were never restarted."""
    kill_at: float | None = None
    """When the grace of a run that is being stopped is over, Unix seconds; None: it is not being stopped."""


class HeatRow(msgspec.Struct, array_like=True, frozen=True):
    """A row of the heat map: one rank, or the worst of several at each moment."""

    hosts: tuple[Text, Text]
    """Of its first and its last rank."""
    ranks: tuple[Rank, Rank]
    """The first and the last."""
    count: Count
    worst: Rank
    """The rank that is worst over all columns."""
    hot_share: float = 0.0
    """Of the columns: at least 5% over the median; of waits half of the step, of GPUs idle for half of the time."""
    hot_since: Count | None = None
    """The step since which all are; None: the last one is not."""


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
    """What a cell of 1 stands for, and one of 254: fractions over the median, of the step, of the time
    in which the GPU did nothing, or losses."""
    high: float
    rows: list[HeatRow]
    cells: bytes
    """Row by row. 0: nothing known; 255: not finite."""


class TimelineStep(msgspec.Struct, array_like=True, frozen=True):
    """A step of the whole world."""

    step: Count
    length_ms: float
    critical: Rank | None
    """The rank that arrived last."""
    mended_ms: float | None
    """How long the step would have been with `mended` as its peers."""


class TimelineRow(msgspec.Struct, array_like=True, frozen=True):
    """A rank in the last steps."""

    rank: Rank
    host: Text
    phases_ms: list[tuple[float, ...]]
    """Of each step, in the order of PHASES."""


class TimelineView(msgspec.Struct, frozen=True):
    """The last steps, rank by rank."""

    steps: list[TimelineStep]
    """Oldest first."""
    rows: list[TimelineRow]
    """The latest to arrive first."""
    ranks: Rank
    """In the world, of those that were wished for."""
    mended: Rank | None = None
    """The rank that holds the others back, whose own time is its peers' in `mended_ms`."""


class CostView(msgspec.Struct, frozen=True):
    """What all-reduce costs, and the efficiencies, over other steps than the snapshot's window."""

    over: Text
    """One of COST_WINDOWS."""
    window: tuple[Count, Count]
    """The first and the last step."""
    steps: Count
    """That are told of."""
    all_reduce: AllReduceView | None
    efficiency: EfficiencyView | None
    slowest: Rank | None = None
    """The rank with the most own time."""
    slowest_over: float | None = None
    """Its own time over the world's median, as a fraction."""


class StackView(msgspec.Struct, frozen=True):
    """Where a rank's training thread was last, as far as it told."""

    rank: Rank
    stack: Stack | None = None
    at: Seconds | None = None
    """When it was there, Unix seconds; None: on a host whose clock is another."""
    asked: bool = False
    """A viewer asked, and it has not answered yet."""
    why: Text = ""
    """Why it cannot tell, in words; empty: nothing is in its way."""


class PastRow(msgspec.Struct, array_like=True, frozen=True):
    """One quantity of a rank through time, beside the median of its peers."""

    name: Text
    """"own", one of PHASES, "step" or "loss"."""
    low: float
    """What a cell of 1 stands for, and one of 254: milliseconds, or losses."""
    high: float
    mine: bytes
    """A cell a column. 0: nothing known; 255: not finite."""
    peers: bytes
    longer: Text = ""
    """Since when it takes longer than its peers, in words; empty: it does not."""


class InspectView(msgspec.Struct, frozen=True):
    """One rank through time, and where it is."""

    rank: Rank
    steps: Count
    """In a column."""
    columns: Count
    last_step: Count
    rows: list[PastRow]
    """Empty before its first step."""
    where: StackView


class Refusal(msgspec.Struct, frozen=True):
    """What came from outside and could not be: it was left out, and nothing else suffered from it."""

    rank: int | None
    """Of the rank that told it; None: of no rank of this run."""
    what: str
    """"total_steps", "samples of a step", "a step", or a whole message of some kind."""
    count: int


class Snapshot(msgspec.Struct, frozen=True, tag="snapshot"):
    """All that a screen needs, at one moment. Viewers show it and compute nothing of their own from it."""

    epoch: Text
    version: Count
    at: Seconds
    run: RunView
    state: Text
    verdict: Text
    """One sentence; in the waiting state it says what is waited for."""
    severity: Text = "info"
    """Of the verdict: "info", "warn" or "critical"."""
    verdict_since: Seconds | None = None
    step: Count = 0
    total_steps: Count | None = None
    eta_s: float | None = None
    step_ms_p50: float | None = None
    step_ms_max: float | None = None
    loss: float | None = None
    loss_falls: bool | None = None
    all_reduce_ms: float | None = None
    """Exposed: wait + transfer of the gradient synchronisation, mean over ranks."""
    wait_share: float | None = None
    """Mean wait over the step."""
    gpu_percent: float | None = None
    samples_per_s: float | None = None
    records_lost: Count = 0
    window: tuple[Count, Count] | None = None
    """First and last step that the rank values are means of."""
    ranks: list[RankView] = msgspec.field(default_factory=list)
    loss_series: Series = msgspec.field(default_factory=Series)
    own_series: Series = msgspec.field(default_factory=Series)
    """low: the fastest rank's own ms, median, high: the slowest rank's."""
    findings: list[Finding] = msgspec.field(default_factory=list)
    events: list[Event] = msgspec.field(default_factory=list)
    notes: list[Text] = msgspec.field(default_factory=list)
    buckets: list[BucketView] = msgspec.field(default_factory=list)
    """Where they are recorded, in the order in which DDP hands them over."""
    bus_bandwidth_gb_s: float | None = None
    """Where buckets are recorded."""
    all_reduce: AllReduceView | None = None
    """Where gradients are synchronised."""
    efficiency: EfficiencyView | None = None
    """Where more than one rank trains."""
    heat: HeatView | None = None
    """Where it is wished for."""
    timeline: TimelineView | None = None
    """Where it is wished for."""
    quantities: list[Text] = msgspec.field(default_factory=list)
    """What can be wished for over time: of STEP_SERIES and SAMPLE_SERIES what the run has, and "log:NAME" of logs."""
    series: SeriesView | None = None
    """Where it is wished for."""
    cost: CostView | None = None
    """Where it is wished for."""
    inspect: InspectView | None = None
    """Where it is wished for."""
    stacks: list[StackView] = msgspec.field(default_factory=list)
    """Where they are wished for."""
    times: TimesView | None = None
    """From the first step on."""
    pausing: PausingView | None = None
    """While it does."""
    accumulation: Count = 1
    """Batches whose gradients a step adds up."""
    training_epoch: Count | None = None
    """The pass over the data that runs, counted from 1; `epoch` is the hub's."""
    training_epochs: Count | None = None
    parallelism: Text = ""
    """How the ranks train: DDP, FSDP2, …, as their Hello says it; "" where none can tell."""
    unmeasured: list[Text] = msgspec.field(default_factory=list)
    """Of PHASES, those of which nothing is measured then."""
    measured: Text = ""
    """One sentence: what is measured then and what is not; "" where all is, with DDP."""
    refused: list[Refusal] = msgspec.field(default_factory=list)
    """What the hub did not take, because it cannot be."""


class Refused(msgspec.Struct, array_like=True, tag="refused"):
    """The hub will not serve this viewer; `reason` is for people."""

    reason: Text
