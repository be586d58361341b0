"""Messages between ranks and hub: Hello, batches of records, failures, stacks; and the hub's answers."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ddpmon.messages.cpu_rivals import CpuRivals
from ddpmon.messages.gpu_users import GpuErrors, GpuUsers
from ddpmon.messages.profiles import Profile, ProfileSteps
from ddpmon.messages.quantities import Sample
from ddpmon.messages.setup import Setup
from ddpmon.messages.stack_samples import SampleStacks, StackSamples
from ddpmon.messages.steps import Pause, PauseKind, Step
from ddpmon.messages.vocabulary import (
    DIGESTS,
    MAX_FRAMES,
    MAX_LOGGED,
    MAX_RESTART,
    MAX_SCOPES,
    MAX_STEPS_PER_BATCH,
    MAX_US,
    MAX_WORLD,
    OWN_PHASES,
    PHASES,
    SCALED_UPDATES,
    STAGES,
    Micros,
    Name,
    Pid,
    Rank,
    SmallCount,
    StepCount,
    StepNumber,
)

Records = Meta(max_length=MAX_STEPS_PER_BATCH)
"""Limits a list of records in a batch."""
Stage: TypeAlias = Annotated[int, Meta(ge=0, lt=len(STAGES))]
OwnPhase: TypeAlias = Annotated[int, Meta(ge=0, lt=len(OWN_PHASES))]


class Scalar(msgspec.Struct, array_like=True, gc=False):
    """A value that the script gave to `ddpmon.log`, under its own name."""

    step: StepCount
    name: Annotated[str, Meta(max_length=MAX_LOGGED)]
    value: float


class Digest(msgspec.Struct, array_like=True, gc=False):
    """A fixed sample of a model's parameters, or of one of the other DIGESTS, as one number to compare ranks by."""

    step: StepCount
    model: SmallCount
    """Counts the models of a rank in the order they were wrapped."""
    value: Micros
    group: Annotated[str, Meta(max_length=256)] = ""
    """Name of the process group whose ranks hold replicas of it; without DDP, of the shapes of its parameters."""
    sequence: Micros = 0
    """Number of the group's last collective. Ranks with uneven inputs count steps differently; this they all count
    alike."""
    updates: StepCount = 0
    """Optimizer steps so far on gradients that DDP never reduced, where it was taken after one of them; 0: before a
    forward."""
    of: Annotated[int, Meta(ge=0, lt=len(DIGESTS))] = 0
    """Index into DIGESTS."""


class Collective(msgspec.Struct, array_like=True, frozen=True):
    """A collective that a rank issued."""

    name: str
    """"all_reduce", or what it is to DDP: "DDP's gradient all-reduce"."""
    group: str = ""
    sequence: Micros | None = None
    """Its number among the collectives of its process group; None: torch does not say."""
    operation: str = ""
    """Name under which torch itself records it ("all_reduce"); "": it records nothing."""
    inputs: str = ""
    """Shapes and types of its inputs, as torch records them: "(8, 1) Float"."""
    outputs: str = ""
    """The same of its outputs."""
    is_open: bool = False
    """It has not ended, as torch records it: on a GPU that is so too while the thread waits elsewhere."""


class Scope(msgspec.Struct, array_like=True, frozen=True):
    """A loop or a branch of a script around the line that a frame of a stack is at."""

    frame: Annotated[int, Meta(ge=0, lt=MAX_FRAMES)]
    """Index into the stack's frames."""
    line: Micros
    """Line of its `for`, `while` or `if`."""
    first: Micros
    """The first line that counts as inside."""
    last: Micros
    is_loop: bool = True


class Stack(msgspec.Struct, array_like=True, tag="stack"):
    """Place of a rank's training thread at this moment."""

    rank: Rank
    pid: Pid
    time_us: Micros
    step: StepCount
    """Steps finished."""
    since_us: Micros
    """Beginning of the step it is in."""
    phase: OwnPhase
    frames: Annotated[list[str], Meta(max_length=MAX_FRAMES)]
    """Python's, innermost first: "train.py:12 main"; those of ddpmon left out."""
    own: Annotated[int, Meta(ge=0, lt=MAX_FRAMES)] | None = None
    """Index of the innermost frame that is no library's."""
    collective: Collective | None = None
    """The one it is blocked in, else the last one it issued, as far as torch says."""
    blocked: bool = False
    """It waits inside a collective for the others."""
    issued: dict[str, Micros] = msgspec.field(default_factory=dict)
    """Process group: sequence number of the last collective issued in it."""
    timeout_s: Annotated[float, Meta(gt=0, lt=MAX_US)] | None = None
    """Time limit of the collective that it waits in, after which torch ends the run; None: not known, or it waits in
    none."""
    scopes: Annotated[list[Scope], Meta(max_length=MAX_SCOPES)] = msgspec.field(default_factory=list)
    """Loops and branches around the lines of the script's own frames, once the rank stands still."""
    device: Annotated[list[StepCount], Meta(max_length=2)] = msgspec.field(default_factory=list)
    """Progress of its GPU: finished steps, and marks passed in the one after these; empty: it trains on none."""
    worker: Micros = 0
    """The pid of the DataLoader worker that it waits for; 0: it waits for none."""


