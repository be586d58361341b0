"""Constants of the messages (phases, kinds of synchronisation, stages, states, limits), ranges of values, and
WireError.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from enum import IntEnum
from typing import Annotated, TypeAlias

from msgspec import Meta

PROTOCOL = 1
"""Version of the protocol. This number rises only when an old peer could misread a new message, not for appended
fields."""

MAX_WORLD = 1 << 17
MAX_STEP = 1 << 48
MAX_US = 1 << 53
MAX_RESTART = 1 << 20
MAX_STEPS_PER_BATCH = 4096
MAX_TEXT = 16_384
MAX_FRAMES = 64
MAX_SCOPES = 64
"""Largest number of loops and branches around the lines of a stack."""
MAX_PHASE_NAMES = 16
"""Largest number of names of `ddpmon.phase` in a step."""
MAX_NAME = 64
"""Largest number of characters in a name of `ddpmon.phase`."""
MAX_LOGGED = 256
"""Largest number of characters in the name of a value that `ddpmon.log` accepts."""


class Phase(IntEnum):
    """A phase of a step. Its value is its index in every array of phases."""

    DATA = 0
    FORWARD = 1
    BACKWARD = 2
    OPTIMIZER = 3
    OTHER = 4
    WAIT = 5
    TRANSFER = 6


PHASES = tuple(phase.name.lower() for phase in Phase)
"""All phases of a step. Their lengths add up to the length of the step."""
OWN_PHASES = PHASES[: Phase.WAIT]
"""Phases of a rank's own work in a step."""

SYNC_KINDS = ("gradients", "buffers", "collective")
"""Kinds of synchronisation, by index: DDP's gradient all-reduce, DDP's buffer broadcast, the script's collectives."""
SYNC_GRADIENTS, SYNC_BUFFERS, SYNC_COLLECTIVE = range(3)

DIGEST_SUBJECTS = ("weights", "few weights", "unreduced weights", "inputs", "BatchNorm statistics", "other buffers")
"""Subjects of digests, by index: the parameters that DDP reduces; a few of these parameters; parameters whose gradients
DDP does not reduce; a forward's inputs; BatchNorm statistics; other buffers. The last two have digests only if DDP does
not broadcast buffers."""
WEIGHTS, FEW_WEIGHTS, UNREDUCED, INPUTS, BATCH_NORM, OTHER_BUFFERS = range(6)
SCALED_UPDATES = 100
"""Number of the latest GradScaler updates among which skipped ones are counted."""

MEETINGS = frozenset({"init_process_group", "new_group"})
"""Names of the calls in which ranks wait for each other to create a process group."""

PAUSES = (
    "evaluation", "checkpoint", "compilation", "pause", "starting DataLoader workers", "out of data",
    "profiling",
)  # fmt: skip
"""Names of a script's activities between steps, by index: forwards without gradients; writing a checkpoint;
torch.compile; anything else that took long; starting DataLoader workers, until their first batch has arrived; joining
the synchronisation of ranks that have data left (Join); and starting or ending ddpmon's profile of the rank."""
EVALUATION, CHECKPOINT, COMPILATION, PAUSE, STARTING_WORKERS, OUT_OF_DATA, PROFILING = range(7)
EXCLUDED_PAUSES = (OUT_OF_DATA, PROFILING)
"""Pauses that always exclude their step from the statistics, even if most steps have such a pause. In an OUT_OF_DATA
step some ranks did not train; a PROFILING step was slowed down by ddpmon."""

DDP, FSDP, FSDP2, DEEPSPEED = "DDP", "FSDP", "FSDP2", "DeepSpeed"
TENSOR_PARALLEL, DATA_PARALLEL = "tensor parallel", "DataParallel"
LOCAL_SGD = "local SGD"
"""Kind of training that may be combined with any of the kinds above: ranks train separately and average their weights
now and then."""
ALONE, NOT_PARALLEL = "one process", "none"
"""Kinds of training without a wrapper. "none" means that the process is one of several in a process group, but none of
the kinds above was detected."""
PARALLEL_JOIN = " + "
"""Separator between several kinds of parallel training. No kind's name contains the separator."""
HYBRID = " (hybrid)"
"""Suffix of FSDP or FSDP2 if the model is sharded over some ranks and replicated over the others."""

