"""Reasons why a rank waits for a CPU core: other programs on its cores, and the CPU quota of its container."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ddpmon.messages.vocabulary import Name, Pid

MAX_CPU_PROGRAMS = 8
MAX_CORES = 1 << 20
Cores = Annotated[float, Meta(ge=0, le=MAX_CORES)]


class CpuProgram(msgspec.Struct, array_like=True, frozen=True):
    """A process that used the cores on which the rank may run, and is neither a rank nor a DataLoader worker."""

    pid: Pid
    name: Name
    cores: Cores
    """Mean number of cores that the process kept busy over the last second or seconds."""

    @property
    def title(self) -> str:
        """Return the pid and name of the process and the number of cores it used."""
        return f"process {self.pid} ({self.name}, {self.cores:.1f} cores)"


class CpuRivals(msgspec.Struct, array_like=True, frozen=True):
    """Competitors for a rank's cores, measured when the rank last waited for a core."""

    programs: Annotated[list[CpuProgram], Meta(max_length=MAX_CPU_PROGRAMS)] = []
    """Other programs on these cores, the busiest first."""
    quota_cores: Cores = 0.0
    """Number of cores that the quota of the rank's container allows (cgroup's cpu.max), or 0 if there is no quota."""
    throttled_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the time in which nothing in the container ran because the quota was used up."""

    @property
    def used_cores(self) -> float:
        """Return the number of cores lost to other programs and to the quota."""
        return sum(program.cores for program in self.programs) + self.throttled_share
