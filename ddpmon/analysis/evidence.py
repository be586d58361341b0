"""The data from which findings are made, apart from the steps of the window."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.processes.failures import FirstFailure
from ddpmon.analysis.processes.hangs import Standstill
from ddpmon.analysis.processes.replicas import Difference, Inputs, Sameness, Unchanged
from ddpmon.analysis.slowness.slowdown import Slowdown
from ddpmon.analysis.statistics.trend import Trend
from ddpmon.analysis.steps.named_phases import NamedPhases
from ddpmon.analysis.steps.pauses import Times
from ddpmon.messages import DDP, Attempt, GpuUser, Loader, Model, Setup, StackSamples


@dataclass(frozen=True)
class Memory:
    """The memory of a rank as last measured; None: not measured."""

    rank: int
    host: str = ""
    trained_s: float = 0.0
    """Seconds for which the rank has trained."""
    rss_bytes: int | None = None
    worker_bytes: int | None = None
    """Memory of the rank's DataLoader workers alone."""
    left_bytes: int | None = None
    """Memory that the rank's host can still provide."""
    gpu_used_bytes: int | None = None
    gpu_total_bytes: int | None = None
    gpu_reserved_bytes: int | None = None
    """Memory that torch's allocator has reserved."""
    gpu_allocated_bytes: int | None = None
    """The part of the reserved memory that tensors use."""
    trends: Mapping[str, Trend] = field(default_factory=dict)
    """Trends of the values that grow, by the names of these fields."""
    retry_seconds: int = 0
    """Number of seconds, of the latest 30, in which torch's allocator released its cache."""


@dataclass(frozen=True)
class BadLoss:
    """A rank's first loss in the run that was not finite."""

    rank: int
    step: int
    value: float


@dataclass(frozen=True)
class Unsynchronised:
    """A rank's optimizer steps on gradients that DDP never reduced."""

    rank: int
    count: int
    last_at: int
    """Number of steps that the rank had finished when the latest optimizer step of this kind was reported."""
    steps: int
    """Number of steps that the rank has finished so far."""


@dataclass(frozen=True)
class Wait:
    """The wait in a collective whose timeout expires first. Torch then ends the wait and the run."""

    waited_s: float
    timeout_s: float
    """Timeout of the collective's process group in seconds."""
    ends_at: float
    """Moment when the timeout expires, Unix time."""
    standing: Standstill
    """The stack of every rank during the wait; some of the ranks may be working."""


@dataclass(frozen=True)
class Evidence:
    """The data from which findings are made, apart from the steps of the window."""

    records: int = 0
    """Number of step records received."""
    lost: int = 0
    lost_ranks: Sequence[int] = ()
    """The ranks whose step records were lost."""
    damaged: bool = False
    """True if the recording could not be read in full."""
    bad_losses: Sequence[BadLoss] = ()
    """The first loss of each rank that was not finite."""
    failed: FirstFailure | None = None
    attempts: Sequence[Attempt] = ()
    """Earlier attempts, oldest first."""
    step: int = 0
    """Number of steps of this attempt that all ranks have finished."""
    world_size: int = 0
    attached: bool = False
    """True if the job was training already when ddpmon attached to it, so that its first steps are unknown."""
    standstill: Standstill | None = None
    wait: Wait | None = None
    """The wait that a timeout will end; None: no rank waits, or the timeout is unknown."""
    difference: Difference | None = None
    same: Sameness | None = None
    differences: Mapping[int, Difference | None] = field(default_factory=dict)
    """Differences between replicas in DIGESTS other than weights, by index into DIGESTS."""
    inputs: Inputs = field(default_factory=Inputs)
    held_out: Mapping[int, int] = field(default_factory=dict)
    """Number of latest consecutive updates in evaluation mode, if there were updates in training mode before, by
    rank."""
    skipped: Mapping[int, int] = field(default_factory=dict)
    """Number of skipped updates among the latest SCALED_UPDATES with a GradScaler, by rank."""
    configurations: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Settings that should be the same on all ranks, by rank."""
    unsynchronised: Sequence[Unsynchronised] = ()
    memory: Sequence[Memory] = ()
    named: NamedPhases | None = None
    """Times that scripts named with `ddpmon.phase` in the window's steps."""
    gpu_users: Mapping[int, Sequence[GpuUser]] = field(default_factory=dict)
    """Other processes that hold memory of a rank's GPU, by rank."""
    gpus: Mapping[int, str] = field(default_factory=dict)
    """UUIDs of the ranks' GPUs, by rank, as far as they are known."""
    gloo_on_gpus: bool = False
    """True if all ranks use the backend gloo for tensors on GPUs."""
    gpu_errors: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Critical errors of a rank's GPU, by rank."""
    conditions: Sequence[Conditions] = ()
    bus_bandwidth_gb_s: Callable[[], float | None] = lambda: None
    """Function that computes the bandwidth of the buckets' all-reduce, which takes a while. None if no buckets are
    recorded."""
    clocks_within_ms: float = 0.0
    """Error in ms of waits and transfers between hosts, because of the hosts' clocks."""
    times: Times = field(default_factory=Times)
    """Time in training and in pauses since the first step."""
    parallelism: str = ""
    """The kind of parallelism, such as DDP or FSDP2 (see `messages.vocabulary`); "": unknown."""
    unmeasured: Collection[str] = ()
    """Names in PHASES that are not measured with this parallelism."""
    setups: Mapping[int, Setup] = field(default_factory=dict)
    """The setup of the training, by rank."""
    unchanged: Unchanged | None = None
    """A model whose weights stay the same although it trains."""
    stack_samples: Sequence[StackSamples] = ()
    """The latest stack samples of each rank that was sampled."""
    slowdowns: Sequence[Slowdown] = ()
    """Present and past slowdowns."""

    @cached_property
    def conditions_by_rank(self) -> dict[int, Conditions]:
        """Return the measurements of processes and devices over the last seconds, by rank."""
        return {one.rank: one for one in self.conditions}

    @property
    def models(self) -> list[tuple[int, Model]]:
        """Return each model that a rank trains, with its rank."""
        return [(rank, model) for rank, setup in sorted(self.setups.items()) for model in setup.models]

    @property
    def loaders(self) -> list[tuple[int, Loader]]:
        """Return each DataLoader that a rank trains from, with its rank."""
        return [(rank, loader) for rank, setup in sorted(self.setups.items()) for loader in setup.loaders]

    def loaders_of_plain_ddp(self, sampler: str = "") -> dict[int, Loader]:
        """Return each rank's loader if all ranks train one DDP model over the whole world, from one loader each.

        Otherwise return an empty dict, because several ranks may read the same samples, or unequal numbers, on purpose.

        Args:
            sampler: Consider only loaders with this sampler; "": all.

        """
        everyone = {self.world_size} if self.parallelism == DDP and self.world_size > 1 else set()
        spans = [{model.ranks for model in setup.models} for setup in self.setups.values()]
        found = [(rank, loader) for rank, loader in self.loaders if sampler in {"", loader.sampler}]
        is_plain = len(self.setups) >= self.world_size and all(each == everyone for each in spans)
        return dict(found) if is_plain and [rank for rank, _ in found] == sorted(self.setups) else {}
