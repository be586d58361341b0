"""Reads all recorded steps of a run for exports, aligned over ranks, in pieces that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from ddpmon.analysis.steps.clocks import Clocks
from ddpmon.analysis.steps.table import Rows
from ddpmon.analysis.steps.waits import split_waits
from ddpmon.analysis.steps.world import World
from ddpmon.errors import RecordingError
from ddpmon.messages import Step
from ddpmon.recording.checked import UNREADABLE
from ddpmon.recording.recording import Recording
from ddpmon.store.processes import RankProcess

RECORDS = 20_000
"""Approximate number of records to read at once."""


@dataclass(frozen=True)
class Piece:
    """Consecutive steps of the same ranks: `records[i][j]` is the record of `world.ranks[j]` in the i-th step."""

    attempt: int
    """Number of the attempt, counted from 0; a restart of the ranks begins the next one."""
    records: list[list[Step]]
    world: World
    complete: bool
    """True if there are records of every rank; otherwise, wait and transfer in `world` are meaningless."""
    unmeasured: frozenset[str] = frozenset()
    """Phases of PHASES that are not measured in this kind of training."""

    def critical_rank(self, place: int) -> int | None:
        """Return the rank that the others waited for in the step at index `place`; None if there was no such rank or it
        is unknown.
        """
        column = int(self.world.critical[place])
        measured = self.complete and "wait" not in self.unmeasured
        return self.world.ranks[column] if measured and column >= 0 else None


def pieces(recording: Recording, last: int | None = None) -> Iterator[Piece]:
    """Yield all steps, including each process's first one. Raise RecordingError if they cannot be read.

    Args:
        recording: The recording.
        last: Yield at most this many steps, of the latest attempt only.

    """
    attempts: dict[int, dict[int, RankProcess]] = {}
    for process in recording.processes():
        if process.last_step and process.attempt >= 0:  # Other processes reported a rank but never trained.
            attempts.setdefault(process.attempt, {})[process.rank] = process
    for attempt in sorted(attempts) if last is None else sorted(attempts)[-1:]:
        by_rank = attempts[attempt]
        ids, clocks = [process.id for process in by_rank.values()], Clocks()
        begin = 1 if last is None else max(map(recording.steps.last_step, ids)) + 1 - last
        for first, end in recording.steps.stretches(ids, begin, max(1, RECORDS // len(by_rank))):
            yield from _side_by_side(recording, attempt, by_rank, clocks, first, end)


def _side_by_side(
    recording: Recording, attempt: int, by_rank: dict[int, RankProcess], clocks: Clocks, begin: int, end: int
) -> Iterator[Piece]:
    own_clocks = {rank for rank, process in by_rank.items() if process.hello.device_clock}
    unmeasured = frozenset(name for process in by_rank.values() for name in process.hello.unmeasured)
    hosts = {rank: process.hello.host for rank, process in by_rank.items()}
    whole = len(by_rank) >= max(process.hello.world_size for process in by_rank.values())
    records_of: dict[int, dict[int, Step]] = {}
    try:
        for rank in sorted(by_rank):
            for step in recording.steps.whole_steps(by_rank[rank].id, begin, end):
                records_of.setdefault(step.step, {})[rank] = step
        for ranks, numbers in groupby(sorted(records_of), key=lambda number: tuple(records_of[number])):
            records = [[records_of[number][rank] for rank in ranks] for number in numbers]
            rows = Rows(ranks, records)
            world = split_waits(rows, clocks.offsets_us(rows, hosts), own_clocks, whole=whole)
            yield Piece(attempt, records, world, whole and len(ranks) == len(by_rank), unmeasured)
    except UNREADABLE as error:
        raise RecordingError(f"{recording.path} cannot be read: {error}") from None
