"""Competitors of a rank: programs on its cores and the CPU quota of its container, other processes on its GPU.

Errors that the driver of the rank's GPU reports are here too.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ddpmon.messages.vocabulary import MAX_WORLD, Micros, Name, Pid

MAX_CPU_PROGRAMS = 8
MAX_CORES = 1 << 20
Cores = Annotated[float, Meta(ge=0, le=MAX_CORES)]


class CpuProgram(msgspec.Struct, array_like=True, frozen=True):
    """A process that used the CPU cores on which the rank may run. It is neither a rank nor a DataLoader worker."""

    pid: Pid
    name: Name
    cores: Cores
    """Mean number of cores that the process kept busy over the last few seconds."""

    @property
    def title(self) -> str:
        """Return the pid and name of the process and the number of cores it used."""
        return f"process {self.pid} ({self.name}, {self.cores:.1f} cores)"


class CpuRivals(msgspec.Struct, array_like=True, frozen=True):
    """Competitors for a rank's CPU cores, measured when the rank last waited for a core."""

    programs: Annotated[list[CpuProgram], Meta(max_length=MAX_CPU_PROGRAMS)] = []
    """Other programs on the rank's cores, the busiest first."""
    quota_cores: Cores = 0.0
    """Number of cores that the quota of the rank's container allows (cgroup's cpu.max), or 0 if there is no quota."""
    throttled_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the time in which nothing in the container ran because the quota was used up."""

    @property
    def used_cores(self) -> float:
        """Return the number of cores lost to other programs and to the quota."""
        return sum(program.cores for program in self.programs) + self.throttled_share


MAX_GPU_USERS = MAX_GPU_ERRORS = 16
NO_USER_RANK = -1


class GpuUser(msgspec.Struct, array_like=True, frozen=True):
    """A process other than the rank that holds memory of the rank's GPU."""

    pid: Pid
    name: Name = ""
    """Name of the process's program, or "" if unknown."""
    used_bytes: Micros = 0
    """GPU memory that the process uses, in bytes, or 0 if unknown."""
    of_run: bool = False
    """True if the process belongs to the same run as the rank."""
    left_over: bool = False
    """True if the process is a rank of another run whose launcher has ended."""
    rank: Annotated[int, Meta(ge=NO_USER_RANK, lt=MAX_WORLD)] = NO_USER_RANK
    """Rank number if the process is a rank, else NO_USER_RANK. Hubs set it."""

    @property
    def title(self) -> str:
        """Return the pid of the process and, if known, its name."""
        return f"pid {self.pid} ({self.name})" if self.name else f"pid {self.pid}"


GpuUsers: TypeAlias = Annotated[list[GpuUser], Meta(max_length=MAX_GPU_USERS)]
GpuErrors: TypeAlias = Annotated[list[Name], Meta(max_length=MAX_GPU_ERRORS)]
