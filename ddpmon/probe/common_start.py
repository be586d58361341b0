"""Has the ranks of a job that was attached to count their steps from the same one.

Each rank is entered at a moment of its own, in the midst of a step. Its steps could begin with the next
synchronisation, but by then another rank may be three steps further. So every rank leaves in the run's folder where it
came to its first synchronisation: the number of collectives that its process group had issued by then, which is the
same on all ranks at the same place of the script. Steps count from the latest of these places. Notes that are made
until all ranks have come there wait, so that none needs to guess.
"""

from __future__ import annotations

import contextlib
import os

from ddpmon.probe.identity import Identity
from ddpmon.probe.run_folder import private_folder

STARTS = "starts"
MAX_WAITING_NOTES = 50_000
"""Notes that may wait for other ranks, so that memory is bounded: those of thousands of steps. Ranks that get so far
ahead of each other do not wait for each other in every step."""
NOT_IN_STEP = "the ranks do not synchronise in every step, so each rank counts steps from its own first step"


class CommonStart:
    """Agrees with the other ranks on where steps begin to count."""

    def __init__(self, ranks: int) -> None:
        """ranks: Count of ranks of this machine."""
        self.first: int | None = None
        """Collectives that were issued when this rank first synchronised; set by the training thread."""
        self.begun_at: int | None = None
        """Count of synchronisations of this rank when its steps began to count; set by the background thread."""
        self._ranks = ranks

    def agreed(self, identity: Identity, waiting: int) -> int | None:
        """Return where steps begin to count; None: not every rank has synchronised yet. waiting: count of notes."""
        first = self.first
        if first is None:
            return None
        if self._ranks < 2:
            return first
        places = self._places(identity, first)
        if places is not None and len(places) >= self._ranks:
            return max(places)
        if places is None or waiting > MAX_WAITING_NOTES:
            identity.add_note(NOT_IN_STEP)
            return first
        return None

    def _places(self, identity: Identity, first: int) -> list[int] | None:
        """Leave this rank's place for the others and return all that are there; None: the run has no folder here."""
        # Ranks that the launcher started again are other processes, which agree anew.
        folder = private_folder(f"{STARTS}-{identity.restart}")
        if folder is None:
            return None
        mine = os.path.join(folder, str(identity.rank))
        try:
            if not os.path.exists(mine):
                with open(f"{mine}.new", "w", encoding="ascii") as file:
                    file.write(str(first))
                os.replace(f"{mine}.new", mine)
            names = [name for name in os.listdir(folder) if name.isdecimal()]
        except OSError:  # a full disk, say
            return None
        places = []
        for name in names:
            with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, name), encoding="ascii") as file:
                places.append(int(file.read(20)))
        return places
