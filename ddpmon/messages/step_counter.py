"""Counter of a rank's steps in memory that outlives the rank, because a killed rank cannot send its last records.

The rank creates the memory (a sealed memfd), its training thread counts in it, and the hub opens it when the rank sends
Hello. The training thread cannot tell where a step ends, so it counts updates: synchronised gradients, and optimizer
steps on gradients that were not synchronised. The background thread writes how many steps it has read, and how many
updates these took.
"""

from __future__ import annotations

import struct

COUNTER_NAME = "ddpmon-steps"
UPDATES = 0
"""Index of the training thread's count of updates."""
READ = 1
"""Index of the background thread's count of updates in the steps that the background thread has read. The next index
has the number of these steps."""
_PLACES = struct.Struct("@QQQ")
COUNTER_BYTES = _PLACES.size


def finished_steps(content: bytes) -> int:
    """Estimate how many steps the rank finished, from the number of updates per step in the steps read before."""
    updates, updates_read, steps = _PLACES.unpack(content)
    unread = max(0, updates - updates_read)
    if not steps:
        return int(unread)  # The rank was killed before its background thread had read the first step.
    return int(steps + (unread * steps // updates_read if updates_read else 0))
