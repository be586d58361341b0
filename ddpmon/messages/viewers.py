"""The snapshot that viewers show, and its parts.

The types declare the allowed values. The decoder of viewers refuses a snapshot with a value that is not allowed. A
measured quantity may be any float, including NaN and infinity.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ddpmon.messages.profiles import ProfileView
from ddpmon.messages.rank_view import RankView
from ddpmon.messages.view_parts import (
    AllReduceView,
    CostView,
    CoursesView,
    EfficiencyView,
    HeatView,
    InspectView,
    PrintedView,
    SeriesView,
    StackView,
    TimelineView,
)
from ddpmon.messages.vocabulary import (
    LOGGED,
    LOSS_OF,
    Count,
    Moment,
    Rank,
    Seconds,
    Severity,
    Text,
    WorldSize,
    require_equal_lengths,
)


class BucketView(msgspec.Struct, frozen=True):
    """The all-reduce of one of DDP's buckets. Times are means over steps and ranks."""

    model: Count
    index: Count
    payload_bytes: Count
    launch_ms: float
    """Moments at which the all-reduce began and ended, in milliseconds after the start of the step."""
    end_ms: float
    transfer_ms: float
    """Duration in milliseconds on the rank with the shortest all-reduce in each step. This rank waited for no other
    rank."""
    parameters: list[Text]


class TimesView(msgspec.Struct, frozen=True):
    """How a run spent its time, in seconds of wall-clock time, not summed over ranks."""

    start_s: Seconds
    """Seconds from the launch to the end of the first step."""
    training_s: Seconds
    """Seconds in training steps since the end of the first step."""
    paused_s: dict[Text, Seconds] = msgspec.field(default_factory=dict)
    """Seconds in each kind of pause in PAUSES that occurred."""
    counts: dict[Text, Count] = msgspec.field(default_factory=dict)
    """Number of pauses of each kind."""


class PausingView(msgspec.Struct, frozen=True):
    """Activity of a run that is not training at the moment."""

    kind: Text
    """One of PAUSES."""
    ranks: list[Rank]
    """Ranks that are in this pause."""
    seconds: Seconds
    """Time since the pause began."""


class Series(msgspec.Struct, frozen=True):
    """A quantity over time for all ranks at once, oldest first; all lists are equally long."""

    seconds: list[Seconds] = msgspec.field(default_factory=list)
    """Moment of each point, in seconds since the run started."""
    low: list[float | None] = msgspec.field(default_factory=list)
    median: list[float | None] = msgspec.field(default_factory=list)
    high: list[float | None] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        require_equal_lengths((self.seconds, self.low, self.median, self.high), "points of a series")


class Event(msgspec.Struct, frozen=True):
    """Something that happened to the run, as one sentence."""

    at: Moment
    severity: Severity
    text: Text


class DeviceMark(msgspec.Struct, frozen=True):
    """Mark that a finding puts on its ranks' rows in the Devices screen."""

    words: Text
    """A word such as "throttled"."""
    columns: list[Text]
    """Names of the quantities whose columns show the mark."""
    order: Count
    """Priority of the mark. Of several marks, the one with the highest priority is shown."""


class Episode(msgspec.Struct, frozen=True):
    """A range of steps during which a finding was present. A finding that recurs has several episodes."""

    since_step: Count | None = None
    until_step: Count | None = None
    """Last step, or None if the episode goes on or its kind of finding names no steps."""
    cost_s: float | None = None
    phases: list[Text] = msgspec.field(default_factory=list)
    """Slow phases, in the order in which they were reported."""
    times: Count = 1
    """Number of episodes that are merged into this episode, which includes their steps and costs."""


