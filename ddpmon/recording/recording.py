"""Reads the rows of telemetry.db back as records. A reader never writes to the file, even while the run is live.

Ranks write messages to files beside the recording if no hub receives them. These messages are added in memory. If the
recording is damaged, its intact rows are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self, TypeVar

import msgspec

from ddpmon import runs
from ddpmon.analysis.episodes import EpisodeRecord
from ddpmon.analysis.ledger import Judged
from ddpmon.analysis.processes.starts import Unarmed
from ddpmon.errors import NothingRecordedError, RecordingError
from ddpmon.messages import (
    MAX_US,
    Digest,
    Event,
    Failure,
    Micros,
    Moment,
    Refusal,
    Sample,
    Scalar,
)
from ddpmon.recording import checked, schema
from ddpmon.recording.checked import UNREADABLE
from ddpmon.recording.database import Database
from ddpmon.recording.recorder import Checkpoint
from ddpmon.recording.steps import RecordedSteps
from ddpmon.recording.unsent_files import UnreadTails
from ddpmon.runs import Run
from ddpmon.store.clock import Clock
from ddpmon.store.peers import Refusals
from ddpmon.store.processes import MAX_SAMPLES, RankProcess
from ddpmon.store.registry import Registry
from ddpmon.store.silences import Silences

DEFAULT_DIGESTS = 100
"""Default for the largest number of a rank's digests that are read. If there are more, the latest are read."""

FINDINGS = 20_000
"""Largest number of episodes of findings that are read. If there are more, the latest are read."""

_T = TypeVar("_T")


