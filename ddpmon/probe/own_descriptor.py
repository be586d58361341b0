"""A descriptor of the probe's in a process whose script may close, reuse or replace any number.

It lies above the numbers that the kernel gives out, lowest first, so that a number which the script closed is hardly
ever another file's by the next look. Each use asks first whether the number still stands for the same file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource

ABOVE = 1024
"""Daemons close up to here, and seldom more."""
_SHARE_OF_LIMIT = 0.75
"""Share of the limit that is used where fewer numbers are allowed: the script's own lie below."""


class OwnDescriptor:
    """An open file whose number the script may take away."""

    def __init__(self, descriptor: int) -> None:
        """Take over a descriptor, under another number where one is free. OSError: it was closed already."""
        self.number = _moved_up(descriptor)
        self._identity = _identity(self.number)

    @property
    def intact(self) -> bool:
        """Return whether the number still stands for this file. Takes 1 µs."""
        try:
            return _identity(self.number) == self._identity
        except OSError:
            return False

    def close(self) -> None:
        """Close the file, if it is still there."""
        if self.intact:
            with contextlib.suppress(OSError):
                os.close(self.number)


def _moved_up(descriptor: int) -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    above = ABOVE if limit == resource.RLIM_INFINITY else min(ABOVE, int(limit * _SHARE_OF_LIMIT))
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above)
    except OSError:  # none is free up there
        return descriptor
    with contextlib.suppress(OSError):  # the script closed it just now
        os.close(descriptor)
    return moved


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
