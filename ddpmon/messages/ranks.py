"""Messages from ranks to the hub (Hello, batches of records, failures, stacks), and the hub's answers."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ddpmon.messages.competitors import CpuRivals, GpuErrors, GpuUsers
from ddpmon.messages.profiles import Profile, ProfileSteps
from ddpmon.messages.quantities import Sample
from ddpmon.messages.setup import Setup
from ddpmon.messages.stack_samples import SampleStacks, StackSamples
from ddpmon.messages.steps import Pause, PauseKind, Step
from ddpmon.messages.vocabulary import (
    DIGEST_SUBJECTS,
    MAX_FRAMES,
    MAX_LOGGED,
    MAX_NAME,
    MAX_RESTART,
    MAX_SCOPES,
    MAX_STEPS_PER_BATCH,
    MAX_TEXT,
    MAX_US,
    MAX_WORLD,
    OWN_PHASES,
    PHASES,
    SCALED_UPDATES,
    STAGES,
    Frames,
    Micros,
    Name,
    Pid,
    Rank,
    SmallCount,
    StepCount,
    StepNumber,
    Words,
    require,
)

Records = Meta(max_length=MAX_STEPS_PER_BATCH)
"""Limit of the length of a list of records in a batch."""
MAX_FACTS = 256
MAX_ADDRESSES = 16
Stage: TypeAlias = Annotated[int, Meta(ge=0, lt=len(STAGES))]
OwnPhase: TypeAlias = Annotated[int, Meta(ge=0, lt=len(OWN_PHASES))]
PhaseWord: TypeAlias = Annotated[str, Meta(pattern=f"^({'|'.join(PHASES)})\\Z")]
GroupName: TypeAlias = Annotated[str, Meta(max_length=256)]
"""Name of a process group."""
ErrorText: TypeAlias = Annotated[str, Meta(max_length=2 * MAX_TEXT)]
Facts: TypeAlias = Annotated[dict[Words, Words], Meta(max_length=MAX_FACTS)]
NodeNumber: TypeAlias = Annotated[int, Meta(gt=0, lt=MAX_WORLD)]
Key: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}\Z")]
"""CURVE key of a hub: 32 bytes in Z85."""
Endpoint: TypeAlias = Annotated[str, Meta(pattern=r"^tcp://[0-9A-Za-z.:%_\-\[\]]{1,100}:[0-9]{1,5}\Z")]


class Scalar(msgspec.Struct, array_like=True, gc=False):
    """A value that the script passed to `ddpmon.log`, under the name that the script chose."""

    step: StepCount
    name: Annotated[str, Meta(max_length=MAX_LOGGED)]
    value: float


class Digest(msgspec.Struct, array_like=True, gc=False):
    """Hash of values that should be equal on all ranks, such as sampled model parameters; see DIGEST_SUBJECTS."""

    step: StepCount
    model: SmallCount
    """Number of the model. A rank counts its models in the order in which they were wrapped."""
    value: Micros
    group: GroupName = ""
    """Name of the process group whose ranks hold replicas of the model; without DDP, a name made from the parameters'
    shapes."""
    sequence: Micros = 0
    """Number of the group's last collective. This number is the same on all ranks. Step numbers are not, because ranks
    with uneven inputs count steps differently."""
    updates: StepCount = 0
    """Number of optimizer steps so far on gradients that DDP never reduced, if the digest was taken after one of these
    steps. 0 if the digest was taken before a forward."""
    of: Annotated[int, Meta(ge=0, lt=len(DIGEST_SUBJECTS))] = 0
    """Index into DIGEST_SUBJECTS."""


class Collective(msgspec.Struct, array_like=True, frozen=True):
    """A collective that a rank issued."""

    name: Words
    """Name of the call, such as "all_reduce", or its role in DDP: "DDP's gradient all-reduce"."""
    group: Words = ""
    sequence: Micros | None = None
    """Number of the collective in its process group, or None if torch does not report it."""
    operation: Words = ""
    """Name under which torch records the collective ("all_reduce"), or "" if torch does not record it."""
    inputs: Words = ""
    """Shapes and types of the collective's inputs, as torch records them: "(8, 1) Float"."""
    outputs: Words = ""
    """Shapes and types of the collective's outputs, in the same form."""
    is_open: bool = False
    """True if torch reports that the collective has not ended. On a GPU, a collective may be open while the thread
    waits elsewhere."""


