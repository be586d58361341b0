"""What viewers ask of the hub and are shown: the snapshot and its parts."""

from __future__ import annotations

from typing import Any

import msgspec

from ddpmon.messages.ranks import Stack


class Next(msgspec.Struct, array_like=True, tag="next"):
    """A viewer's credit for one snapshot newer than `version` of hub `epoch`."""

    version: int = 0
    epoch: str = ""


class Gpu(msgspec.Struct, frozen=True):
    """A rank's GPU, latest values."""

    percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    clock_mhz: float | None = None
    throttled: str | None = None
    """Why it holds its clocks down; "" if it does not."""


class Exit(msgspec.Struct, frozen=True):
    """How a rank ended."""

    code: int | None = None
    signal: str | None = None
    error: str | None = None
    """One line, of the exception that nobody caught."""
    traceback: str | None = None


class RankView(msgspec.Struct, frozen=True):
    """One rank over the current window. None: not known."""

    rank: int
    host: str = ""
    local_rank: int = 0
    node_rank: int = 0
    pid: int = 0
    device: str = "cpu"
    stage: str = "importing"
    """One of STAGES."""
    health: str = "missing"
    """"missing" (never heard), "ok", "silent" (heartbeat overdue), "dead" (process gone), "left" (said goodbye)."""
    steps: int = 0
    step_ms: float | None = None
    own_ms: float | None = None
    over_median: float | None = None
    """Own time over the world's median own time, as a fraction: 0.15 is 15% slower."""
    phases_ms: tuple[float, ...] | None = None
    """Mean per step, in the order of PHASES; adds up to step_ms."""
    late_ms: float | None = None
    """Mean lateness: own arrival less the world's median arrival, in the gradient synchronisation."""
    critical_share: float | None = None
    loss: float | None = None
    samples_per_s: float | None = None
    cpu_percent: float | None = None
    rss_bytes: int | None = None
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
    threads: int | None = None
    stack: Stack | None = None
    """Where its training thread was when it was last asked, or last said so by itself."""


class BucketView(msgspec.Struct, frozen=True):
    """The all-reduce of one of DDP's buckets, mean over steps and ranks."""

    model: int
    index: int
    payload_bytes: int
    launch_ms: float
    """After the start of the step."""
    end_ms: float
    transfer_ms: float
    """On the rank that took the shortest in each step: the one that waited for nobody."""
    parameters: list[str]


class Series(msgspec.Struct, frozen=True):
    """A quantity over time for all ranks at once, oldest first; all lists are equally long."""

    seconds: list[float] = msgspec.field(default_factory=list)
    """Since the run started."""
    low: list[float | None] = msgspec.field(default_factory=list)
    median: list[float | None] = msgspec.field(default_factory=list)
    high: list[float | None] = msgspec.field(default_factory=list)


class Event(msgspec.Struct, frozen=True):
    """Something that happened to the run."""

    at: float
    """Unix seconds."""
    severity: str
    """"info", "warn" or "critical"."""
    text: str


class Finding(msgspec.Struct, frozen=True):
    """Something wrong that the evidence carries; the report's schema names the fields."""

    kind: str
    severity: str
    text: str
    ranks: list[int] = msgspec.field(default_factory=list)
    phase: str | None = None
    since_step: int | None = None
    until_step: int | None = None
    cost_ms: float | None = None
    evidence: dict[str, Any] = msgspec.field(default_factory=dict)
    advice: str | None = None


class RunView(msgspec.Struct, frozen=True):
    """What is being watched."""

    id: str
    name: str
    world_size: int
    nnodes: int = 1
    script: str = ""
    started_at: float = 0.0
    ended_at: float | None = None
    exit_code: int | None = None


class Snapshot(msgspec.Struct, frozen=True, tag="snapshot"):
    """All that a screen needs, at one moment. Viewers show it and compute nothing of their own from it."""

    epoch: str
    version: int
    at: float
    run: RunView
    state: str
    verdict: str
    """One sentence; in the waiting state it says what is waited for."""
    severity: str = "info"
    """Of the verdict: "info", "warn" or "critical"."""
    verdict_since: float | None = None
    step: int = 0
    total_steps: int | None = None
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
    records_lost: int = 0
    window: tuple[int, int] | None = None
    """First and last step that the rank values are means of."""
    ranks: list[RankView] = msgspec.field(default_factory=list)
    loss_series: Series = msgspec.field(default_factory=Series)
    own_series: Series = msgspec.field(default_factory=Series)
    """low: the fastest rank's own ms, median, high: the slowest rank's."""
    findings: list[Finding] = msgspec.field(default_factory=list)
    events: list[Event] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    buckets: list[BucketView] = msgspec.field(default_factory=list)
    """Where they are recorded, in the order in which DDP hands them over."""
    bus_bandwidth_gb_s: float | None = None
    """Where buckets are recorded."""


class Refused(msgspec.Struct, array_like=True, tag="refused"):
    """The hub will not serve this viewer; `reason` is for people."""

    reason: str
