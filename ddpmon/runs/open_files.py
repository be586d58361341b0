"""Raises the number of files and sockets that this process may have open. Standard library only."""

from __future__ import annotations

import contextlib
import resource


def allow_most() -> None:
    """Raise the soft limit, which is often 1,024, to the hard limit."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
