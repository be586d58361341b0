"""The memory in which a rank counts its updates, so that its hub can tell what it lost when the rank is killed."""

from __future__ import annotations

import fcntl
import mmap
import os
from array import array
from typing import TypeAlias

from ddpmon.messages.step_counter import BYTES, NAME, READ

Counters: TypeAlias = "memoryview[int]"


def private() -> Counters:
    """Return counters that nobody else can read: of a process that is no rank (yet)."""
    return memoryview(bytearray(BYTES)).cast("Q")


def shared(before: Counters) -> tuple[Counters, int]:
    """Return counters that outlive this process and go on from `before`, and their descriptor; -1: there can be none.

    The memory cannot be made shorter: a store beyond its end would kill the process.
    """
    try:
        descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.write(descriptor, before.tobytes())
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            memory = mmap.mmap(descriptor, BYTES)
        except OSError:
            os.close(descriptor)
            raise
    except OSError:  # a kernel or a sandbox that has no such memory
        return before, -1
    return memoryview(memory).cast("Q"), descriptor


def mark_read(counters: Counters, updates: int, steps: int) -> None:
    """Note how many steps the background thread has read, and how many updates they took."""
    counters[READ : READ + 2] = memoryview(array("Q", [updates, steps]))  # both at once
