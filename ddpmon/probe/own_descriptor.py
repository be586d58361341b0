"""Protects a descriptor of the probe in a process whose script may close, reuse or replace any descriptor.

The kernel assigns the lowest free number to a new file, so the probe's descriptor gets a high one. If the script closes
it, the number is seldom reused before the next check. Each use first checks that the number still belongs to the same
file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource

ABOVE = 1024
"""Lowest number to use. Daemons usually close only descriptors below about this number."""
_SHARE_OF_LIMIT = 0.75
"""If the limit of open files is low: the probe uses only numbers above this share of the limit."""


class OwnDescriptor:
    """An open file of the probe, whose descriptor the script may close or reuse."""

    def __init__(self, descriptor: int) -> None:
        """Take over a descriptor, and move it to a higher number if one is free. Raises OSError if it is closed."""
        self.number = _moved_up(descriptor)
        self._identity = _identity(self.number)

    @property
    def is_intact(self) -> bool:
        """Return whether the number still belongs to this file. Takes 1 µs."""
        try:
            return _identity(self.number) == self._identity
        except OSError:
            return False

    def close(self) -> None:
        """Close the file, unless the script has taken its number."""
        if self.is_intact:
            with contextlib.suppress(OSError):
                os.close(self.number)


def _moved_up(descriptor: int) -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    above = ABOVE if limit == resource.RLIM_INFINITY else min(ABOVE, int(limit * _SHARE_OF_LIMIT))
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, above)
    except OSError:  # No high number is free.
        return descriptor
    with contextlib.suppress(OSError):  # The script may have just closed it.
        os.close(descriptor)
    return moved


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
