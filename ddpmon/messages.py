"""Every message on the wire, typed: the one vocabulary of probe, hub and viewers.

Encoding is msgpack through msgspec, structs as arrays. Fields are only ever appended, with defaults, so that
both directions of version skew decode. Types are checked by the decoder; ranges by `check_batch` and
`check_hello`, because a damaged frame can still decode.

Clocks: `_us` times are CLOCK_MONOTONIC of the sending node in microseconds; `_at` times are Unix seconds.
Times inside a step are whole microseconds.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import msgspec

PROTOCOL = 1
"""Raised only when an old peer could misread a new message; appended fields do not raise it."""

MAX_WORLD = 1 << 17
MAX_STEP = 1 << 48
MAX_US = 1 << 53
MAX_STEPS_PER_BATCH = 4096
MAX_TEXT = 16_384
MAX_FRAMES = 64

OWN_PHASES = ("data", "forward", "backward", "optimizer", "other")
"""What a rank itself does in a step; the order of every array of phases."""
PHASES = (*OWN_PHASES, "wait", "transfer")
"""All phases of a step: they add up to its length."""

SYNC_KINDS = ("gradients", "buffers", "collective")
"""Kinds of synchronisation, by index: DDP's gradient all-reduce, DDP's buffer broadcast, one the script calls."""
SYNC_GRADIENTS, SYNC_BUFFERS, SYNC_COLLECTIVE = range(3)

STAGES = ("importing", "connected", "group", "model", "training", "ended")
"""How far a rank has come: torch imported, process group up, model wrapped in DDP, first step done, left."""
STAGE_IMPORTING, STAGE_CONNECTED, STAGE_GROUP, STAGE_MODEL, STAGE_TRAINING, STAGE_ENDED = range(6)


# --- probe -> hub ---------------------------------------------------------------------------------------------


class Sync(msgspec.Struct, array_like=True, gc=False):
    """One synchronisation inside a step, as one rank saw it: it was blocked from `arrival_us` to `end_us`."""

    kind: int
    """Index into SYNC_KINDS."""
    arrival_us: int
    """Ready for the synchronisation, µs after the start of the step."""
    end_us: int
    """Out of it, µs after the start of the step."""
    payload_bytes: int = 0


class Bucket(msgspec.Struct, array_like=True, gc=False):
    """The all-reduce of one of DDP's buckets, recorded with --buckets."""

    layout: int
    """Number of the `Layout` that says what is in it."""
    launch_us: int
    """When DDP handed it over, µs after the start of the step."""
    end_us: int
    """When every rank's gradients were in it, µs after the start of the step."""


class Step(msgspec.Struct, array_like=True, gc=False):
    """One step of one rank. The five phases and the blocked time of `syncs` add up to `length_us`."""

    step: int
    """Counts from 1, without holes: a hole means a lost record."""
    end_us: int
    """When it ended, CLOCK_MONOTONIC."""
    length_us: int
    data_us: int
    forward_us: int
    backward_us: int
    optimizer_us: int
    other_us: int
    syncs: list[Sync] = msgspec.field(default_factory=list)
    loss: float | None = None
    samples: int = 0
    tokens: int = 0
    """Where the model's input is a batch of token ids."""
    learning_rate: float | None = None
    """Of the first parameter group of the optimizer that stepped last."""
    gc_us: int = 0
    """Python's garbage collector, inside whatever phase it fell into."""
    buckets: list[Bucket] = msgspec.field(default_factory=list)
    """Recorded with --buckets, in the order of their launch."""


class Sample(msgspec.Struct, array_like=True, gc=False):
    """What a rank's process and device did in the last second. None: not measured here."""

    time_us: int
    cpu_percent: float | None = None
    rss_bytes: int | None = None
    gpu_percent: float | None = None
    gpu_memory_used_bytes: int | None = None
    gpu_memory_total_bytes: int | None = None
    gpu_power_w: float | None = None
    gpu_temperature_c: float | None = None
    gpu_clock_mhz: float | None = None
    starved_share: float | None = None
    """Of that second: the training thread could run, but no core was free for it."""
    major_faults_per_s: float | None = None
    """Page faults that had to wait for a disk."""
    minor_faults_per_s: float | None = None
    read_bytes_per_s: float | None = None
    """From storage, by this process alone: its DataLoader workers are processes of their own."""
    written_bytes_per_s: float | None = None
    threads: int | None = None
    gpu_throttled: str | None = None
    """Why the GPU holds its clocks down ("thermal, power cap"); "" if it does not."""


