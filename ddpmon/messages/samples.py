"""Messages about the process and the GPU of a rank: what it measures once a second, and who else uses its GPU."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ddpmon.messages.values import Amount, Celsius, Micros, Name, Pid
from ddpmon.messages.vocabulary import MAX_WORLD, REASONS_JOIN

MAX_GPU_USERS = MAX_GPU_ERRORS = 16
NO_RANK = -1


class GpuUser(msgspec.Struct, array_like=True, frozen=True):
    """A process other than the rank that holds memory of the rank's GPU."""

    pid: Pid
    name: Name = ""
    """The name of its program; "": not known."""
    used_bytes: Micros = 0
    """0: not known."""
    of_run: bool = False
    """True if it belongs to the same run as the rank."""
    left_over: bool = False
    """True if it is a rank of another run whose launcher has ended."""
    rank: Annotated[int, Meta(ge=NO_RANK, lt=MAX_WORLD)] = NO_RANK
    """The rank that it is; set by hubs."""

    @property
    def title(self) -> str:
        """Return its pid and its name."""
        return f"pid {self.pid} ({self.name})" if self.name else f"pid {self.pid}"


GpuUsers: TypeAlias = Annotated[list[GpuUser], Meta(max_length=MAX_GPU_USERS)]
GpuErrors: TypeAlias = Annotated[list[Name], Meta(max_length=MAX_GPU_ERRORS)]


class Sample(msgspec.Struct, array_like=True, gc=False):
    """Activity of a rank's process and device in the last second, or in the last two, where the hub of a node of very
    many put two samples together. None: not measured here.

    Its numbers are rows of QUANTITIES, which say what each is.
    """

    time_us: Micros
    cpu_percent: Amount | None = None
    rss_bytes: Micros | None = None
    gpu_percent: Amount | None = None
    gpu_memory_used_bytes: Micros | None = None
    gpu_memory_total_bytes: Micros | None = None
    gpu_power_w: Amount | None = None
    gpu_temperature_c: Celsius | None = None
    gpu_clock_mhz: Amount | None = None
    starved_share: Amount | None = None
    """Share of that second in which the training thread could run, but no core was free for it."""
    major_faults_per_s: Amount | None = None
    """Page faults that had to wait for a disk."""
    minor_faults_per_s: Amount | None = None
    read_bytes_per_s: Amount | None = None
    """Bytes from storage, read by this process alone: its DataLoader workers are processes of their own."""
    written_bytes_per_s: Amount | None = None
    threads: Micros | None = None
    gpu_throttled: Annotated[str, Meta(max_length=256)] | None = None
    """Why the GPU holds its clocks down: reasons, with REASONS_JOIN between them; "" if it does not."""
    loader_workers: Micros | None = None
    """Workers of the DataLoader that was read last."""
    loader_pinned: bool | None = None
    """True if its batches lie in pinned memory; None: they are for a CPU."""
    sent_bytes_per_s: Amount | None = None
    """Over the network, by its whole host."""
    received_bytes_per_s: Amount | None = None
    io_wait_share: Amount | None = None
    """Share of that second in which some process of its host waited for storage, by the kernel's pressure counters."""
    cores_busy_share: Amount | None = None
    """Share of all cores of its host that were busy with anything."""

    worker_memory_bytes: Micros | None = None
    """Memory of its DataLoader workers that no other process shares."""
    memory_left_bytes: Micros | None = None
    """That its host can still give out, or its cgroup where that has less."""
    gpu_allocated_bytes: Micros | None = None
    """In tensors, as torch's allocator counts."""
    gpu_reserved_bytes: Micros | None = None
    """That torch's allocator has taken from the GPU, its cache included."""
    gpu_alloc_retries: Micros | None = None
    """Number of times that the allocator has given its cache back to find room."""

    @property
    def throttles(self) -> tuple[str, ...]:
        """Why the GPU holds its clocks down, reason by reason."""
        return tuple(self.gpu_throttled.split(REASONS_JOIN)) if self.gpu_throttled else ()
