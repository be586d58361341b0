"""Counts a rank's steps in memory that outlives it: a rank that is killed cannot send its last records.

The rank makes the memory (a sealed memfd), its training thread counts in it, and the hub opens it when the rank says
hello. The training thread does not know what a step is, so it counts updates: synchronised gradients, and optimizer
steps on gradients that were not. The background thread adds how many updates the steps took that it has read.
"""

from __future__ import annotations

import struct

NAME = "ddpmon-steps"
UPDATES = 0
"""The place of the training thread's count."""
READ = 1
"""The place of what the background thread adds: the updates of all finished steps, and how many steps that are."""
_PLACES = struct.Struct("@QQQ")
BYTES = _PLACES.size


def finished_steps(content: bytes) -> int:
    """Return how many steps the rank finished, where each takes as many updates as those before it did."""
    updates, updates_read, steps = _PLACES.unpack(content)
    unread = max(0, updates - updates_read)
    if not steps:
        return int(unread)  # it was killed before its background thread had read the first one
    return int(steps + (unread * steps // updates_read if updates_read else 0))