class Finding(msgspec.Struct, frozen=True):
    """A problem that the evidence proves. The schema of the report describes the fields."""

    kind: Text
    severity: Severity
    text: Text
    ranks: list[Rank] = msgspec.field(default_factory=list)
    phase: Text | None = None
    since_step: Count | None = None
    until_step: Count | None = None
    cost_ms: float | None = None
    evidence: dict[Text, Any] = msgspec.field(default_factory=dict)
    advice: Text | None = None
    subject: Text = ""
    """Subject of a finding that is about neither ranks nor the world, such as a host or an activity besides
    training."""
    brief: Text = ""
    """A shorter form of the text, or "" if there is none."""
    explains: Text = ""
    """State of the run that the finding explains: "failed" or "stalled", or "" if it explains none."""
    device: DeviceMark | None = None
    lead: Count = 0
    """Number of characters at the beginning of the text that name its subject, or 0 if the whole text does."""
    cost_s: float | None = None
    """Cost of the finding so far, in seconds over all episodes, or None if no cost is measured."""
    episodes: list[Episode] = msgspec.field(default_factory=list)
    """Episodes, oldest first. The finding's since_step, until_step and cost_ms are those of the last episode."""
    reported_at: Seconds | None = None
    """Moment at which the finding was first reported, in Unix seconds."""
    ended_at: Seconds | None = None
    """Moment at which the finding's end was noticed, in Unix seconds, or None if the finding goes on."""

    @property
    def is_lasting(self) -> bool:
        """Return whether the finding goes on, as far as is known."""
        return self.until_step is None


class Attempt(msgspec.Struct, frozen=True):
    """An attempt of a run that ended before its ranks were restarted."""

    number: Count
    """Number of the attempt, from 1."""
    world_size: WorldSize
    steps: Count
    """Number of steps that were finished in the attempt."""
    ranks: list[Rank] = msgspec.field(default_factory=list)
    """Ranks that failed first, all in the same way, or empty if these ranks are not known."""
    cause: Text | None = None
    exit: Text | None = None
    """Text that says how the first of these ranks ended, such as "exit 1", or None if the cause already says it."""


class RunView(msgspec.Struct, frozen=True):
    """The run that is being watched."""

    id: Text
    name: Text
    world_size: WorldSize
    nnodes: Count = 1
    script: Text = ""
    started_at: Seconds = 0.0
    ended_at: Seconds | None = None
    exit_code: int | None = None
    attempts: list[Attempt] = msgspec.field(default_factory=list)
    """Earlier attempts, oldest first; empty if the ranks were never restarted."""
    kill_at: float | None = None
    """End of the grace period of a run that is being stopped, in Unix seconds, or None if it is not being stopped."""
    attached: bool = False
    """True if ddpmon attached to a job that was training already: nothing is known of the time before."""


class Refusal(msgspec.Struct, frozen=True):
    """Number of invalid values of one kind from one sender. The hub ignored these values."""

    rank: int | None
    """Rank that sent the values, or None if the sender is no rank of this run."""
    what: str
    """Kind of the invalid values: "total_steps", "samples of a step", "a step", or a kind of message."""
    count: int


class VerdictFacts(msgspec.Struct, frozen=True):
    """A verdict as data, so that no program has to parse its text."""

    topic: list[Text]
    """Topic of the verdict. Two verdicts with the same topic differ only in their figures."""
    lead: Count = 0
    """Number of characters at the beginning of the text that name its subject, or 0 if the whole text does."""
    findings: list[Count] = msgspec.field(default_factory=list)
    """Indices of the snapshot's findings whose whole text is part of the verdict."""


class ClockView(msgspec.Struct, frozen=True):
    """Offset of a host's clock from the reference host's clock, and the offset's error. All times in a snapshot are on
    the reference clock.
    """

    host: Text
    reference: Text
    offset_s: float
    """Offset at the host's latest step: seconds to add to the host's clock to get the reference clock."""
    drift_ppm: float
    within_ms: float
    """Error bound of the offset in ms, assuming that a synchronisation ends on all hosts at the same moment."""
    surely_ms: float | None
    """Error bound of the offset in ms without that assumption, for any network delay, or None if unknown."""


