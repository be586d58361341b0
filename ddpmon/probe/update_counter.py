"""Memory in which a rank counts its updates, so that its hub knows how many steps were lost if the rank is killed."""

from __future__ import annotations

import fcntl
import mmap
import os
from array import array
from typing import TypeAlias

from ddpmon.messages.step_counter import COUNTER_BYTES, COUNTER_NAME, READ

Counters: TypeAlias = "memoryview[int]"


def private() -> Counters:
    """Return counters in private memory, for a process that is not a rank, or not yet."""
    return memoryview(bytearray(COUNTER_BYTES)).cast("Q")


def shared(before: Counters) -> tuple[Counters, int]:
    """Return counters that outlive this process and continue from `before`, and their descriptor.

    Returns `before` and -1 if such memory is not available. The memory is sealed against truncation, because a write
    beyond its end would kill the process.
    """
    try:
        descriptor = os.memfd_create(COUNTER_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.write(descriptor, before.tobytes())
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            memory = mmap.mmap(descriptor, COUNTER_BYTES)
        except OSError:
            os.close(descriptor)
            raise
    except OSError:  # A kernel or a sandbox may lack such memory.
        return before, -1
    return memoryview(memory).cast("Q"), descriptor


def mark_read(counters: Counters, updates: int, steps: int) -> None:
    """Set how many steps the background thread has read, and how many updates they took."""
    counters[READ : READ + 2] = memoryview(array("Q", [updates, steps]))  # One assignment sets both numbers at once.