class Scalar(msgspec.Struct, array_like=True, gc=False):
    """A value that the script gave to `ddpmon.log`, under its own name."""

    step: int
    name: str
    value: float


class Digest(msgspec.Struct, array_like=True, gc=False):
    """A fixed sample of a DDP model's parameters before a forward, as one number: replicas must have the same."""

    step: int
    model: int
    """Counts the models of a rank in the order they were wrapped."""
    value: int
    group: str = ""
    """Name of the process group whose ranks hold replicas of it."""
    sequence: int = 0
    """Of the group's last collective. Ranks with uneven inputs count steps differently; this they all count alike."""


class Collective(msgspec.Struct, array_like=True, frozen=True):
    """A collective that a rank issued."""

    name: str
    """"all_reduce", or what it is to DDP: "DDP's gradient all-reduce"."""
    group: str = ""
    sequence: int | None = None
    """Counts the collectives of its process group; None: not known here."""


class Stack(msgspec.Struct, array_like=True, tag="stack"):
    """Where a rank's training thread is at this moment."""

    rank: int
    pid: int
    time_us: int
    step: int
    """Steps finished."""
    since_us: int
    """When the step it is in began."""
    phase: int
    frames: list[str]
    """Python's, innermost first: "train.py:12 main"; those of ddpmon left out."""
    own: int | None = None
    """Index of the innermost frame that is no library's."""
    collective: Collective | None = None
    """The one it is blocked in, else the last one it issued, as far as is known."""
    blocked: bool = False
    """It waits inside a collective for the others."""
    issued: dict[str, int] = msgspec.field(default_factory=dict)
    """Process group: sequence number of the last collective issued in it."""


class Layout(msgspec.Struct, array_like=True):
    """What is in a bucket. DDP lays its buckets out anew after the first step."""

    number: int
    """Counts the layouts of a rank from 1."""
    model: int
    """Counts the models of a rank in the order they were wrapped."""
    index: int
    """DDP's own for the bucket; 0 is the first to be handed over."""
    payload_bytes: int
    parameters: list[str] = msgspec.field(default_factory=list)
    """Names, cut where they are very many."""


class Hello(msgspec.Struct, array_like=True, tag="hello"):
    """A rank says who it is: first on a connection, again when something in it changed."""

    protocol: int
    run_id: str
    rank: int
    local_rank: int
    world_size: int
    node_rank: int
    host: str
    pid: int
    stage: int
    restart: int = 0
    """torchrun's restart count: a new attempt of the same rank."""
    device: str = "cpu"
    """"cpu" or "cuda:K" as torch names it."""
    device_name: str = ""
    backend: str = ""
    torch_version: str = ""
    parameters: int = 0
    gradient_bytes: int = 0
    buffer_bytes: int = 0
    notes: list[str] = msgspec.field(default_factory=list)
    """What could not be measured here, one sentence each ("NVML: not found")."""
    device_clock: bool = False
    """Its steps lie on its GPU's timeline: lengths are exact, `end_us` is an estimate."""
    cores: int = 0
    """That this process may run on; 0: not known."""
    compute_threads: int = 0
    """That torch uses for one operation on the CPU; 0: not known."""


class Batch(msgspec.Struct, array_like=True, tag="batch"):
    """What a rank gathered since the last batch; empty ones are its heartbeat."""

    rank: int
    pid: int
    seq: int
    """Counts from 1 per process; the hub acknowledges it and drops repeats."""
    now_us: int
    stage: int
    step: int
    """Steps finished so far."""
    dropped: int
    """Records that the probe had to throw away so far."""
    phase: int = 4
    """Index into OWN_PHASES of what the training thread is in now."""
    steps: list[Step] = msgspec.field(default_factory=list)
    samples: list[Sample] = msgspec.field(default_factory=list)
    scalars: list[Scalar] = msgspec.field(default_factory=list)
    total_steps: int | None = None
    unsynchronised: int = 0
    """Optimizer steps so far whose gradients DDP never reduced, though a model was wrapped in it."""
    digests: list[Digest] = msgspec.field(default_factory=list)
    layouts: list[Layout] = msgspec.field(default_factory=list)
    """Those that are new."""


class Failure(msgspec.Struct, array_like=True, tag="failure"):
    """An exception that nobody caught in a rank."""

    rank: int
    pid: int
    time_us: int
    error: str
    """Type and message, one line."""
    traceback: str = ""
    step: int = 0