class Scope(msgspec.Struct, array_like=True, frozen=True):
    """A loop or branch of the script that encloses the current line of a frame."""

    frame: Annotated[int, Meta(ge=0, lt=MAX_FRAMES)]
    """Index into the stack's frames."""
    line: StepNumber
    """Line number of the scope's `for`, `while` or `if`."""
    first: StepNumber
    """Line number of the first line inside the scope. `last` is the number of the last line."""
    last: StepNumber
    is_loop: bool = True


class Stack(msgspec.Struct, array_like=True, tag="stack"):
    """Stack of a rank's training thread at one moment, with the collective in which it may wait."""

    rank: Rank
    pid: Pid
    time_us: Micros
    step: StepCount
    """Number of steps that the rank has finished."""
    since_us: Micros
    """Moment at which the current step began."""
    phase: OwnPhase
    frames: Frames
    """Frames of the stack, without ddpmon's own frames."""
    own: Annotated[int, Meta(ge=0, lt=MAX_FRAMES)] | None = None
    """Index of the innermost frame that belongs to no library."""
    collective: Collective | None = None
    """The collective in which the thread is blocked, or else the last collective that it issued, as far as torch
    reports."""
    blocked: bool = False
    """True if the thread waits inside a collective for other ranks."""
    issued: dict[GroupName, Micros] = msgspec.field(default_factory=dict)
    """Sequence number of the last collective issued in each process group."""
    timeout_s: Annotated[float, Meta(gt=0, lt=MAX_US)] | None = None
    """Timeout in seconds of the collective in which the thread waits, after which torch ends the run. None if the
    timeout is unknown or the thread waits in no collective."""
    scopes: Annotated[list[Scope], Meta(max_length=MAX_SCOPES)] = msgspec.field(default_factory=list)
    """Loops and branches around the current lines of the script's own frames, once the rank stands still."""
    device: Annotated[list[StepCount], Meta(max_length=2)] = msgspec.field(default_factory=list)
    """Progress of the rank's GPU: the number of steps that the GPU has finished, and the number of timing events that
    it has passed in the next step. Empty if the rank does not train on a GPU."""
    worker: Micros = 0
    """Pid of the DataLoader worker for which the thread waits, or 0 if the thread waits for no worker."""

    def __post_init__(self) -> None:
        require(self.own is None or self.own < len(self.frames), "own", self.own)
        require(len(self.device) != 1, "device", self.device)
        for scope in self.scopes:
            require(scope.frame < len(self.frames), "frame of a scope", scope.frame)
            require(scope.first <= scope.last, "lines of a scope", scope)


class Layout(msgspec.Struct, array_like=True):
    """Parameters in one of DDP's buckets. DDP rebuilds its buckets after the first step, so each bucket then has a new
    layout.
    """

    number: StepNumber
    """Number of this layout. A rank counts its layouts from 1."""
    model: SmallCount
    """Number of the model. A rank counts its models in the order in which they were wrapped."""
    index: Micros
    """DDP's index of the bucket. DDP hands over bucket 0 first for reduction."""
    payload_bytes: Micros
    parameters: list[Words] = msgspec.field(default_factory=list)
    """Names of the bucket's parameters; a very long list is truncated."""


