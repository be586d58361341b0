"""Makes the ranks of a job that ddpmon attached to count their steps from the same step.

ddpmon attaches to each rank at another time, in the middle of a step. A rank could count from its next synchronisation,
but another rank may be three steps further. So at its first synchronisation, each rank writes into the run's folder how
many collectives its process group has issued. This number is the same on all ranks at the same place in the script.
Steps count from the largest of the ranks' numbers. Notes are held back until all ranks have written their numbers, so
that ddpmon does not have to guess the number of a step.

With several machines, ddpmon attaches to each machine at another time, perhaps minutes after the first. Then all ranks
count as rank 0 does. Rank 0 publishes its place in the store of the process group: the number of collectives at the end
of its latest step, and the number of that step. The other ranks begin to count at a place of rank 0.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

from ddpmon.probe.identity import Identity
from ddpmon.probe.run_settings import private_folder

START_FOLDER = "starts"
PLACE = "ddpmon/step"
"""Key of rank 0's latest place in the store; the number of the restart is appended."""
PLACE_INTERVAL_S = 0.25
"""Interval in seconds at which rank 0's place is written and read."""
START_NOTE_AFTER_S = 10.0
"""Seconds without a place of rank 0 after which a rank adds a note that it waits for rank 0."""
MAX_WAITING_NOTES = 50_000
"""Largest number of notes that may wait for other ranks. The limit bounds the memory, and is enough for thousands of
steps. Ranks that are thousands of steps apart do not synchronise in every step.
"""
NOT_IN_STEP = "the ranks do not synchronise in every step, so each rank counts steps from its own first step"
NOT_TOLD = "ddpmon shows the steps of this machine as soon as ddpmon is attached to rank 0, too"


class CommonStart:
    """The agreement among the ranks on the first step that counts."""

    def __init__(self, ranks: int, *, machines: bool = False) -> None:
        """Begin the agreement.

        Args:
            ranks: Number of ranks on this machine.
            machines: True if ranks on other machines belong to the same run.

        """
        self.first: int | None = None
        """Number of collectives at this rank's first synchronisation. The training thread sets it."""
        self.begun_at: int | None = None
        """Number of this rank's synchronisations when its steps began to count. The background thread sets it."""
        self.steps = self.parts = 0
        """Numbers of steps and of parts that rank 0 had counted at the place from which this rank counts its steps."""
        self.machines = machines
        self.place: tuple[int, int, int] | None = None
        """Rank 0's latest place: its numbers of collectives, parts and steps. Rank 0 sets it; other ranks read it."""
        self._ranks = ranks
        self._began_at = time.monotonic()

    def agreed_start(self, identity: Identity, waiting: int) -> int | None:
        """Return the number of collectives from which steps count; None until every rank has synchronised.

        waiting: number of notes that wait until steps count.
        """
        first = self.first
        if first is None:
            return None
        if self.machines and identity.facts.rank != 0:
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
        """Return rank 0's latest place as the start, if this rank has all notes since that place."""
        place = self.place
        if place is not None and place[0] >= first:
            begins_at, self.parts, self.steps = place
            identity.set_facts(steps_before=self.steps)
            return begins_at
        if time.monotonic() - self._began_at > START_NOTE_AFTER_S:
            identity.add_note(NOT_TOLD)
        if waiting > MAX_WAITING_NOTES:
            identity.add_note(NOT_IN_STEP)
            return first
        return None

    def exchange_places(self, store: Any, identity: Identity, wait: Callable[[float], bool]) -> None:
        """Write rank 0's place into a store, or read it from there until steps count; end when `wait` returns True."""
        key, written = f"{PLACE}/{identity.facts.restart}", None
        while not wait(PLACE_INTERVAL_S):
            if identity.facts.rank == 0 and self.place != written:
                written = self.place
                store.set(key, " ".join(map(str, written or ())))
            elif identity.facts.rank != 0 and self.begun_at is not None:
                return
            elif identity.facts.rank != 0 and store.check([key]):
                issued, parts, steps = map(int, store.get(key).split())
                self.place = issued, parts, steps

    def _places(self, identity: Identity, first: int) -> list[int] | None:
        """Write this rank's place for the others, and return all places; None if the run has no folder here."""
        # Ranks that the launcher restarted are new processes, which need a new agreement and a new folder.
        folder = private_folder(f"{START_FOLDER}-{identity.facts.restart}")
        if folder is None:
            return None
        mine = os.path.join(folder, str(identity.facts.rank))
        try:
            if not os.path.exists(mine):
                with open(f"{mine}.new", "w", encoding="ascii") as file:
                    file.write(str(first))
                os.replace(f"{mine}.new", mine)
            names = [name for name in os.listdir(folder) if name.isdecimal()]
        except OSError:  # The disk may be full.
            return None
        places = []
        for name in names:
            with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, name), encoding="ascii") as file:
                places.append(int(file.read(20)))
        return places
