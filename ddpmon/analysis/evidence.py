"""Facts beside the steps of a window from which findings are made."""

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
    """A rank's memory, as it was last measured; None: it was not."""

    rank: int
    host: str = ""
    trained_s: float = 0.0
    """Seconds that it has trained."""
    rss_bytes: int | None = None
    worker_bytes: int | None = None
    """Memory of its DataLoader workers alone."""
    left_bytes: int | None = None
    """That its host can still give out."""
    gpu_used_bytes: int | None = None
    gpu_total_bytes: int | None = None
    gpu_reserved_bytes: int | None = None
    """Memory that torch's allocator holds."""
    gpu_allocated_bytes: int | None = None
    """The same in tensors."""
    trends: Mapping[str, Trend] = field(default_factory=dict)
    """Trends of those that grow, by the names of these fields."""
    retry_seconds: int = 0
    """Seconds of the last ones in which torch's allocator gave its cache back."""


@dataclass(frozen=True)
class BadLoss:
    """A rank's first loss of the run that was not finite."""

    rank: int
    step: int
    value: float


@dataclass(frozen=True)
class Unsynchronised:
    """Optimizer steps of a rank on gradients that DDP never reduced."""

    rank: int
    count: int
    last_at: int
    """Steps it had finished when the latest of them was reported."""
    steps: int
    """Steps finished so far."""


@dataclass(frozen=True)
class Wait:
    """The wait in a collective that torch's timeout ends next, and the run with it."""

    waited_s: float
    timeout_s: float
    """Timeout of its process group."""
    ends_at: float
    """End of the timeout, Unix time."""
    standing: Standstill
    """Stack of every rank during the wait; some of the ranks may be working."""


@dataclass(frozen=True)
class Evidence:
    """Facts beside the steps of the window."""

    records: int = 0
    """Step records received."""
    lost: int = 0
    lost_ranks: Sequence[int] = ()
    """The ranks that lost these records."""
    damaged: bool = False
    """True where the recording could not be read in full."""
    bad_losses: Sequence[BadLoss] = ()
    """The first of each rank."""
    failed: FirstFailure | None = None
    attempts: Sequence[Attempt] = ()
    """Earlier attempts, oldest first."""
    step: int = 0
    """Steps of this attempt that all ranks have finished."""
    world_size: int = 0
    standstill: Standstill | None = None
    wait: Wait | None = None
    """None: nobody waits, or it is not known how long anyone may."""
    difference: Difference | None = None
    same: Sameness | None = None
    differences: Mapping[int, Difference | None] = field(default_factory=dict)
    """The same of others of DIGESTS, by their index."""
    inputs: Inputs = field(default_factory=Inputs)
    held_out: Mapping[int, int] = field(default_factory=dict)
    """Updates in a row in evaluation mode, after some in training mode, by rank."""
    skipped: Mapping[int, int] = field(default_factory=dict)
    """Skipped updates among the latest SCALED_UPDATES through a GradScaler, by rank."""
    configurations: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Settings that should be the same on all ranks, by rank."""
    unsynchronised: Sequence[Unsynchronised] = ()
    memory: Sequence[Memory] = ()
    named: NamedPhases | None = None
    """Times that scripts named in the window's steps."""
    gpu_users: Mapping[int, Sequence[GpuUser]] = field(default_factory=dict)
    """Other processes that hold memory of a rank's GPU, by rank."""
    gpu_errors: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Critical errors of a rank's GPU, by rank."""
    conditions: Sequence[Conditions] = ()
    bus_bandwidth_gb_s: Callable[[], float | None] = lambda: None
    """Bandwidth of the buckets' all-reduce, where they are recorded. It takes a while to work out."""
    clocks_within_ms: float = 0.0
    """Error of waits and transfers between hosts."""
    times: Times = field(default_factory=Times)
    """Training and pauses since the first step."""
    parallelism: str = ""
    """DDP, FSDP2, … (see `messages.vocabulary`); "": unknown."""
    unmeasured: Collection[str] = ()
    """Phases of PHASES that are not measured then."""
    setups: Mapping[int, Setup] = field(default_factory=dict)
    """Setup of the training, by rank."""
    unchanged: Unchanged | None = None
    """A model whose weights stay the same though it trains."""
    stack_samples: Sequence[StackSamples] = ()
    """The latest of each rank that was sampled."""
    slowdowns: Sequence[Slowdown] = ()
    """Present and past slowdowns."""

    @cached_property
    def conditions_by_rank(self) -> dict[int, Conditions]:
        """Return what processes and devices of ranks did, by rank."""
        return {one.rank: one for one in self.conditions}

    @property
    def models(self) -> list[tuple[int, Model]]:
        """Return each model that a rank trains, with the rank."""
        return [(rank, model) for rank, setup in sorted(self.setups.items()) for model in setup.models]

    @property
    def loaders(self) -> list[tuple[int, Loader]]:
        """Return each DataLoader that a rank trains from, with the rank."""
        return [(rank, loader) for rank, setup in sorted(self.setups.items()) for loader in setup.loaders]

    def loaders_of_plain_ddp(self, sampler: str = "") -> dict[int, Loader]:
        """Return each rank's loader where all ranks train one DDP model over the whole world, from one loader each.

        Elsewhere there are none: several ranks may be meant to read the same, or unequally much.

        Args:
            sampler: The only loaders that count, by their sampler; "": all.

        """
        everyone = {self.world_size} if self.parallelism == DDP and self.world_size > 1 else set()
        spans = [{model.ranks for model in setup.models} for setup in self.setups.values()]
        found = [(rank, loader) for rank, loader in self.loaders if sampler in {"", loader.sampler}]
        is_plain = len(self.setups) >= self.world_size and all(each == everyone for each in spans)
        return dict(found) if is_plain and [rank for rank, _ in found] == sorted(self.setups) else {}
