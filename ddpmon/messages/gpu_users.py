"""Parts of messages about a rank's GPU: other processes that use it, and errors that its driver reports."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from ddpmon.messages.vocabulary import MAX_WORLD, Micros, Name, Pid

MAX_GPU_USERS = MAX_GPU_ERRORS = 16
NO_USER_RANK = -1


class GpuUser(msgspec.Struct, array_like=True, frozen=True):
    """A process other than the rank that holds memory of the rank's GPU."""

    pid: Pid
    name: Name = ""
    """Name of its program, or "" if unknown."""
    used_bytes: Micros = 0
    """GPU memory that it uses, in bytes, or 0 if unknown."""
    of_run: bool = False
    """True if it belongs to the same run as the rank."""
    left_over: bool = False
    """True if it is a rank of another run whose launcher has ended."""
    rank: Annotated[int, Meta(ge=NO_USER_RANK, lt=MAX_WORLD)] = NO_USER_RANK
    """Rank number if the process is a rank, else NO_USER_RANK. Hubs set it."""

    @property
    def title(self) -> str:
        """Return the pid of the process and, if known, its name."""
        return f"pid {self.pid} ({self.name})" if self.name else f"pid {self.pid}"


GpuUsers: TypeAlias = Annotated[list[GpuUser], Meta(max_length=MAX_GPU_USERS)]
GpuErrors: TypeAlias = Annotated[list[Name], Meta(max_length=MAX_GPU_ERRORS)]