class Bye(msgspec.Struct, array_like=True, tag="bye"):
    """The rank leaves; the hub answers with `Ack` of `seq` once everything up to it is recorded."""

    rank: int
    pid: int
    seq: int
    dropped: int = 0


FromRank: TypeAlias = Hello | Batch | Failure | Bye | Stack


# --- hub -> probe ---------------------------------------------------------------------------------------------


class Welcome(msgspec.Struct, array_like=True, tag="welcome"):
    """The hub knows this rank, or (known=False) does not and wants its Hello again. A new epoch: a new hub."""

    epoch: str
    known: bool = True


class Ack(msgspec.Struct, array_like=True, tag="ack"):
    """Everything up to `seq` of this process is recorded."""

    seq: int


class Where(msgspec.Struct, array_like=True, tag="where"):
    """The hub wants this rank's `Stack`."""


ToRank: TypeAlias = Welcome | Ack | Where


# --- viewer <-> hub -------------------------------------------------------------------------------------------


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


STATES = ("waiting", "running", "slow", "stalled", "done", "failed", "stopped", "lost")
"""States of a run. "stale" (a viewer that hears nothing) and "replay" are states of a viewer."""
END_STATES = frozenset({"done", "failed", "stopped", "lost"})


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


# --- encoding -------------------------------------------------------------------------------------------------

_encoder = msgspec.msgpack.Encoder()
_from_rank: msgspec.msgpack.Decoder[FromRank] = msgspec.msgpack.Decoder(FromRank)
_to_rank: msgspec.msgpack.Decoder[ToRank] = msgspec.msgpack.Decoder(ToRank)
_next = msgspec.msgpack.Decoder(Next)
_snapshot = msgspec.msgpack.Decoder(Snapshot)

encode = _encoder.encode


class WireError(ValueError):
    """A frame that is no message of ours, or holds values that cannot be."""


_T = TypeVar("_T")


def _decode(decoder: msgspec.msgpack.Decoder[_T], frame: bytes) -> _T:
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(str(error)) from None


def decode_from_rank(frame: bytes) -> FromRank:
    """Decode and check what a rank sent; WireError names what is wrong with it."""
    message = _decode(_from_rank, frame)
    _check(0 <= message.rank < MAX_WORLD, "rank", message.rank)
    _check(0 < message.pid <= 1 << 22, "pid", message.pid)
    if isinstance(message, Hello):
        check_hello(message)
    elif isinstance(message, Batch):
        check_batch(message)
    elif isinstance(message, Failure):
        _check(len(message.error) + len(message.traceback) <= 2 * MAX_TEXT, "length of the error", "too long")
    elif isinstance(message, Stack):
        check_stack(message)
    else:
        _check(0 <= message.seq < MAX_STEP, "seq", message.seq)
    return message


def decode_to_rank(frame: bytes) -> ToRank:
    """Decode what the hub sent to a rank."""
    return _decode(_to_rank, frame)


def decode_next(frame: bytes) -> Next:
    """Decode a viewer's request."""
    return _decode(_next, frame)


def decode_snapshot(frame: bytes) -> Snapshot:
    """Decode what the hub sent to a viewer."""
    return _decode(_snapshot, frame)


def _check(ok: bool, what: str, value: object) -> None:
    if not ok:
        raise WireError(f"{what} out of range: {value}")


def check_hello(hello: Hello) -> None:
    """Ranges of a Hello; WireError names the field."""
    _check(1 <= hello.world_size <= MAX_WORLD, "world_size", hello.world_size)
    _check(hello.rank < hello.world_size, "rank", hello.rank)
    _check(0 <= hello.local_rank < MAX_WORLD, "local_rank", hello.local_rank)
    _check(0 <= hello.node_rank < MAX_WORLD, "node_rank", hello.node_rank)
    _check(0 <= hello.stage < len(STAGES), "stage", hello.stage)
    texts = (hello.run_id, hello.host, hello.device, hello.device_name, hello.backend, hello.torch_version)
    _check(sum(map(len, texts)) + sum(map(len, hello.notes)) <= MAX_TEXT, "length of texts", "too long")
    _check(0 <= hello.cores < MAX_WORLD and 0 <= hello.compute_threads < MAX_WORLD, "cores", hello.cores)


