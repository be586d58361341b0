"""The snapshot that viewers are shown, and its parts.

The types say what a value may be; the decoder of viewers refuses a snapshot with others. A measured quantity may be
any float, nan and infinity too.
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
from ddpmon.messages.vocabulary import LOGGED, LOSS_OF, Count, Rank, Seconds, Text, WorldSize


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


class TimesView(msgspec.Struct, frozen=True):
    """Division of a run's time, in seconds; the world's, not a sum over ranks."""

    start_s: Seconds
    """Time from the launch to the end of the first step."""
    training_s: Seconds
    """In training steps since then."""
    paused_s: dict[Text, Seconds] = msgspec.field(default_factory=dict)
    """Time of each kind of pause in PAUSES that occurred."""
    counts: dict[Text, Count] = msgspec.field(default_factory=dict)
    """Number of pauses of each kind."""


class PausingView(msgspec.Struct, frozen=True):
    """Activity of a run that does not train just now."""

    kind: Text
    """One of PAUSES."""
    ranks: list[Rank]
    """Ranks that do it."""
    seconds: Seconds


class Series(msgspec.Struct, frozen=True):
    """A quantity over time for all ranks at once, oldest first; all lists are equally long."""

    seconds: list[Seconds] = msgspec.field(default_factory=list)
    """Moments since the run started."""
    low: list[float | None] = msgspec.field(default_factory=list)
    median: list[float | None] = msgspec.field(default_factory=list)
    high: list[float | None] = msgspec.field(default_factory=list)


class Event(msgspec.Struct, frozen=True):
    """Something that happened to the run."""

    at: Seconds
    """Unix seconds."""
    severity: Text
    """"info", "warn" or "critical"."""
    text: Text


class DeviceMark(msgspec.Struct, frozen=True):
    """Words of a finding about the machines of its ranks."""

    words: Text
    """A word such as "throttled"."""
    columns: list[Text]
    """Columns of Devices that show it, by the names of their quantities."""
    order: Count
    """Rank among several: the highest is shown."""


class Episode(msgspec.Struct, frozen=True):
    """One stretch of steps of a finding that comes and goes."""

    since_step: Count | None = None
    until_step: Count | None = None
    """None: it lasts, or its kind names no steps."""
    cost_s: float | None = None
    phases: list[Text] = msgspec.field(default_factory=list)
    """In the order in which they were reported."""
    times: Count = 1
    """More than 1: so many episodes, whose steps and costs are told together."""


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
    """Subject of a finding that is about neither its ranks nor the world: a host, or an activity besides training."""
    brief: Text = ""
    """The text in fewer words, where there are fewer."""
    explains: Text = ""
    """State, of STATES, that it is the reason of: "failed" or "stalled"."""
    device: DeviceMark | None = None
    lead: Count = 0
    """Characters at the beginning of the text that say who or what; 0: all of it does."""
    cost_s: float | None = None
    """Cost so far, in all its episodes; None: it costs nothing that is measured."""
    episodes: list[Episode] = msgspec.field(default_factory=list)
    """Oldest first; since_step, until_step and cost_ms are those of the last one."""
    reported_at: Seconds | None = None
    """Moment at which it was first reported, Unix seconds."""
    ended_at: Seconds | None = None
    """Moment at which its end was noticed, Unix seconds; None: it lasts."""

    @property
    def lasts(self) -> bool:
        """Return whether it goes on, as far as is known."""
        return self.until_step is None


class Attempt(msgspec.Struct, frozen=True):
    """An attempt of a run that ended before its ranks were restarted."""

    number: Count
    """Counts from 1."""
    world_size: WorldSize
    steps: Count
    """Finished in it."""
    ranks: list[Rank] = msgspec.field(default_factory=list)
    """Ranks that failed first, all alike; empty where they are not known."""
    cause: Text | None = None
    exit: Text | None = None
    """End of the first of them, where the cause does not tell it: "exit 1"."""


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
    """Earlier ones, oldest first; empty where ranks were never restarted."""
    kill_at: float | None = None
    """End of the grace of a run that is being stopped, Unix seconds; None: it is not being stopped."""


class Refusal(msgspec.Struct, frozen=True):
    """Count of an invalid value from outside: it was ignored, and nothing else suffered from it."""

    rank: int | None
    """Rank that sent it; None: no rank of this run."""
    what: str
    """"total_steps", "samples of a step", "a step", or a whole message of some kind."""
    count: int


class VerdictFacts(msgspec.Struct, frozen=True):
    """A verdict as data: nobody has to read its words."""

    topic: list[Text]
    """Topic of the verdict. Two verdicts with the same one differ in nothing but figures."""
    lead: Count = 0
    """Characters at its beginning that say who or what; 0: all of it does."""
    findings: list[Count] = msgspec.field(default_factory=list)
    """Places in the snapshot's findings of those whose whole text is in it."""


