"""Has the ranks of a job that was attached to count their steps from the same one.

Each rank is entered at a moment of its own, in the midst of a step. Its steps could begin with the next
synchronisation, but by then another rank may be three steps further. So every rank leaves in the run's folder where it
came to its first synchronisation: the number of collectives that its process group had issued by then, which is the
same on all ranks at the same place of the script. Steps count from the latest of these places. Notes that are made
until all ranks have come there wait, so that none needs to guess.

Each of several machines is attached to at a moment of its own, perhaps minutes after the others. There the ranks count
as rank 0 does: rank 0 tells, in the store of the process group, after which number of collectives its latest step
ended. The other ranks begin at such a place, with the number of that step.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

from ddpmon.probe.identity import Identity
from ddpmon.probe.run_settings import private_folder

STARTS = "starts"
PLACE = "ddpmon/step"
"""Key of rank 0's latest place in the store; the number of the restart follows."""
EVERY_S = 0.25
"""Interval at which rank 0's place is written and read."""
PATIENCE_S = 10.0
"""Time without a place of rank 0, after which a rank says what it waits for."""
MAX_WAITING_NOTES = 50_000
"""Notes that may wait for other ranks, so that memory is bounded: those of thousands of steps. Ranks that get so far
ahead of each other do not wait for each other in every step."""
NOT_IN_STEP = "the ranks do not synchronise in every step, so each rank counts steps from its own first step"
NOT_TOLD = "ddpmon shows the steps of this machine as soon as ddpmon is attached to rank 0, too"


class CommonStart:
    """Agrees with the other ranks on where steps begin to count."""

    def __init__(self, ranks: int, *, machines: bool = False) -> None:
        """ranks: Count of ranks of this machine. machines: ranks of other machines belong to the same run."""
        self.first: int | None = None
        """Collectives that were issued when this rank first synchronised; set by the training thread."""
        self.begun_at: int | None = None
        """Count of synchronisations of this rank when its steps began to count; set by the background thread."""
        self.steps = self.parts = 0
        """Steps, and parts of steps, that rank 0 had counted where the steps of this rank begin to count."""
        self.machines = machines
        self.place: tuple[int, int, int] | None = None
        """Rank 0's latest place: collectives, parts and steps so far. Rank 0 sets it, the others read it."""
        self._ranks = ranks
        self._began_at = time.monotonic()

    def agreed(self, identity: Identity, waiting: int) -> int | None:
        """Return where steps begin to count; None: not every rank has synchronised yet. waiting: count of notes."""
        first = self.first
        if first is None:
            return None
        if self.machines and identity.rank != 0:
            return self._as_rank_0(identity, first, waiting)
        if self._ranks < 2 or self.machines:
            return first
        places = self._places(identity, first)
        if places is not None and len(places) >= self._ranks:
            return max(places)
        if places is None or waiting > MAX_WAITING_NOTES:
            identity.add_note(NOT_IN_STEP)
            return first
        return None

    def _as_rank_0(self, identity: Identity, first: int, waiting: int) -> int | None:
        """Begin at rank 0's latest place, if this rank noted all that came after it."""
        place = self.place
        if place is not None and place[0] >= first:
            begins_at, self.parts, self.steps = place
            identity.change(steps_before=self.steps)
            return begins_at
        if time.monotonic() - self._began_at > PATIENCE_S:
            identity.add_note(NOT_TOLD)
        if waiting > MAX_WAITING_NOTES:
            identity.add_note(NOT_IN_STEP)
            return first
        return None

    def exchange(self, store: Any, identity: Identity, wait: Callable[[float], bool]) -> None:
        """Write rank 0's place into a store, or read it there, until this rank counts. wait: True ends it."""
        key, written = f"{PLACE}/{identity.restart}", None
        while not wait(EVERY_S):
            if identity.rank == 0 and self.place != written:
                written = self.place
                store.set(key, " ".join(map(str, written or ())))
            elif identity.rank != 0 and self.begun_at is not None:
                return
            elif identity.rank != 0 and store.check([key]):
                issued, parts, steps = map(int, store.get(key).split())
                self.place = issued, parts, steps

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
