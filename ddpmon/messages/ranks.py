"""What ranks and hub tell each other: Hello, batches of records, failures, stacks; and the hub's answers."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ddpmon.messages.setup import Setup
from ddpmon.messages.vocabulary import REASONS_JOIN


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


class Pause(msgspec.Struct, array_like=True, gc=False):
    """Time between two steps in which a rank did not train: part of the record of the later one, but of no phase."""

    kind: int
    """Index into PAUSES."""
    start_us: int
    """After the start of the step."""
    end_us: int


class Step(msgspec.Struct, array_like=True, gc=False):
    """One step of one rank. The five phases, the blocked time of `syncs` and `pauses` add up to `length_us`."""

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
    named_us: dict[str, int] = msgspec.field(default_factory=dict)
    """Time inside each `ddpmon.phase` of the script, by its name; part of the phases above, by the host's clock."""
    pauses: list[Pause] = msgspec.field(default_factory=list)
    backwards: int = 1
    """Backward calls in it: more than one under gradient accumulation."""


class Sample(msgspec.Struct, array_like=True, gc=False):
    """What a rank's process and device did in the last second, or in the last two, where the hub of a node of very many
    put two samples together. None: not measured here.

    Its numbers are rows of QUANTITIES, which say what each is.
    """

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
    """Why the GPU holds its clocks down: reasons, with REASONS_JOIN between them; "" if it does not."""
    loader_workers: int | None = None
    """Of the DataLoader that was read last."""
    loader_pinned: bool | None = None
    """Whether its batches lie in pinned memory; None: they are for a CPU."""
    sent_bytes_per_s: float | None = None
    """Over the network, by its whole host."""
    received_bytes_per_s: float | None = None
    io_wait_share: float | None = None
    """Of that second: some process of its host waited for storage, as the kernel's pressure counters say."""
    cores_busy_share: float | None = None
    """Of all cores of its host: busy with anything."""

    @property
    def throttles(self) -> tuple[str, ...]:
        """Why the GPU holds its clocks down, reason by reason."""
        return tuple(self.gpu_throttled.split(REASONS_JOIN)) if self.gpu_throttled else ()


class Scalar(msgspec.Struct, array_like=True, gc=False):
    """A value that the script gave to `ddpmon.log`, under its own name."""

    step: int
    name: str
    value: float


class Digest(msgspec.Struct, array_like=True, gc=False):
    """A fixed sample of a model's parameters, or of one of the other DIGESTS, as one number to compare ranks by."""

    step: int
    model: int
    """Counts the models of a rank in the order they were wrapped."""
    value: int
    group: str = ""
    """Name of the process group whose ranks hold replicas of it; without DDP, of the shapes of its parameters."""
    sequence: int = 0
    """Of the group's last collective. Ranks with uneven inputs count steps differently; this they all count alike."""
    updates: int = 0
    """Optimizer steps so far on gradients that DDP never reduced, where it was taken after one of them; 0: before a
    forward."""
    of: int = 0
    """Index into DIGESTS."""


class Collective(msgspec.Struct, array_like=True, frozen=True):
    """A collective that a rank issued."""

    name: str
    """"all_reduce", or what it is to DDP: "DDP's gradient all-reduce"."""
    group: str = ""
    sequence: int | None = None
    """Its number among the collectives of its process group; None: torch does not say."""
    operation: str = ""
    """What torch itself records it as ("all_reduce"); "": it records nothing."""
    inputs: str = ""
    """Shapes and types of its inputs, as torch records them: "(8, 1) Float"."""
    outputs: str = ""
    """The same of its outputs."""
    is_open: bool = False
    """It has not ended, as torch records it: on a GPU that is so too while the thread waits elsewhere."""