def check_batch(batch: Batch) -> None:
    """Ranges of a Batch and each record in it; WireError names the field."""
    _check(0 < batch.seq < MAX_STEP, "seq", batch.seq)
    _check(0 <= batch.step < MAX_STEP, "step", batch.step)
    _check(0 <= batch.now_us < MAX_US, "now_us", batch.now_us)
    _check(0 <= batch.dropped < MAX_STEP, "dropped", batch.dropped)
    _check(0 <= batch.stage < len(STAGES), "stage", batch.stage)
    _check(0 <= batch.phase < len(OWN_PHASES), "phase", batch.phase)
    _check(batch.total_steps is None or 0 < batch.total_steps < MAX_STEP, "total_steps", batch.total_steps)
    _check(len(batch.steps) <= MAX_STEPS_PER_BATCH, "steps in a batch", len(batch.steps))
    for step in batch.steps:
        _check(0 < step.step < MAX_STEP, "step", step.step)
        _check(0 <= step.end_us < MAX_US, "end_us", step.end_us)
        _check(0 <= step.length_us <= step.end_us, "length_us", step.length_us)
        phases = (step.data_us, step.forward_us, step.backward_us, step.optimizer_us, step.other_us)
        _check(min(phases) >= 0 and sum(phases) <= step.length_us + len(PHASES), "phases", phases)
        _check(0 <= step.samples < MAX_STEP, "samples", step.samples)
        _check(0 <= step.tokens < MAX_STEP, "tokens", step.tokens)
        _check(0 <= step.gc_us < MAX_US, "gc_us", step.gc_us)
        for sync in step.syncs:
            _check(0 <= sync.kind < len(SYNC_KINDS), "kind", sync.kind)
            _check(0 <= sync.arrival_us <= sync.end_us <= step.length_us + 1, "times of a synchronisation", sync)
            _check(0 <= sync.payload_bytes < MAX_US, "payload_bytes", sync.payload_bytes)
        for bucket in step.buckets:
            _check(0 < bucket.layout < MAX_STEP, "layout of a bucket", bucket.layout)
            _check(0 <= bucket.launch_us <= bucket.end_us < MAX_US, "times of a bucket", bucket)
    _check(0 <= batch.unsynchronised < MAX_STEP, "unsynchronised", batch.unsynchronised)
    for digest in batch.digests:
        _check(0 <= digest.step < MAX_STEP and 0 <= digest.model < MAX_WORLD, "digest", digest.step)
        _check(0 <= digest.value < MAX_US and 0 <= digest.sequence < MAX_US, "digest", digest.value)
        _check(len(digest.group) <= 256, "group of a digest", digest.group[:40])
    for sample in batch.samples:
        _check(0 <= sample.time_us < MAX_US, "time_us", sample.time_us)
        counts = (sample.rss_bytes, sample.gpu_memory_used_bytes, sample.gpu_memory_total_bytes, sample.threads)
        _check(all(0 <= count < MAX_US for count in counts if count is not None), "counts of a sample", counts)
        _check(len(sample.gpu_throttled or "") <= 256, "gpu_throttled", "too long")
    for layout in batch.layouts:
        _check(0 < layout.number < MAX_STEP and 0 <= layout.model < MAX_WORLD, "layout", layout.number)
        _check(0 <= layout.index < MAX_US and 0 <= layout.payload_bytes < MAX_US, "layout", layout.index)
        _check(sum(map(len, layout.parameters)) <= MAX_TEXT, "length of names", "too long")
    for scalar in batch.scalars:
        _check(0 <= scalar.step < MAX_STEP and len(scalar.name) <= 256, "scalar", scalar.name[:40])


def check_stack(stack: Stack) -> None:
    """Ranges of a Stack; WireError names the field."""
    _check(0 <= stack.time_us < MAX_US and 0 <= stack.since_us < MAX_US, "time_us", stack.time_us)
    _check(0 <= stack.step < MAX_STEP, "step", stack.step)
    _check(0 <= stack.phase < len(OWN_PHASES), "phase", stack.phase)
    _check(sum(map(len, stack.frames)) <= MAX_TEXT and len(stack.frames) <= MAX_FRAMES, "frames", len(stack.frames))
    _check(stack.own is None or 0 <= stack.own < len(stack.frames), "own", stack.own)
    _check(sum(map(len, stack.issued)) <= MAX_TEXT, "length of groups", "too long")
    _check(all(0 <= number < MAX_US for number in stack.issued.values()), "issued", "out of range")
    if stack.collective is not None:
        _check(len(stack.collective.name) + len(stack.collective.group) <= MAX_TEXT, "collective", "too long")
        _check(0 <= (stack.collective.sequence or 0) < MAX_US, "sequence", stack.collective.sequence)