class Hello(msgspec.Struct, array_like=True, tag="hello"):
    """Facts about a rank: the first message that it sends on a connection, and again whenever a field changes."""

    protocol: SmallCount
    run_id: Words
    rank: Rank
    local_rank: Rank
    world_size: Annotated[int, Meta(gt=0, le=MAX_WORLD)]
    node_rank: Rank
    host: Words
    pid: Pid
    stage: Stage
    restart: Annotated[int, Meta(ge=0, lt=MAX_RESTART)] = 0
    """torchrun's restart count. It rises with each new attempt of the rank."""
    device: Words = "cpu"
    """Device as torch names it: "cpu" or "cuda:K"."""
    device_name: Words = ""
    backend: Words = ""
    torch_version: Words = ""
    parameters: Micros = 0
    gradient_bytes: Micros = 0
    buffer_bytes: Micros = 0
    notes: Annotated[list[Words], Meta(max_length=MAX_FACTS)] = msgspec.field(default_factory=list)
    """Measurements that are not possible here, one sentence each ("NVML: not found")."""
    device_clock: bool = False
    """True if the rank's steps are timed on its GPU. Their lengths are then exact, and `end_us` is an estimate."""
    cores: SmallCount = 0
    """Number of cores on which the process may run, or 0 if unknown."""
    compute_threads: SmallCount = 0
    """Number of threads that torch uses for one operation on the CPU, or 0 if unknown."""
    parallelism: Name = ""
    """Kind of parallel training, such as DDP or FSDP2 of `vocabulary`. "" until the first step is over, or if the kind
    cannot be detected."""
    unmeasured: Annotated[list[PhaseWord], Meta(max_length=len(PHASES))] = msgspec.field(default_factory=list)
    """Phases of PHASES that are not measured in this kind of training, because they are part of `other` or because
    there is no other rank to wait for."""
    missing: Facts = msgspec.field(default_factory=dict)
    """Reasons why BUCKETS, GPU_COUNTERS or STEPS are missing. Each reason is also one of `notes`."""
    through: SmallCount = 0
    """Number of the node whose hub passed the message on, or 0 if the rank sent the message to this hub directly. Hubs
    set this field."""
    world: Name = ""
    """Name that all ranks of the rank's process group share, and no other ranks have, or "" if the name is not known
    (yet)."""
    began_us: Micros = 0
    """Moment at which the probe started in this program, CLOCK_MONOTONIC. This moment identifies the program, because a
    process that replaces its program (exec) keeps its pid."""
    counter_fd: Annotated[int, Meta(ge=-1, lt=1 << 31)] = -1
    """The process's file descriptor of its `step_counter` memory, or -1 if the process has no such memory."""
    setup: Setup = msgspec.field(default_factory=Setup)
    configuration: Facts = msgspec.field(default_factory=dict)
    """Settings that should be the same on all ranks: the environment variables that affect communication, the script,
    and each of its arguments."""
    gpu_users: GpuUsers = []
    """Other processes that hold memory of the rank's GPU."""
    gpu_errors: GpuErrors = []
    """Critical errors of the rank's GPU since the training began, each kind once: "Xid 79"."""
    cpu_rivals: CpuRivals = CpuRivals()
    """Competitors for the rank's CPU cores, measured when the rank last waited for a core."""
    steps_before: StepCount = 0
    """Number of steps that the other ranks had already counted when ddpmon was attached to this rank."""
    gpu: Name = ""
    """UUID of the rank's GPU or MIG instance, or "" if the rank has no GPU or the probe does not know the UUID yet."""

    def __post_init__(self) -> None:
        require(self.rank < self.world_size, "rank", self.rank)


class BatchHead(msgspec.Struct, array_like=True, tag="batch"):
    """Sender and number of a batch, and the rank's progress."""

    rank: Rank
    pid: Pid
    seq: StepNumber
    """Number of the batch, from 1 in each process. The hub acknowledges this number, and drops batches that it already
    has."""
    now_us: Micros
    stage: Stage
    step: StepCount
    """Number of steps finished so far."""
    dropped: StepCount
    """Number of records that the probe had to discard so far."""
    phase: OwnPhase = 4
    """Index into OWN_PHASES of the training thread's current phase."""


class Batch(BatchHead, array_like=True, tag="batch"):
    """Records that a rank gathered since its last batch. An empty batch is its heartbeat."""

    steps: Annotated[list[Step], Records] = msgspec.field(default_factory=list)
    samples: Annotated[list[Sample], Records] = msgspec.field(default_factory=list)
    scalars: list[Scalar] = msgspec.field(default_factory=list)
    """Logged values. Unlike the other lists, this one has no limit: a script may log thousands between two batches."""
    total_steps: StepNumber | None = None
    unsynchronised: StepCount = 0
    """Number of optimizer steps so far whose gradients DDP never reduced, although a model was wrapped in DDP."""
    digests: Annotated[list[Digest], Records] = msgspec.field(default_factory=list)
    layouts: Annotated[list[Layout], Records] = msgspec.field(default_factory=list)
    """Layouts of buckets that the hub has not received yet."""
    pausing: PauseKind | None = None
    """Index into PAUSES of the training thread's activity, or None while the thread trains."""
    beats: StepCount = 0
    """Number of signs of life of the training thread. While this number rises, the rank makes progress even without
    steps."""
    closing_pauses: Annotated[list[Pause], Records] = msgspec.field(default_factory=list)
    """Pauses since the last step, in µs after the step's end. Only a process's last batch has these pauses."""
    epoch: StepNumber | None = None
    """Current epoch of the training, counted from 1, or None if the epoch is not known on this rank."""
    epochs: StepNumber | None = None
    merged: StepCount = 0
    """Number of batches directly before this batch that the hub of a node has merged into this batch."""
    skipped: Annotated[int, Meta(ge=0, le=SCALED_UPDATES)] = 0
    """Number of the latest 100 updates that a GradScaler skipped because gradients were infinite or NaN."""
    held_out: StepCount = 0
    """Number of consecutive optimizer updates made in evaluation mode after the model had been in training mode. 0 if
    the model behaves the same in both modes."""

    def __post_init__(self) -> None:
        require(self.merged < self.seq, "merged", self.merged)

    @property
    def first_seq(self) -> int:
        """Return the number of the first batch that is merged into this batch."""
        return self.seq - self.merged


