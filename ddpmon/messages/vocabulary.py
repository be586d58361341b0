"""The words of the wire: phases, kinds of synchronisation, stages of a rank, states of a run, limits and ranges."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, TypeAlias

from msgspec import Meta

PROTOCOL = 1
"""Raised only when an old peer could misread a new message; appended fields do not raise it."""

MAX_WORLD = 1 << 17
MAX_STEP = 1 << 48
MAX_US = 1 << 53
MAX_RESTART = 1 << 20
MAX_STEPS_PER_BATCH = 4096
MAX_TEXT = 16_384
MAX_FRAMES = 64
MAX_SCOPES = 64
"""Loops and branches around the lines of a stack."""
MAX_NAMES = 16
"""Names of `ddpmon.phase` in a step."""
MAX_NAME = 64
"""Characters in one."""
MAX_LOGGED = 256
"""Characters in the name of a value that `ddpmon.log` takes."""


class Phase(IntEnum):
    """A phase of a step, by its place in every array of phases."""

    DATA = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3
    OTHER = 4
    WAIT = 5
    TRANSFER = 6


PHASES = tuple(phase.name.lower() for phase in Phase)
"""All phases of a step: they add up to its length."""
OWN_PHASES = PHASES[: Phase.WAIT]
"""Phases of a rank's own work in a step."""

SYNC_KINDS = ("gradients", "buffers", "collective")
"""Kinds of synchronisation, by index: DDP's gradient all-reduce, DDP's buffer broadcast, one the script calls."""
SYNC_GRADIENTS, SYNC_BUFFERS, SYNC_COLLECTIVE = range(3)

DIGESTS = ("weights", "few weights", "unreduced weights", "inputs", "BatchNorm statistics", "other buffers")
"""Subjects of digests, by index: the parameters that DDP reduces, a few of them, parameters whose gradients it does not
reduce, a forward's inputs, and buffers where DDP does not broadcast them."""
WEIGHTS, FEW_WEIGHTS, UNREDUCED, INPUTS, BATCH_NORM, OTHER_BUFFERS = range(6)
SCALED_UPDATES = 100
"""Updates through a GradScaler of which it is counted how many were skipped: the latest ones."""

MEETINGS = frozenset({"init_process_group", "new_group"})
"""Calls in which ranks wait for each other to make a process group."""

PAUSES = (
    "evaluation", "checkpoint", "compilation", "pause", "starting DataLoader workers", "out of data",
    "profiling",
)  # fmt: skip
"""Names of what a script does between steps, by index: forwards without gradients, writing a checkpoint, torch.compile;
what is only known to have taken long; starting DataLoader workers, until their first batch is there; joining the
synchronisation of ranks that have data left (Join); and starting or ending ddpmon's profile of the rank."""
EVALUATION, CHECKPOINT, COMPILATION, PAUSE, STARTING_WORKERS, OUT_OF_DATA, PROFILING = range(7)
APART = (OUT_OF_DATA, PROFILING)
"""Pauses that set a step apart however many steps have them: it was not the whole world's, or it was slowed down."""

DDP, FSDP, FSDP2, DEEPSPEED = "DDP", "FSDP", "FSDP2", "DeepSpeed"
TENSOR_PARALLEL, DATA_PARALLEL = "tensor parallel", "DataParallel"
LOCAL_SGD = "local SGD"
"""Beside any of these: ranks train apart, and average their weights now and then."""
ALONE, NOT_PARALLEL = "one process", "none"
"""Kinds of training without a wrapper; "none": one of several in a process group, and nothing of the above at work."""
PARALLEL_JOIN = " + "
"""Between several of them; none has it in itself."""
HYBRID = " (hybrid)"
"""Behind FSDP or FSDP2: the model is sharded over some ranks and replicated over the others."""

HEAT_METRICS = ("own", *OWN_PHASES, "wait", "step", "loss", "gpu")
"""Quantities of the heat map: own time over the median of the other ranks, each phase over theirs as a share of their
own time, wait as a share of the step, the step's length over the median, loss, GPU utilization."""
HEAT_JUDGED = ("own", *OWN_PHASES, "step")
"""Quantities in which the hub can tell lateness from noise."""
HEAT_LEVELS = (0.0, 0.05, 0.10, 0.15)
"""Least excess, as a share, of each mark in the heat map."""
NOTABLE = HEAT_LEVELS[1]
"""Share over the peers from which on a rank, or a phase of it, has a mark: what comes before it is a finding."""
HEAT_STEPS = (1, 8, 64, 512)
"""Steps that one of its columns may stand for."""
WHOLE_RUN = 0
"""Scale of the heat map at which the whole run fits."""
HEAT_MOST = 512
"""Rows and columns that a viewer may ask for."""
HEAT_MOMENTS = 7
"""Columns of it that are told with their time, evenly from the first to the last."""
DEVICE_COURSES = ("gpu", "gpu_memory", "cpu", "starved", "rss", "cores")
"""Quantities of each rank that are kept second by second."""
SAMPLE_SECONDS = (1, 16)
"""Seconds that a column of them may stand for."""
PRINTED_LINES = 300
"""The last of a rank that another machine is sent."""
COST_WINDOWS = ("window", "last", "start")
"""Steps that costs may be of: those that all means are of, the last COST_STEPS, all since the run's start."""
COST_STEPS = 50

LOGGED = "log:"
"""Beginning of the names of values that scripts log."""
LOSS_OF = "loss "
"""Beginning of the name of the loss of one of several models; names that scripts log under have no space."""
SERIES_MOST = 2048
"""Points that a viewer may ask for."""

BUCKETS, GPU_COUNTERS = "buckets", "gpu"
"""Measurements that may be missing on screens: `Hello.missing` says why."""
REASONS_JOIN = ", "
"""Between the reasons why a GPU holds its clocks down; none of them has it in itself."""

STAGES = ("importing", "connected", "group", "model", "training", "ended")
"""Progress of a rank: torch imported, process group up, model wrapped in DDP, first step done, left."""
STAGE_IMPORTING, STAGE_CONNECTED, STAGE_GROUP, STAGE_MODEL, STAGE_TRAINING, STAGE_ENDED = range(6)

STATES = (
    "waiting", "running", "slow", "stalled", "stopping", "done", "failed", "stopped", "detached", "lost", "unknown",
)  # fmt: skip
"""States of a run. "stale" (a viewer that hears nothing) and "replay" are states of a viewer."""
END_STATES = frozenset({"done", "failed", "stopped", "detached", "lost", "unknown"})
"""States after which nothing more is heard. "unknown" is a run that may still go on, out of sight; "detached"
is a job that goes on without ddpmon."""


Rank: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_WORLD)]
WorldSize: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_WORLD)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_US)]
"""Number of steps, bytes and whatever else is counted."""
Seconds: TypeAlias = Annotated[float, Meta(ge=-MAX_US, le=MAX_US)]
"""A moment or a span of time: finite."""
Text: TypeAlias = Annotated[str, Meta(max_length=4 * MAX_TEXT)]
Pid: TypeAlias = Annotated[int, Meta(gt=0, le=1 << 22)]
Micros: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_US)]
"""A moment or a span of time in microseconds, or a number of bytes."""
StepCount: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_STEP)]
StepNumber: TypeAlias = Annotated[int, Meta(gt=0, lt=MAX_STEP)]
"""Counts from 1."""
SmallCount: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_WORLD)]
Name: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME)]
Amount: TypeAlias = Annotated[float, Meta(ge=0, lt=MAX_US)]
"""A measured value: finite."""
Celsius: TypeAlias = Annotated[float, Meta(ge=-300, lt=MAX_US)]