class Scope(msgspec.Struct, array_like=True, frozen=True):
    """A loop or a branch of a script around the line that a frame of a stack is at."""

    frame: int
    """Index into the stack's frames."""
    line: int
    """Of its `for`, `while` or `if`."""
    first: int
    """The first line that counts as inside."""
    last: int
    is_loop: bool = True


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
    """The one it is blocked in, else the last one it issued, as far as torch says."""
    blocked: bool = False
    """It waits inside a collective for the others."""
    issued: dict[str, int] = msgspec.field(default_factory=dict)
    """Process group: sequence number of the last collective issued in it."""
    timeout_s: float | None = None
    """How long the collective that it waits in may take before torch ends the run; None: not known, or it waits in
    none."""
    scopes: list[Scope] = msgspec.field(default_factory=list)
    """Loops and branches around the lines of the script's own frames, once the rank stands still."""
    device: list[int] = msgspec.field(default_factory=list)
    """How far its GPU has come: finished steps, and marks passed in the one after these; empty: it trains on none."""
    worker: int = 0
    """The pid of the DataLoader worker that it waits for; 0: it waits for none."""


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
    parallelism: str = ""
    """How it trains: DDP, FSDP2, … of `vocabulary`; "" until the first step is over, and where nothing shows it."""
    unmeasured: list[str] = msgspec.field(default_factory=list)
    """Of PHASES, those of which nothing is measured in this kind of training: they are part of `other`, or there is
    nobody to wait for."""
    missing: dict[str, str] = msgspec.field(default_factory=dict)
    """Why BUCKETS or GPU_COUNTERS are not there; each reason is one of `notes` too."""
    through: int = 0
    """Set by hubs: the node whose hub passed it on; 0: it spoke to this hub itself."""
    world: str = ""
    """A name that all ranks of its process group have, and those of no other; "": not known (yet)."""
    began_us: int = 0
    """When the probe began in this program, CLOCK_MONOTONIC: a process that replaces its program keeps its pid."""
    counter_fd: int = -1
    """The process's descriptor of its `step_counter`; -1: it has none."""
    setup: Setup = msgspec.field(default_factory=Setup)
    configuration: dict[str, str] = msgspec.field(default_factory=dict)
    """What should be the same on all ranks: communication variables of its environment, its script, each argument."""


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
    pausing: int | None = None
    """Index into PAUSES of what the training thread does instead of training, if it does."""
    beats: int = 0
    """Counts what was heard of the training thread: while it rises, the rank comes on, whatever its steps do."""
    closing_pauses: list[Pause] = msgspec.field(default_factory=list)
    """Of the last batch: pauses since the last step, in µs after its end."""
    epoch: int | None = None
    """The one that runs, counted from 1; None: not known here."""
    epochs: int | None = None
    merged: int = 0
    """How many batches, those just before it, the hub of a node has put into it."""
    skipped: int = 0
    """Of the latest 100 updates through a GradScaler: those that it skipped, as gradients were infinite or NaN."""
    held_out: int = 0
    """Updates in a row of a model in evaluation mode which was in training mode before, where the mode matters."""

    @property
    def first_seq(self) -> int:
        """The number of the first batch that is in it."""
        return self.seq - self.merged


class Failure(msgspec.Struct, array_like=True, tag="failure"):
    """An exception that nobody caught in a rank."""

    rank: int
    pid: int
    time_us: int
    error: str
    """Type and message, one line."""
    traceback: str = ""
    step: int = 0
    facts: dict[str, str] = msgspec.field(default_factory=dict)
    """What the rank looked up that explains it: a port's holder, names of parameters."""


class Bye(msgspec.Struct, array_like=True, tag="bye"):
    """The rank leaves; the hub answers with `Ack` of `seq` once everything up to it is recorded."""

    rank: int
    pid: int
    seq: int
    dropped: int = 0


class Card(msgspec.Struct, array_like=True, tag="card"):
    """What a hub wants the hubs of other nodes to read in the store of the ranks' process group."""

    key: str
    """Its CURVE public key, Z85."""
    run_id: str
    addresses: list[str] = msgspec.field(default_factory=list)
    """Where it listens, if it is the root: ZeroMQ's endpoints."""
    admits: list[int] = msgspec.field(default_factory=list)
    """The root: nodes whose hubs it lets in by now."""


class Meeting(msgspec.Struct, array_like=True, tag="meeting"):
    """A rank can reach the store of a process group that spans nodes, and what it has read there so far."""

    rank: int
    pid: int
    node: int
    """Its own: torchrun's GROUP_RANK, or as it was counted."""
    nodes: int
    towards: str = ""
    """A host that every node reaches: MASTER_ADDR."""
    root: Card | None = None
    """Of the hub of rank 0, once that lets in this rank's hub."""
    keys: dict[int, str] = msgspec.field(default_factory=dict)
    """Rank 0: public keys of other nodes' hubs."""


FromRank: TypeAlias = Hello | Batch | Failure | Bye | Stack | Meeting


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
    """Of a rank that may well come on: what would stop it for a moment is left out."""


ToRank: TypeAlias = Welcome | Ack | Where | Card