class Layout(msgspec.Struct, array_like=True):
    """Contents of a bucket. DDP lays its buckets out anew after the first step."""

    number: StepNumber
    """Counts the layouts of a rank from 1."""
    model: SmallCount
    """Counts the models of a rank in the order they were wrapped."""
    index: Micros
    """DDP's own for the bucket; 0 is the first to be handed over."""
    payload_bytes: Micros
    parameters: list[str] = msgspec.field(default_factory=list)
    """Names, cut where they are very many."""


class Hello(msgspec.Struct, array_like=True, tag="hello"):
    """A rank says who it is: first on a connection, again when something in it changed."""

    protocol: SmallCount
    run_id: str
    rank: Rank
    local_rank: Rank
    world_size: Annotated[int, Meta(gt=0, le=MAX_WORLD)]
    node_rank: Rank
    host: str
    pid: Pid
    stage: Stage
    restart: Annotated[int, Meta(ge=0, lt=MAX_RESTART)] = 0
    """torchrun's restart count: a new attempt of the same rank."""
    device: str = "cpu"
    """"cpu" or "cuda:K" as torch names it."""
    device_name: str = ""
    backend: str = ""
    torch_version: str = ""
    parameters: Micros = 0
    gradient_bytes: Micros = 0
    buffer_bytes: Micros = 0
    notes: list[str] = msgspec.field(default_factory=list)
    """Measurements that are not possible here, one sentence each ("NVML: not found")."""
    device_clock: bool = False
    """Its steps lie on its GPU's timeline: lengths are exact, `end_us` is an estimate."""
    cores: SmallCount = 0
    """That this process may run on; 0: not known."""
    compute_threads: SmallCount = 0
    """That torch uses for one operation on the CPU; 0: not known."""
    parallelism: Name = ""
    """Kind of parallel training: DDP, FSDP2, … of `vocabulary`; "" until the first step is over, and where nothing
    shows it."""
    unmeasured: Annotated[list[str], Meta(max_length=len(PHASES))] = msgspec.field(default_factory=list)
    """Phases of PHASES that are not measured in this kind of training: they are part of `other`, or there is nobody to
    wait for."""
    missing: dict[str, str] = msgspec.field(default_factory=dict)
    """Why BUCKETS or GPU_COUNTERS are not there; each reason is one of `notes` too."""
    through: SmallCount = 0
    """Set by hubs: the node whose hub passed it on; 0: it spoke to this hub itself."""
    world: Name = ""
    """A name that all ranks of its process group have, and those of no other; "": not known (yet)."""
    began_us: Micros = 0
    """Moment at which the probe began in this program, CLOCK_MONOTONIC: a process that replaces its program keeps its
    pid."""
    counter_fd: Annotated[int, Meta(ge=-1, lt=1 << 31)] = -1
    """The process's descriptor of its `step_counter`; -1: it has none."""
    setup: Setup = msgspec.field(default_factory=Setup)
    configuration: dict[str, str] = msgspec.field(default_factory=dict)
    """Settings that should be the same on all ranks: communication variables of its environment, its script, each
    argument."""
    gpu_users: GpuUsers = []
    """Other processes that hold memory of its GPU."""
    gpu_errors: GpuErrors = []
    """Critical errors of its GPU since it trains, each kind once: "Xid 79"."""
    cpu_rivals: CpuRivals = CpuRivals()
    """What took its cores when it last waited for one."""
    steps_before: StepCount = 0
    """Steps that other ranks had counted when this one was attached to, after them."""


class BatchHead(msgspec.Struct, array_like=True, tag="batch"):
    """Sender of a batch, its number, and the rank's progress."""

    rank: Rank
    pid: Pid
    seq: StepNumber
    """Counts from 1 per process; the hub acknowledges it and drops repeats."""
    now_us: Micros
    stage: Stage
    step: StepCount
    """Steps finished so far."""
    dropped: StepCount
    """Records that the probe had to throw away so far."""
    phase: OwnPhase = 4
    """Index into OWN_PHASES of what the training thread is in now."""