class Failure(msgspec.Struct, array_like=True, tag="failure"):
    """An uncaught exception of a rank."""

    rank: Rank
    pid: Pid
    time_us: Micros
    error: ErrorText
    """Type and message of the exception, in one line."""
    traceback: ErrorText = ""
    step: StepCount = 0
    facts: Facts = msgspec.field(default_factory=dict)
    """Facts that the rank looked up to explain the exception, such as the process that holds a port."""


class Bye(msgspec.Struct, array_like=True, tag="bye"):
    """The rank's last message before it exits. The hub answers with an `Ack` of `seq` once it has recorded all messages
    up to number `seq`.
    """

    rank: Rank
    pid: Pid
    seq: StepCount
    dropped: StepCount = 0


class Card(msgspec.Struct, array_like=True, tag="card"):
    """Contact data that a hub publishes for other nodes' hubs, in the store of the ranks' process group."""

    key: Key
    """Public key of the hub."""
    run_id: Name
    addresses: Annotated[list[Endpoint], Meta(max_length=MAX_ADDRESSES)] = msgspec.field(default_factory=list)
    """ZeroMQ endpoints on which the hub listens, if it is the root."""
    admits: Annotated[list[NodeNumber], Meta(max_length=MAX_WORLD)] = msgspec.field(default_factory=list)
    """Numbers of the nodes whose hubs the root admits so far, if this hub is the root."""


class Meeting(msgspec.Struct, array_like=True, tag="meeting"):
    """A rank reports that its process group spans several nodes, with what it read in the group's store."""

    rank: Rank
    pid: Pid
    node: SmallCount
    """Number of the rank's own node: torchrun's GROUP_RANK, or ddpmon's own count if GROUP_RANK is not set."""
    nodes: Annotated[int, Meta(gt=1, le=MAX_WORLD)]
    towards: Annotated[str, Meta(max_length=4 * MAX_NAME)] = ""
    """MASTER_ADDR, a host that every node can reach."""
    root: Card | None = None
    """Card of rank 0's hub, once that hub admits the hub of this rank."""
    keys: dict[NodeNumber, Key] = msgspec.field(default_factory=dict)
    """Public keys of the other nodes' hubs; only rank 0 reads them."""

    def __post_init__(self) -> None:
        require(self.node < self.nodes, "node", self.node)
        require(all(node < self.nodes for node in self.keys), "node of a key", list(self.keys)[:4])


FromRank: TypeAlias = Hello | Batch | Failure | Bye | Stack | StackSamples | Profile | Meeting


class Welcome(msgspec.Struct, array_like=True, tag="welcome"):
    """The hub tells a rank whether it has received the rank's Hello. If not, the rank sends the Hello and all
    unacknowledged batches again.
    """

    epoch: str
    """Identifies this process of the hub, so that a rank notices when a new hub has started."""
    has_hello: bool = True


class Ack(msgspec.Struct, array_like=True, tag="ack"):
    """The hub has recorded every message of this process up to number `seq`."""

    seq: int


class Where(msgspec.Struct, array_like=True, tag="where"):
    """The hub asks a rank for its `Stack`."""

    brief: bool = False
    """True if the rank may still be making progress, so that measurements that would interrupt it are left out."""


AskedOfRank: TypeAlias = Where | SampleStacks | ProfileSteps
"""Requests of the hub that a rank answers as soon as it can."""
ToRank: TypeAlias = Welcome | Ack | AskedOfRank | Card