class ClockView(msgspec.Struct, frozen=True):
    """Precision of a host's clock beside that of another one, by which all times are given."""

    host: Text
    reference: Text
    offset_s: float
    """To be added to its clock, at its latest step."""
    drift_ppm: float
    within_ms: float
    """That is right to so much if synchronisations end everywhere at once."""
    surely_ms: float | None
    """That is right to so much however late a host's link makes its ends; None: not known."""


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
    """Buckets in the order in which DDP hands them over, where they are recorded."""
    bus_bandwidth_gb_s: float | None = None
    """Bandwidth of the buckets' all-reduces, where they are recorded."""
    all_reduce: AllReduceView | None = None
    """Cost of all-reduce, where gradients are synchronised."""
    efficiency: EfficiencyView | None = None
    """Efficiency, where more than one rank trains."""
    heat: HeatView | None = None
    """The heat map, if requested."""
    timeline: TimelineView | None = None
    """The last steps, if requested."""
    quantities: list[Text] = msgspec.field(default_factory=list)
    """Quantities that can be requested over time: those of STEP_SERIES and SAMPLE_SERIES that the run has, and
    "log:NAME" of logs."""
    series: SeriesView | None = None
    """A quantity over time, if requested."""
    cost: CostView | None = None
    """Cost of all-reduce over other steps, if requested."""
    inspect: InspectView | None = None
    """The inspected rank, if requested."""
    stacks: list[StackView] = msgspec.field(default_factory=list)
    """Place of every rank's training thread, if requested."""
    times: TimesView | None = None
    """Division of the run's time, from the first step on."""
    pausing: PausingView | None = None
    """While it does."""
    accumulation: Count = 1
    """Batches whose gradients a step adds up."""
    training_epoch: Count | None = None
    """The pass over the data that runs, counted from 1; `epoch` is the hub's."""
    training_epochs: Count | None = None
    parallelism: Text = ""
    """Kind of parallel training: DDP, FSDP2, …, as the ranks' Hello tells it; "" where none can tell."""
    unmeasured: list[Text] = msgspec.field(default_factory=list)
    """Phases of PHASES that are not measured in this kind of training."""
    measured: Text = ""
    """One sentence: what is measured then and what is not; "" where all is, with DDP."""
    refused: list[Refusal] = msgspec.field(default_factory=list)
    """Values that the hub refused as impossible."""
    missing: dict[Text, Text] = msgspec.field(default_factory=dict)
    """Why BUCKETS or GPU_COUNTERS are not there, of the first rank that says so."""
    verdict_facts: VerdictFacts | None = None
    """Facts of the verdict; None: a hub of another version sent its words alone."""
    samples: CoursesView | None = None
    """Samples of some ranks over time, if requested."""
    strips: CoursesView | None = None
    """Own time of some ranks over time, if requested."""
    heat_phases: list[HeatView] = msgspec.field(default_factory=list)
    """Heat maps of OWN_PHASES, if requested."""
    sync: CoursesView | None = None
    """Series "wait", "transfer", "parallel", "load balance" and "communication" of all ranks, if requested."""
    clocks: list[ClockView] = msgspec.field(default_factory=list)
    """Clocks of each host but the first, where there are several."""
    printed: PrintedView | None = None
    """Output of a rank, if requested."""
    cores: CoursesView | None = None
    """Cores of the hub's machine while the run goes on, if requested: they are not recorded one by one."""
    profile: ProfileView | None = None
    """The latest profile of ranks, if requested."""


def models_with_loss(snapshot: Snapshot) -> list[str]:
    """Return the models whose losses add up to the snapshot's, where a step updates several; else nothing."""
    return [name.removeprefix(LOGGED + LOSS_OF) for name in snapshot.quantities if name.startswith(LOGGED + LOSS_OF)]