class Batch(BatchHead, array_like=True, tag="batch"):
    """Records that a rank gathered since the last batch; empty ones are its heartbeat."""

    steps: Annotated[list[Step], Records] = msgspec.field(default_factory=list)
    samples: Annotated[list[Sample], Records] = msgspec.field(default_factory=list)
    scalars: list[Scalar] = msgspec.field(default_factory=list)
    """Not limited as the other lists are: a script may log thousands of values between two batches."""
    total_steps: StepNumber | None = None
    unsynchronised: StepCount = 0
    """Optimizer steps so far whose gradients DDP never reduced, though a model was wrapped in it."""
    digests: Annotated[list[Digest], Records] = msgspec.field(default_factory=list)
    layouts: Annotated[list[Layout], Records] = msgspec.field(default_factory=list)
    """Layouts that are new."""
    pausing: PauseKind | None = None
    """Index into PAUSES of what the training thread does instead of training, if it does."""
    beats: StepCount = 0
    """Counts what was heard of the training thread: while it rises, the rank comes on, whatever its steps do."""
    closing_pauses: Annotated[list[Pause], Records] = msgspec.field(default_factory=list)
    """Pauses since the last step, in µs after its end; only in the last batch."""
    epoch: StepNumber | None = None
    """The one that runs, counted from 1; None: not known here."""
    epochs: StepNumber | None = None
    merged: StepCount = 0
    """Number of batches, those just before it, that the hub of a node has put into it."""
    skipped: Annotated[int, Meta(ge=0, le=SCALED_UPDATES)] = 0
    """Number of the latest 100 updates that a GradScaler skipped, as gradients were infinite or NaN."""
    held_out: StepCount = 0
    """Updates in a row of a model in evaluation mode which was in training mode before, where the mode matters."""

    @property
    def first_seq(self) -> int:
        """The number of the first batch that is in it."""
        return self.seq - self.merged


class Failure(msgspec.Struct, array_like=True, tag="failure"):
    """An exception that nobody caught in a rank."""

    rank: Rank
    pid: Pid
    time_us: Micros
    error: str
    """Type and message, one line."""
    traceback: str = ""
    step: StepCount = 0
    facts: dict[str, str] = msgspec.field(default_factory=dict)
    """Facts that explain it, which the rank looked up: a port's holder, names of parameters."""


class Bye(msgspec.Struct, array_like=True, tag="bye"):
    """The rank leaves; the hub answers with `Ack` of `seq` once everything up to it is recorded."""

    rank: Rank
    pid: Pid
    seq: StepCount
    dropped: StepCount = 0


class Card(msgspec.Struct, array_like=True, tag="card"):
    """Entry of a hub in the store of the ranks' process group, for the hubs of other nodes."""

    key: str
    """Its CURVE public key, Z85."""
    run_id: str
    addresses: list[str] = msgspec.field(default_factory=list)
    """Endpoints of ZeroMQ where it listens, if it is the root."""
    admits: list[int] = msgspec.field(default_factory=list)
    """The root: nodes whose hubs it lets in by now."""


class Meeting(msgspec.Struct, array_like=True, tag="meeting"):
    """A rank can reach the store of a process group that spans nodes, and what it has read there so far."""

    rank: Rank
    pid: Pid
    node: SmallCount
    """Its own: torchrun's GROUP_RANK, or as it was counted."""
    nodes: Annotated[int, Meta(gt=1, le=MAX_WORLD)]
    towards: str = ""
    """A host that every node reaches: MASTER_ADDR."""
    root: Card | None = None
    """Card of the hub of rank 0, once that lets in this rank's hub."""
    keys: dict[int, str] = msgspec.field(default_factory=dict)
    """Rank 0: public keys of other nodes' hubs."""


FromRank: TypeAlias = Hello | Batch | Failure | Bye | Stack | StackSamples | Profile | Meeting


class Welcome(msgspec.Struct, array_like=True, tag="welcome"):
    """The hub has this rank's Hello. Without it the rank says it again, and all that was not acknowledged."""

    epoch: str
    """Another one: a new hub."""
    has_hello: bool = True


class Ack(msgspec.Struct, array_like=True, tag="ack"):
    """Everything up to `seq` of this process is recorded."""

    seq: int


class Where(msgspec.Struct, array_like=True, tag="where"):
    """The hub wants this rank's `Stack`."""

    brief: bool = False
    """True for a rank that may well come on: what would stop it for a moment is left out."""


AskedOfRank: TypeAlias = Where | SampleStacks | ProfileSteps
"""Requests that a rank answers when it can."""
ToRank: TypeAlias = Welcome | Ack | AskedOfRank | Card