HEAT_METRICS = ("own", *OWN_PHASES, "wait", "step", "loss", "gpu")
"""Quantities of the heat map: a rank's own time in excess of the other ranks' median; each phase in excess of the
others' median, as a share of their own time; wait as a share of the step; the step's length in excess of the median
step; loss; GPU utilization."""
HEAT_JUDGED = ("own", *OWN_PHASES, "step")
"""Quantities in which the hub can tell lateness from noise."""
HEAT_LEVELS = (0.0, 0.05, 0.10, 0.15)
"""Smallest excess of each mark in the heat map, as a fraction."""
NOTABLE = HEAT_LEVELS[1]
"""Excess over the peers, as a fraction, from which on screens mark a rank or one of its phases. A smaller excess
appears only if it is a finding."""
HEAT_STEPS = (1, 8, 64, 512)
"""Possible numbers of steps in a column of the heat map."""
WHOLE_RUN = 0
"""Value that requests as many steps per column as are needed to show the whole run."""
HEAT_MOST = 512
"""Largest number of rows, and of columns, that a viewer may request."""
HEAT_MOMENTS = 7
"""Number of columns for which the heat map reports the time, evenly spaced from the first to the last column."""
DEVICE_COURSES = ("gpu", "gpu_memory", "cpu", "starved", "rss", "cores")
"""Quantities of each rank that are stored second by second."""
SAMPLE_SECONDS = (1, 16)
"""Possible numbers of seconds in a column of a chart of DEVICE_COURSES."""
PRINTED_LINES = 300
"""Largest number of lines of a rank's output that are sent to another machine. The last lines are sent."""
COST_WINDOWS = ("window", "last", "start")
"""Steps over which costs can be computed: the window of all other means, the last COST_STEPS steps, or all steps since
the start of the run."""
COST_STEPS = 50

LOGGED = "log:"
"""Prefix of the names of values that scripts log."""
LOSS_OF = "loss "
"""Prefix of the name of the loss of one of several models. Names that scripts log under contain no space."""
SERIES_MOST = 2048
"""Largest number of points that a viewer may request."""

BUCKETS, GPU_COUNTERS, STEPS = "buckets", "gpu", "steps"
"""Measurements that may be missing on screens. `Hello.missing` gives the reasons."""
REASONS_JOIN = ", "
"""Separator between the reasons why a GPU throttles its clocks. No reason contains the separator."""

STAGES = ("importing", "connected", "group", "model", "training", "ended")
"""Progress of a rank: importing, torch imported, process group created, model wrapped in DDP, first step done, process
ended."""
STAGE_IMPORTING, STAGE_CONNECTED, STAGE_GROUP, STAGE_MODEL, STAGE_TRAINING, STAGE_ENDED = range(6)

RUN_STATES = (
    "waiting", "running", "slow", "stalled", "stopping", "done", "failed", "stopped", "detached", "lost", "unknown",
)  # fmt: skip
"""States of a run. "stale" (a viewer receives no messages) and "replay" are states of a viewer."""
END_STATES = frozenset({"done", "failed", "stopped", "detached", "lost", "unknown"})
"""States after which no further messages arrive. A run in state "unknown" may still go on where ddpmon cannot see it. A
"detached" run goes on without ddpmon."""


Rank: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_WORLD)]
WorldSize: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_WORLD)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_US)]
"""Number of steps, of bytes or of anything else that is counted."""
Seconds: TypeAlias = Annotated[float, Meta(ge=-MAX_US, le=MAX_US)]
"""A moment or a span of time in seconds, always finite."""
Moment: TypeAlias = Annotated[float, Meta(ge=0, lt=MAX_US / 1e6)]
"""A moment in Unix seconds."""
Severity: TypeAlias = Annotated[str, Meta(pattern=r"^(info|warn|critical)\Z")]
Text: TypeAlias = Annotated[str, Meta(max_length=4 * MAX_TEXT)]
Pid: TypeAlias = Annotated[int, Meta(gt=0, le=1 << 22)]
Micros: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_US)]
"""A moment or a span of time in microseconds, or a number of bytes."""
StepCount: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_STEP)]
StepNumber: TypeAlias = Annotated[int, Meta(gt=0, lt=MAX_STEP)]
"""Number of a step or of another thing that is counted from 1."""
SmallCount: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_WORLD)]
Name: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME)]
Words: TypeAlias = Annotated[str, Meta(max_length=MAX_TEXT)]
Frames: TypeAlias = Annotated[list[Words], Meta(max_length=MAX_FRAMES)]
"""Python frames of a stack, innermost first, such as "train.py:12 main"."""
Amount: TypeAlias = Annotated[float, Meta(ge=0, lt=MAX_US)]
"""A measured value that is not negative and always finite."""
Celsius: TypeAlias = Annotated[float, Meta(ge=-300, lt=MAX_US)]


class WireError(ValueError):
    """A received frame is not a message of ddpmon, or contains impossible values."""


def require(ok: bool, name: str, value: object) -> None:
    """Raise a WireError that names a field and its value if `ok` is false."""
    if not ok:
        raise WireError(f"{name} out of range: {value}")


def require_equal_lengths(lists: Sequence[Sized], name: str) -> None:
    """Raise a WireError if lists are not equally long. `name` names the lists in the error."""
    require(len({len(each) for each in lists}) == 1, name, [len(each) for each in lists])