class Recording:
    """One telemetry.db, open for reading."""

    def __init__(self, run: Run, *, tails: bool = True) -> None:
        """Open a run's recording, or raise a RecordingError that says what is wrong with it.

        Args:
            run: The run.
            tails: True to add the messages in the files that ranks wrote beside the recording.

        """
        self.run = run
        self.path = recording_path(run.id)
        self._tails = UnreadTails(runs.run_dir(run.id)) if tails else None
        try:
            self.database = Database(self.path, run.name)
        except NothingRecordedError:
            if not (self._tails and self._tails.clock):
                raise
            self.database = Database.empty_recording(self.path, run.id, self._tails.clock)
        self.steps = RecordedSteps(self.database)
        try:
            self.clock = self._clock()
            self._take_tails()
        except BaseException:
            self.close()
            raise

    def _clock(self) -> Clock:
        meta = dict(self.database.read_table("meta", ("key", "value"), ""))
        version = meta.get("schema")
        if isinstance(version, int) and version != schema.VERSION:
            which = "a newer" if version > schema.VERSION else "an earlier"
            raise RecordingError(
                f"{self.path} comes from {which} ddpmon (schema {version}), and this version reads only "
                f"schema {schema.VERSION}"
            )
        try:
            return Clock(*msgspec.convert((meta["monotonic_us"], meta["unix"]), tuple[Micros, Moment]))
        except UNREADABLE:
            self.database.damaged = True
            first = self.database.read_table("samples", ("time_us",), "ORDER BY time_us LIMIT 1")
            return Clock(first[0][0] if first and isinstance(first[0][0], int) else 0, self.run.created_at)

    def _take_tails(self) -> None:
        """Add the messages in the files that ranks wrote beside the recording to a copy of the recording in memory."""
        if self._tails and self._tails.frames:
            self.database.writable_copy()
            registry = self.registry()  # Read first: if this detects damage, a salvaged copy replaces the database.
            self._tails.write_messages(self.run, self.database.writable_copy(), self.clock, registry)
            self.database.on_salvage = self._take_tails

    @property
    def is_damaged(self) -> bool:
        """Return whether some of the recording could not be read."""
        return self.database.damaged

    @property
    def notes(self) -> list[str]:
        """Return one sentence for each part of the recording, and each file beside the recording, that could not be
        read.
        """
        damaged = [f"{self.path} is damaged; ddpmon shows only its readable part"] if self.is_damaged else []
        return [*(self._tails.notes if self._tails else ()), *damaged]

    def close(self) -> None:
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def registry(self) -> Registry:
        """Return the ranks of the latest attempt, as they were last recorded."""
        registry = Registry(self.run.id, self.run.world_size, self.run.host)
        registry.add_recorded(self.processes())
        registry.refusals = Refusals(self.refused())
        return registry

    def processes(self) -> list[RankProcess]:
        """Return every process that introduced itself as a rank, as it was last recorded."""
        rows = self.database.read_table(
            "processes", checked.PROCESSES, "ORDER BY id DESC LIMIT ?", checked.PROCESSES_MOST
        )
        by_identity: dict[tuple[object, ...], RankProcess] = {}
        for process, whole in self._readable(rows, lambda row: checked.checked_process(row, self.run)):
            identity = process.attempt, process.rank, process.hello.host, process.hello.pid, process.process
            self.database.damaged |= not whole or identity in by_identity
            by_identity.setdefault(identity, process)
        for process in by_identity.values():
            self._count(process)
            self._add_samples(process)
        return list(by_identity.values())[::-1]

    def _add_samples(self, process: RankProcess) -> None:
        clauses = "WHERE process = ? ORDER BY time_us DESC LIMIT ?"
        latest = self.database.read_table("samples", schema.SAMPLE_FIELDS, clauses, process.id, MAX_SAMPLES)
        process.samples.extend(self._readable(reversed(latest), checked.checked_sample))
        layouts = self.database.read_table("layouts", ("layout",), "WHERE process = ?", process.id)
        process.layouts = {layout.number: layout for layout in self._decoded(layouts, checked.LAYOUTS.decode)}

    def _count(self, process: RankProcess) -> None:
        """Check the recorded step counters of a process. If they are impossible, count the process's rows instead."""
        self.steps.limits.pop(process.id, None)
        table, records = self.steps.read_steps(process.id, 1, most=checked.TYPICAL_STEPS)
        seconds = max(0.0, (self.run.ended_at or time.time()) - self.run.created_at)
        lengths_us = [*table["length_us"].tolist(), *(step.length_us for step in records)]
        limit = checked.last_possible(process, seconds, lengths_us)
        last, records_counted = self.steps.last_step(process.id), process.records
        self.steps.limits[process.id] = limit
        most = max(process.last_step, process.steps, records_counted)
        if most > limit:
            process.last_step = process.steps = self.steps.last_step(process.id)
        if "step_blocks" not in self.database.tables:
            process.records = 0
        elif self.database.salvaged or max(last, most) > limit:
            process.records = self.steps.count_steps(process.id)
            self.database.damaged |= process.records != records_counted

    def samples(self, process: int, after_us: int, until_us: int) -> list[Sample]:
        """Return a process's samples after one moment and up to another."""
        clauses = "WHERE process = ? AND time_us > ? AND time_us <= ?"
        after_us, until_us = max(-1, after_us), min(until_us, MAX_US)
        return self._readable(
            self.database.read_table("samples", schema.SAMPLE_FIELDS, clauses, process, after_us, until_us),
            checked.checked_sample,
        )

    def scalars(self, process: int, after: int) -> list[Scalar]:
        """Return the values that a process's script logged after a step."""
        clauses = "WHERE process = ? AND step > ? AND value IS NOT NULL"
        return self._readable(
            self.database.read_table("scalars", ("step", "name", "value"), clauses, process, after),
            checked.checked_scalar,
        )

    def digests(self, process: int, most: int = DEFAULT_DIGESTS) -> list[Digest]:
        """Return a process's latest digests, at most `most` of them."""
        clauses = "WHERE process = ? ORDER BY rowid DESC LIMIT ?"
        rows = self.database.read_table("digests", Digest.__struct_fields__, clauses, process, most)
        return self._readable(reversed(rows), lambda row: msgspec.convert(row, Digest))

    def checkpoint(self) -> Checkpoint | None:
        """Return the latest checkpoint of a hub, or None if there is no readable checkpoint."""
        return self._stored_value("history", checked.checkpoint)

    def unarmed(self) -> list[Unarmed]:
        """Return the processes that ran torch without the probe."""
        return self._stored_value("unarmed", checked.UNARMED.decode) or []

    def findings(self) -> list[EpisodeRecord]:
        """Return the episodes of findings in the order of their records, at most the latest FINDINGS of them."""
        clauses = "ORDER BY record DESC, episode DESC LIMIT ?"
        rows = self.database.read_table("findings", ("episode_facts",), clauses, FINDINGS)
        return self._decoded(reversed(rows), checked.FINDINGS.decode)

    def judged_step(self) -> Judged | None:
        """Return the step up to which the hub judged the run, or None if no hub recorded such a step."""
        return self._stored_value("judged", checked.JUDGED.decode)

    def refused(self) -> list[Refusal]:
        """Return the counts of values that the hub refused as impossible."""
        return self._stored_value("refused", checked.REFUSALS.decode) or []

    def _stored_value(self, name: str, make: Callable[[Any], _T]) -> _T | None:
        """Return the value that a hub last recorded under a name, or None if there is no readable value."""
        rows = self.database.read_table("checkpoints", ("value",), "WHERE name = ?", name)
        return next(iter(self._decoded(rows, make)), None)

    def failures(self) -> list[Failure]:
        """Return the uncaught exceptions of ranks."""
        return self._decoded(self.database.read_table("failures", ("failure",), ""), checked.FAILURES.decode)

    def silences(self) -> Silences:
        """Return the record of the steps in which ranks were silent."""
        columns = ("attempt", "first_step", "last_step", "ranks")
        return Silences(self._readable(self.database.read_table("silences", columns, ""), checked.checked_silence))

    def events(self, most: int) -> list[Event]:
        """Return the latest events of the run, at most `most` of them."""
        rows = self.database.read_table("events", ("at", "severity", "text"), "ORDER BY rowid DESC LIMIT ?", most)
        return self._readable(reversed(rows), checked.checked_event)

    def _decoded(self, rows: Iterable[Any], decode: Callable[[bytes], _T]) -> list[_T]:
        """Return the records in rows of one encoded value."""
        return self._readable(rows, lambda row: decode(*row))

    def _readable(self, rows: Iterable[Any], make: Callable[[Any], _T]) -> list[_T]:
        made, bad = checked.parse_rows(rows, make)
        self.database.damaged |= bad > 0
        return made


def recording_path(run_id: str) -> Path:
    """Return the path of a run's recording."""
    return runs.run_dir(run_id) / "telemetry.db"
