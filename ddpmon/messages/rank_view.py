"""View of a rank: everything that a snapshot tells viewers about it.

A measured quantity may be any float, including NaN and infinity, as everywhere in a snapshot.
"""

from __future__ import annotations

from operator import attrgetter

import msgspec

from ddpmon.messages.competitors import GpuUser
from ddpmon.messages.quantities import GPU, SAMPLED, Sample
from ddpmon.messages.ranks import Stack
from ddpmon.messages.vocabulary import PHASES, Count, Rank, Text

_read_gpu = attrgetter(*(row.field for row in SAMPLED if row.where == GPU))


class Exit(msgspec.Struct, frozen=True):
    """How a rank's process ended."""

    code: int | None = None
    signal: Text | None = None
    error: Text | None = None
    """Type and message of the uncaught exception, in one line."""
    traceback: Text | None = None


class Environment(msgspec.Struct, array_like=True, frozen=True):
    """Hardware and software of a rank, from its Hello. A field is "" or 0 if the rank did not report it."""

    device_name: Text = ""
    """Model name of the GPU."""
    cores: Count = 0
    """Number of cores on which the process may run."""
    compute_threads: Count = 0
    """Number of threads that torch uses for one operation on the CPU."""
    torch_version: Text = ""
    backend: Text = ""
    parameters: Count = 0
    gradient_bytes: Count = 0
    buffer_bytes: Count = 0
    restart: Count = 0
    """torchrun's restart count."""
    loader_workers: Count | None = None
    """Number of workers of the DataLoader from which the rank read last."""


class RankView(msgspec.Struct, frozen=True):
    """One rank over the current window of steps. A field is None if its value is not measured."""

    rank: Rank
    host: Text = ""
    local_rank: Count = 0
    node_rank: Count = 0
    pid: Count = 0
    device: Text = "cpu"
    stage: Text = "importing"
    """One of STAGES."""
    health: Text = "missing"
    """State of the connection: "missing" (never heard), "ok", "silent" (heartbeat overdue), "dead" (process ended
    without Bye), or "left" (process said Bye)."""
    steps: Count = 0
    step_ms: float | None = None
    own_ms: float | None = None
    over_median: float | None = None
    """Own time in excess of the median of the other ranks, as a fraction: 0.15 is 15% slower."""
    phases_ms: tuple[float, ...] | None = None
    """Mean time per step in each phase, in the order of PHASES. The phases add up to step_ms."""
    late_ms: float | None = None
    """Mean lateness in ms: own arrival minus the others' median arrival at the gradient synchronisation. An arrival
    does not include the time that the rank had already waited for others in that step."""
    critical_share: float | None = None
    loss: float | None = None
    samples_per_s: float | None = None
    sample: Sample | None = None
    """The rank's latest sample, with `time_us` 0. Quantities with `Quantity.mean` are means over the last seconds."""
    exit: Exit | None = None
    tokens_per_s: float | None = None
    learning_rate: float | None = None
    gc_ms: float | None = None
    """Mean time in ms per step in Python's garbage collector. This time is also part of `phases_ms`."""
    stack: Stack | None = None
    """Last known stack of the rank's training thread, in a run that stands still or has ended."""
    environment: Environment | None = None
    named_ms: dict[Text, float] = msgspec.field(default_factory=dict)
    """Mean time in ms per step inside each `ddpmon.phase` that any rank has used. This time is also part of
    `phases_ms`."""
    unmeasured: list[Text] = msgspec.field(default_factory=list)
    """Phases that are not measured in this kind of training: their numbers in `phases_ms` mean nothing."""
    window: tuple[Count, Count] | None = None
    """First and last step over which this rank's means are computed, if the rank stopped earlier than other ranks. None
    if the means are computed over the snapshot's window."""
    gpu_users: list[GpuUser] = []
    """Other processes that hold memory of the rank's GPU."""
    gpu: Text = ""
    """UUID of the rank's GPU or MIG instance, or "" if the rank has no GPU or the UUID is unknown. Ranks may share a
    GPU."""

    @property
    def has_gpu_sample(self) -> bool:
        """Return whether the sample has a measurement of the rank's GPU."""
        return self.sample is not None and any(value is not None for value in _read_gpu(self.sample))

    @property
    def throttled(self) -> str:
        """Return why the rank's GPU throttles its clocks, or "" if it does not throttle or the reason is unknown."""
        return (self.sample.gpu_throttled or "") if self.sample is not None else ""

    def phase_ms(self, name: str) -> float | None:
        """Return the mean time in ms in a phase of the rank's step, or None if the phase has not been measured."""
        place, phases = PHASES.index(name), self.phases_ms or ()
        return phases[place] if place < len(phases) and name not in self.unmeasured else None
