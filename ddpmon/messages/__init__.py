"""Typed messages: everything that probe, hub and viewers send to each other is declared in this package.

- Shared: `vocabulary` declares constants and ranges of values, `quantities` the quantities measured of a rank.
- Between ranks and hub: `ranks` declares the messages, `steps` the record of a step, `stack_samples` and `profiles`
  the measurements that the hub requests of slow ranks.
- Between the hubs of several machines: `nodes`.
- Between viewers and hub: `view_requests` declares the requests, `viewers` the snapshot, `rank_view` its row of a rank,
  `view_parts` its parts that are sent on request, `cells` the byte values of its charts, `changes` its delta encoding.
- Checks: `wire` encodes and checks messages, `snapshots` checks snapshots.
- Files: `folder` describes the files that ranks leave in the run's folder, `guarded_socket` connects to its sockets.

Encoding is msgpack through msgspec, structs as arrays. Fields are only ever appended, with defaults, so that
both directions of version skew decode. The decoder checks types and ranges; `wire` checks that fields fit together,
because a damaged frame can still decode. A message with an invalid value is refused as a whole.

Clocks: `_us` times are CLOCK_MONOTONIC of the sending node in microseconds; `_at` times are Unix seconds.
Times inside a step are whole microseconds.
"""

from __future__ import annotations

from ddpmon.messages.cpu_rivals import CpuProgram, CpuRivals
from ddpmon.messages.gpu_users import NO_USER_RANK, GpuUser
from ddpmon.messages.profiles import (
    MAX_OPERATORS,
    MAX_PROFILED_RANKS,
    MAX_PROFILED_STEPS,
    MAX_SLICES,
    OUTSIDE_OPERATORS,
    Operator,
    OperatorRow,
    Profile,
    ProfiledRank,
    ProfileOutcome,
    ProfileRequest,
    ProfileSteps,
    ProfileView,
    Track,
)
from ddpmon.messages.quantities import (
    GPU,
    HOST,
    QUANTITIES,
    SAMPLE_SERIES,
    SAMPLED,
    STEP,
    STEP_SERIES,
    Quantity,
    Sample,
    other_quantities,
    quantities_named,
)
from ddpmon.messages.rank_view import Environment, Exit, RankView
from ddpmon.messages.ranks import (
    Ack,
    AskedOfRank,
    Batch,
    Bye,
    Card,
    Collective,
    Digest,
    Failure,
    FromRank,
    Hello,
    Layout,
    Meeting,
    Scalar,
    Scope,
    Stack,
    ToRank,
    Welcome,
    Where,
)
from ddpmon.messages.setup import Loader, Model, Setup
from ddpmon.messages.snapshots import decode_snapshot, validated_snapshot
from ddpmon.messages.stack_samples import (
    LOADER_ITERATOR,
    MAX_SAMPLED_S,
    MAX_STACKS,
    DataReader,
    SampledStack,
    SampleStacks,
    StackSamples,
)
from ddpmon.messages.steps import Bucket, Pause, Step, Sync
from ddpmon.messages.view_parts import (
    AllReduceView,
    CostView,
    Course,
    CoursesView,
    EfficiencyView,
    HeatRow,
    HeatView,
    InspectView,
    LongStep,
    PrintedLine,
    PrintedView,
    SeriesView,
    StackView,
    TimelineRow,
    TimelineStep,
    TimelineView,
)
from ddpmon.messages.view_requests import (
    Ask,
    Next,
    RankSpans,
    SeriesRequest,
    TimelineRequest,
    ViewRequest,
    merge_requests,
)
from ddpmon.messages.viewers import (
    Attempt,
    BucketView,
    ClockView,
    DeviceMark,
    Episode,
    Event,
    Finding,
    PausingView,
    Refusal,
    RunView,
    Series,
    Snapshot,
    TimesView,
    VerdictFacts,
    models_with_loss,
)
from ddpmon.messages.vocabulary import (
    ALONE,
    BATCH_NORM,
    BUCKETS,
    CHECKPOINT,
    COMPILATION,
    COST_STEPS,
    COST_WINDOWS,
    DATA_PARALLEL,
    DDP,
    DEEPSPEED,
    DEVICE_COURSES,
    DIGEST_SUBJECTS,
    END_STATES,
    EVALUATION,
    EXCLUDED_PAUSES,
    FEW_WEIGHTS,
    FSDP,
    FSDP2,
    GPU_COUNTERS,
    HEAT_JUDGED,
    HEAT_LEVELS,
    HEAT_METRICS,
    HEAT_MOMENTS,
    HEAT_MOST,
    HEAT_STEPS,
    HYBRID,
    INPUTS,
    LOCAL_SGD,
    LOGGED,
    LOSS_OF,
    MAX_FRAMES,
    MAX_LOGGED,
    MAX_NAME,
    MAX_PHASE_NAMES,
    MAX_SCOPES,
    MAX_STEP,
    MAX_TEXT,
    MAX_US,
    MAX_WORLD,
    MEETINGS,
    NOT_PARALLEL,
    NOTABLE,
    OTHER_BUFFERS,
    OUT_OF_DATA,
    OWN_PHASES,
    PARALLEL_JOIN,
    PAUSE,
    PAUSES,
    PHASES,
    PROFILING,
    PROTOCOL,
    REASONS_JOIN,
    RUN_STATES,
    SAMPLE_SECONDS,
    SCALED_UPDATES,
    SERIES_MOST,
    STAGE_CONNECTED,
    STAGE_ENDED,
    STAGE_GROUP,
    STAGE_IMPORTING,
    STAGE_MODEL,
    STAGE_TRAINING,
    STAGES,
    STARTING_WORKERS,
    STEPS,
    SYNC_BUFFERS,
    SYNC_COLLECTIVE,
    SYNC_GRADIENTS,
    SYNC_KINDS,
    TENSOR_PARALLEL,
    UNREDUCED,
    WEIGHTS,
    WHOLE_RUN,
    Phase,
)
from ddpmon.messages.wire import (
    WireError,
    check_hello,
    check_stack,
    decode_from_rank,
    decode_from_viewer,
    decode_lenient,
    decode_to_rank,
    encode,
)