class Snapshot(msgspec.Struct, frozen=True, tag="snapshot"):
    """Everything that screens need at one moment. Viewers show a snapshot's numbers and compute none of their own."""

    epoch: Text
    version: Count
    at: Seconds
    run: RunView
    state: Text
    verdict: Text
    """One sentence about the state of the run. In the waiting state it says what the run waits for."""
    severity: Text = "info"
    """Severity of the verdict: "info", "warn" or "critical"."""
    verdict_since: Seconds | None = None
    step: Count = 0
    total_steps: Count | None = None
    eta_s: float | None = None
    step_ms_p50: float | None = None
    step_ms_max: float | None = None
    loss: float | None = None
    loss_falls: bool | None = None
    all_reduce_ms: float | None = None
    """Exposed time of the gradient synchronisation in ms: wait + transfer, mean over ranks."""
    wait_share: float | None = None
    """Mean wait as a share of the step."""
    gpu_percent: float | None = None
    samples_per_s: float | None = None
    records_lost: Count = 0
    window: tuple[Count, Count] | None = None
    """First and last step of the window over which the means of the ranks are computed."""
    ranks: list[RankView] = msgspec.field(default_factory=list)
    loss_series: Series = msgspec.field(default_factory=Series)
    own_series: Series = msgspec.field(default_factory=Series)
    """Own time per step in milliseconds: `low` is the fastest rank's own time, `high` the slowest rank's."""
    findings: list[Finding] = msgspec.field(default_factory=list)
    events: list[Event] = msgspec.field(default_factory=list)
    notes: list[Text] = msgspec.field(default_factory=list)
    buckets: list[BucketView] = msgspec.field(default_factory=list)
    """Buckets in the order in which DDP launches them, if they are recorded."""
    bus_bandwidth_gb_s: float | None = None
    """Bandwidth of the buckets' all-reduces in GB/s, if buckets are recorded."""
    all_reduce: AllReduceView | None = None
    """Cost of all-reduce, if gradients are synchronised."""
    efficiency: EfficiencyView | None = None
    """Efficiencies, if more than one rank trains."""
    heat: HeatView | None = None
    """The heat map, if requested."""
    timeline: TimelineView | None = None
    """The last steps, if requested."""
    quantities: list[Text] = msgspec.field(default_factory=list)
    """Quantities that can be requested over time: those of STEP_SERIES and SAMPLE_SERIES that the run has, and
    "log:NAME" for each value that the script logs."""
    series: SeriesView | None = None
    """A quantity over time, if requested."""
    cost: CostView | None = None
    """Cost of all-reduce over the steps that the viewer selected, if requested."""
    inspect: InspectView | None = None
    """The inspected rank, if requested."""
    stacks: list[StackView] = msgspec.field(default_factory=list)
    """Latest known stack of every rank's training thread, if requested."""
    times: TimesView | None = None
    """How the run spent its time, from the first step on."""
    pausing: PausingView | None = None
    """The activity of the run instead of training, or None while the run trains."""
    accumulation: Count = 1
    """Number of batches whose gradients are accumulated in one step."""
    training_epoch: Count | None = None
    """Current epoch of the training, counted from 1. The field `epoch` is not about training: it identifies the hub
    process."""
    training_epochs: Count | None = None
    parallelism: Text = ""
    """Kind of parallel training, such as DDP or FSDP2, as the ranks report it, or "" if no rank could detect it."""
    unmeasured: list[Text] = msgspec.field(default_factory=list)
    """Phases of PHASES that are not measured in this kind of training."""
    measured: Text = ""
    """One sentence that says what is measured and what is not, or "" if everything is measured, as with DDP."""
    refused: list[Refusal] = msgspec.field(default_factory=list)
    """Numbers of values that the hub refused as impossible."""
    missing: dict[Text, Text] = msgspec.field(default_factory=dict)
    """Reasons why BUCKETS, GPU_COUNTERS or STEPS are missing, each from the first rank that gives one."""
    verdict_facts: VerdictFacts | None = None
    """The verdict as data, or None if a hub of another version sent only its text."""
    samples: CoursesView | None = None
    """Samples of some ranks over time, if requested."""
    strips: CoursesView | None = None
    """Own time of some ranks over time, if requested."""
    heat_phases: list[HeatView] = msgspec.field(default_factory=list)
    """Heat maps of OWN_PHASES, if requested."""
    sync: CoursesView | None = None
    """Series "wait", "transfer", "parallel", "load balance" and "communication" of all ranks, if requested."""
    clocks: list[ClockView] = msgspec.field(default_factory=list)
    """Clock of each host except the first, if there are several hosts."""
    printed: PrintedView | None = None
    """Output of a rank, if requested."""
    cores: CoursesView | None = None
    """Cores of the hub's machine, if requested while the run goes on. Single cores are not recorded."""
    profile: ProfileView | None = None
    """The latest profile of ranks, if requested."""


def models_with_loss(snapshot: Snapshot) -> list[str]:
    """Return the names of the models whose losses are summed in the snapshot's loss; [] if a step updates only one
    model.
    """
    return [name.removeprefix(LOGGED + LOSS_OF) for name in snapshot.quantities if name.startswith(LOGGED + LOSS_OF)]
