"""What takes the cores of a rank that gets none: other programs, and the limit of its container."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ddpmon.messages.vocabulary import Name, Pid

MAX_CPU_PROGRAMS = 8
MAX_CORES = 1 << 20
Cores = Annotated[float, Meta(ge=0, le=MAX_CORES)]


class CpuProgram(msgspec.Struct, array_like=True, frozen=True):
    """A process, no rank and no worker, that used the cores on which the rank may run."""

    pid: Pid
    name: Name
    cores: Cores
    """Cores that it kept busy, as a mean over the last second or seconds."""

    @property
    def title(self) -> str:
        """Return its pid, its name and what it used."""
        return f"process {self.pid} ({self.name}, {self.cores:.1f} cores)"


class CpuRivals(msgspec.Struct, array_like=True, frozen=True):
    """What takes a rank's cores, as it was when it last waited for one."""

    programs: Annotated[list[CpuProgram], Meta(max_length=MAX_CPU_PROGRAMS)] = []
    """The busiest first."""
    quota_cores: Cores = 0.0
    """Cores that its container's quota allows (cgroup's cpu.max); 0: there is no quota."""
    throttled_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the time in which that quota was used up, and nothing in the container ran."""

    @property
    def used_cores(self) -> float:
        """Return the cores that other programs and the quota take."""
        return sum(program.cores for program in self.programs) + self.throttled_share
