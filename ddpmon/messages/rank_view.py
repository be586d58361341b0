"""Everything that viewers are shown of a rank.

A measured quantity may be any float, nan and infinity too: see `viewers`.
"""

from __future__ import annotations

from operator import attrgetter

import msgspec

from ddpmon.messages.gpu_users import GpuUser
from ddpmon.messages.quantities import GPU, SAMPLED, Sample
from ddpmon.messages.ranks import Stack
from ddpmon.messages.vocabulary import PHASES, Count, Rank, Text

_read_gpu = attrgetter(*(row.field for row in SAMPLED if row.where == GPU))


class Exit(msgspec.Struct, frozen=True):
    """End of a rank."""

    code: int | None = None
    signal: Text | None = None
    error: Text | None = None
    """One line, of the exception that nobody caught."""
    traceback: Text | None = None


class Environment(msgspec.Struct, array_like=True, frozen=True):
    """Hardware and software of a rank, as its Hello tells. Empty or 0: it does not say."""

    device_name: Text = ""
    """The name of the GPU's model."""
    cores: Count = 0
    """That the process may run on."""
    compute_threads: Count = 0
    """That torch uses for one operation on the CPU."""
    torch_version: Text = ""
    backend: Text = ""
    parameters: Count = 0
    gradient_bytes: Count = 0
    buffer_bytes: Count = 0
    restart: Count = 0
    """torchrun's restart count."""
    loader_workers: Count | None = None
    """Workers of the DataLoader that was read last."""


class RankView(msgspec.Struct, frozen=True):
    """One rank over the current window. None: not measured."""

    rank: Rank
    host: Text = ""
    local_rank: Count = 0
    node_rank: Count = 0
    pid: Count = 0
    device: Text = "cpu"
    stage: Text = "importing"
    """One of STAGES."""
    health: Text = "missing"
    """"missing" (never heard), "ok", "silent" (heartbeat overdue), "dead" (process gone), "left" (said goodbye)."""
    steps: Count = 0
    step_ms: float | None = None
    own_ms: float | None = None
    over_median: float | None = None
    """Own time over the median of the other ranks', as a fraction: 0.15 is 15% slower."""
    phases_ms: tuple[float, ...] | None = None
    """Mean per step, in the order of PHASES; adds up to step_ms."""
    late_ms: float | None = None
    """Mean lateness: own arrival less the others' median arrival in the gradient synchronisation, each less what the
    rank had waited in the step until then."""
    critical_share: float | None = None
    loss: float | None = None
    samples_per_s: float | None = None
    sample: Sample | None = None
    """Its latest sample, without the moment; where a quantity's row says so, the mean of the last seconds."""
    exit: Exit | None = None
    tokens_per_s: float | None = None
    learning_rate: float | None = None
    gc_ms: float | None = None
    """Python's garbage collector, mean per step, inside whatever phase it fell into."""
    stack: Stack | None = None
    """Last known place of its training thread, in a run that stands still or has ended."""
    environment: Environment | None = None
    named_ms: dict[Text, float] = msgspec.field(default_factory=dict)
    """Time inside each `ddpmon.phase` that any rank of the world had, mean per step, part of the phases."""
    unmeasured: list[Text] = msgspec.field(default_factory=list)
    """Phases of which nothing is measured in this kind of training: their numbers in `phases_ms` mean nothing."""
    window: tuple[Count, Count] | None = None
    """First and last step that its means are of, where it has had none since and they are not the snapshot's."""
    gpu_users: list[GpuUser] = []
    """Other processes that hold memory of its GPU."""

    @property
    def has_gpu_sample(self) -> bool:
        """Return whether anything is measured of its GPU."""
        return self.sample is not None and any(value is not None for value in _read_gpu(self.sample))

    @property
    def throttled(self) -> str:
        """Return why its GPU holds its clocks down; "" if it does not, or nobody knows."""
        return (self.sample.gpu_throttled or "") if self.sample is not None else ""

    def phase_ms(self, name: str) -> float | None:
        """A phase of the rank's step; None where it is not measured, or not yet."""
        place, phases = PHASES.index(name), self.phases_ms or ()
        return phases[place] if place < len(phases) and name not in self.unmeasured else None
