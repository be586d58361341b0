"""Writes telemetry.db: the one writer. What it has committed survives the hub."""

from __future__ import annotations

import contextlib
import sqlite3
import zlib
from collections import Counter, deque
from collections.abc import Iterable
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import msgspec

from ddpmon import runs
from ddpmon.analysis.evidence import BadLoss
from ddpmon.analysis.ledger import Judged, Ledger
from ddpmon.analysis.processes.unarmed import Unarmed, worth_telling
from ddpmon.analysis.steps.pauses import Times
from ddpmon.analysis.steps.step_sums import StepSums
from ddpmon.messages import Batch, Event, Failure, Refusal, Step
from ddpmon.recording import schema
from ddpmon.recording.column_queue import ColumnQueue
from ddpmon.recording.thinning import KEPT_RECORDS, WHOLE_BYTES, Thinning
from ddpmon.recording.written_file import WrittenFile
from ddpmon.store.clock import Clock
from ddpmon.store.histories import SavedHistories
from ddpmon.store.processes import RankProcess
from ddpmon.store.silences import Silence

ROWS_PER_WRITE = 5000
"""A transaction holds at most about so many rows: some 20 ms."""
HELD_ROWS = 100_000
"""Rows that are kept while the disk refuses them, at most: some 64 MB. Then the oldest go, counted."""
FAR_COMMIT_S = 1.0
"""Between two transactions on a file system that is not this machine's, where each is a conversation with a server."""


class Checkpoint(msgspec.Struct):
    """The histories so far, so that a reader need not go through every step since the start."""

    attempt: int
    step: int
    since_start: StepSums | None
    histories: SavedHistories
    times: Times | None
    bad_losses: list[BadLoss] = []
    """The first loss of each rank that was not finite: the steps that a reader goes through may begin after it."""


class _Entry(NamedTuple):
    """A batch that waits to be written."""

    process: RankProcess
    batch: Batch
    steps: list[Step]
    last_step: int
    """The last step of its process, once it is written."""

    @property
    def rows(self) -> int:
        batch = self.batch
        return 1 + len(self.steps) + len(batch.samples) + len(batch.scalars) + len(batch.digests) + len(batch.layouts)


class Recorder:
    """Queues what happened and writes it in transactions. A disk that refuses is tried again: what waits is kept."""

    def __init__(
        self,
        path: Path,
        run_id: str,
        clock: Clock,
        db: sqlite3.Connection | None = None,
        whole_bytes: int = WHOLE_BYTES,
        kept_records: int = KEPT_RECORDS,
    ) -> None:
        """Opens nothing yet. db: an open recording to write to, in place of the file at `path`.

        whole_bytes, kept_records: see `thinning`.
        """
        self._path = path
        self._whole_bytes = whole_bytes
        self._kept_records = kept_records
        meta = {
            "schema": schema.VERSION,
            "run_id": run_id,
            "monotonic_us": clock.monotonic_us,
            "unix": clock.unix,
        }
        self._file = WrittenFile(path, meta)
        self._db = db
        self._queue: deque[_Entry] = deque()
        self._queued_rows = 0
        self.columns = ColumnQueue()
        """What came in blocks, beside the queue."""
        self._processes: dict[int, RankProcess] = {}
        self._events: list[Event] = []
        self._failures: list[Failure] = []
        self._silences: list[Silence] = []
        self._checkpoints: dict[str, bytes] = {}
        """By name, what replaces what was recorded under it."""
        self._unarmed: set[tuple[int, int | None, str]] = set()
        self._refused: list[Refusal] = []
        self._findings: dict[int, list[schema.Row]] = {}
        """By record, the rows that replace what was recorded of it."""
        self._judged: Judged | None = None
        self.trouble: str | None = None
        """Why the disk refuses, while it does."""
        self.was_deleted = False
        """Somebody deleted the recording, and it is there again; who says so sets it back."""
        self.unrecorded = 0
        """Step records that had to be thrown away because the disk refused them for too long."""
        self._thinning: Thinning | None = None
        self.too_large = False
        """Whether there is something to `thin`."""

    @cached_property
    def every_s(self) -> float:
        """How long to gather before a transaction."""
        return 0.0 if runs.is_local(self._path.parent) else FAR_COMMIT_S

    def _open(self) -> sqlite3.Connection:
        """The recording, open for writing; where somebody deleted it, with all that was in it."""
        if self._db is not None:
            self._file.put_back(self._db)
            self._db, self.was_deleted = None, True
        db = self._file.open(far=self.every_s > 0)
        self._thinning = Thinning(db, self._whole_bytes, self._kept_records)
        return db

    def reserve(self) -> None:
        """Hold room on the disk before it is full: for the counts of what could not be written."""
        self._file.reserve()

    def process(self, process: RankProcess) -> None:
        """Something about a process changed."""
        self._processes[process.id] = process

    def batch(self, process: RankProcess, batch: Batch, fresh: list[Step]) -> None:
        """Take a batch; of its steps only the `fresh` ones."""
        entry = _Entry(process, batch, fresh, process.last_step)
        self._queue.append(entry)
        self._queued_rows += entry.rows

    def event(self, events: Iterable[Event]) -> None:
        self._events.extend(events)

    def failure(self, failure: Failure) -> None:
        self._failures.append(failure)

    def silences(self, silences: Iterable[Silence]) -> None:
        self._silences.extend(silences)

    def checkpoint(self, saved: Checkpoint) -> None:
        """Keep the histories up to a step, and the sums since the start."""
        self._checkpoints["history"] = msgspec.msgpack.encode(saved)

    def unarmed(self, processes: list[Unarmed]) -> None:
        """Keep which processes ran torch without the probe, as far as the verdict of the run may name them."""
        reported = worth_telling(processes, over=True)
        if (
            reported
            and (identities := {(process.pid, process.rank, process.why) for process in reported}) != self._unarmed
        ):
            self._unarmed = identities
            self._checkpoints["unarmed"] = msgspec.msgpack.encode(reported)

    def refused(self, rows: list[Refusal]) -> None:
        """Keep the counts of values that were refused as impossible."""
        if rows != self._refused:
            self._refused = rows
            self._checkpoints["refused"] = msgspec.msgpack.encode(rows)

    def findings(self, ledger: Ledger) -> None:
        """Keep the records of findings that have changed, and how far they go."""
        for record, episodes in ledger.take_changed():
            self._findings[record] = [schema.finding_row(episode) for episode in episodes]
        if ledger.judged != self._judged:
            self._judged = ledger.judged
            self._checkpoints["judged"] = msgspec.msgpack.encode(ledger.judged)

    def recorded(self, process: RankProcess) -> int:
        """The number of the batch up to which all of a process's are written or given up."""
        waiting = self.columns.recorded(process)
        seq = process.seq if waiting is None else waiting
        return min(seq, next((e.batch.first_seq - 1 for e in self._queue if e.process is process), seq))

    def hurry(self) -> None:
        """Have all that came in blocks written with the next transaction."""
        self.columns.hurry()

    @property
    def _waiting(self) -> bool:
        """Whether anything but batches waits to be written."""
        return any((self._processes, self._events, self._failures, self._silences, self._checkpoints, self._findings))

    @property
    def backlog(self) -> bool:
        """Whether batches wait to be written."""
        return bool(self._queue or self.columns)

    @property
    def backlog_is_large(self) -> bool:
        """Whether a whole transaction's worth waits, and there is a disk to take it."""
        return self._queued_rows >= ROWS_PER_WRITE and self.trouble is None

    def write(self) -> list[tuple[RankProcess, int]]:
        """Write some of what waits; returns each process whose batches are recorded, and up to which number."""
        entries: list[_Entry] = []
        rows = 0
        while self._queue and rows < ROWS_PER_WRITE:
            entry = self._queue.popleft()
            entries.append(entry)
            rows += entry.rows
        self._queued_rows -= rows
        settled = {entry.process.id: entry for entry in entries}
        # Counters of a process are those of what is recorded: what of it came in blocks is written with them.
        columns = self.columns if self.columns.due or self._touches_columns(entries) else None
        if not (columns or entries or self._waiting):
            return []
        try:
            if self._db is None or self._file.is_gone:
                self._db = self._open()
            self._db.execute("BEGIN")
            self._write(self._db, entries, settled, columns)
            too_large = self._thinning is not None and self._thinning.due
            self._db.execute("COMMIT")
        except (sqlite3.Error, OverflowError) as error:
            self.trouble = str(error)
            if self._db is not None and self._db.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
            self._queue.extendleft(reversed(entries))
            self._queued_rows += rows
            of_the_disk = isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError
            self._drop(HELD_ROWS if of_the_disk else self._queued_rows - rows)
            self.unrecorded += self.columns.drop()
            return []
        self.trouble, self.too_large = None, too_large
        self._processes.clear()
        self._events.clear()
        self._failures.clear()
        self._silences.clear()
        self._checkpoints.clear()
        self._findings.clear()
        if columns:
            columns.clear()
        return [(entry.process, entry.batch.seq) for entry in settled.values()]

    def _touches_columns(self, entries: list[_Entry]) -> bool:
        """Whether something of a process is to be written of which more waits that came in blocks."""
        waiting = self.columns.processes
        return bool(waiting) and not waiting.keys().isdisjoint([*self._processes, *(e.process.id for e in entries)])

    def _drop(self, most: int) -> None:
        """Throw the oldest batches away until at most so many rows wait, and count their steps as lost."""
        while self._queue and self._queued_rows > most:
            entry = self._queue.popleft()
            self._queued_rows -= entry.rows
            self._processes[entry.process.id] = entry.process
            entry.process.records -= len(entry.steps)
            self.unrecorded += len(entry.steps)

    def _write(
        self, db: sqlite3.Connection, entries: list[_Entry], settled: dict[int, _Entry], columns: ColumnQueue | None
    ) -> None:
        waiting = {entry.process.id: entry for entry in reversed(self._queue)}
        queued_steps = Counter[int]()
        for entry in self._queue:
            queued_steps[entry.process.id] += len(entry.steps)
        changed = {p.id: p for p in (*self._processes.values(), *(e.process for e in entries))}
        written = columns.processes if columns else {}
        if columns:
            columns.write(db)
            changed |= {number: process for number, process in written.items() if number in waiting}
            db.executemany(_COUNT, [_counters(process) for number, process in written.items() if number not in changed])
        for process in changed.values():
            # What still waits in the queue is not recorded: the counters must be those of what is.
            if process.id in written and process.id not in waiting:
                seq, last_step = process.seq, process.last_step
            elif process.id in settled:
                seq, last_step = settled[process.id].batch.seq, settled[process.id].last_step
            elif process.id in waiting:
                first = waiting[process.id]
                seq, last_step = first.batch.first_seq - 1, first.steps[0].step - 1 if first.steps else first.last_step
            else:
                seq, last_step = process.seq, process.last_step
            db.execute(
                _PUT_PROCESS, _process_row(process, (seq, last_step, process.records - queued_steps[process.id]))
            )
        execute = db.executemany
        execute(_PUT_STEP, [schema.step_row(e.process.id, step) for e in entries for step in e.steps])
        schema.put_batches(db, [(entry.process.id, entry.batch) for entry in entries])
        execute(
            schema.insert("layouts", "OR IGNORE"),
            [(e.process.id, y.number, msgspec.msgpack.encode(y)) for e in entries for y in e.batch.layouts],
        )
        execute(schema.insert("events"), [(e.at, e.severity, e.text) for e in self._events])
        execute(
            schema.insert("failures", "OR IGNORE"),
            [(f.rank, f.pid, msgspec.msgpack.encode(f)) for f in self._failures],
        )
        execute(
            schema.insert("silences", "OR REPLACE"),
            [(s.attempt, s.first_step, s.last_step, msgspec.msgpack.encode(s.ranks)) for s in self._silences],
        )
        execute("DELETE FROM findings WHERE record = ?", [(record,) for record in self._findings])
        execute(schema.insert("findings"), [row for rows in self._findings.values() for row in rows])
        execute(schema.insert("checkpoints", "OR REPLACE"), self._checkpoints.items())

    def thin(self) -> None:
        """Merge a little of what is oldest."""
        if self._db is None or self._thinning is None:
            return
        try:
            self._db.execute("BEGIN")
            more = self._thinning.bite()
            self._db.execute("COMMIT")
            self.too_large = more and self._thinning.due
        except (sqlite3.Error, zlib.error, msgspec.MsgspecError, TypeError, ValueError, ArithmeticError) as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self.too_large = False
            if not isinstance(error, sqlite3.OperationalError):  # no full disk, no lock: it would be the same again
                self._thinning = None
                print(f"the recording grows on, its oldest steps cannot be merged: {error}", flush=True)

    def close(self) -> None:
        """Write the rest and leave one file that anyone can read."""
        self.hurry()
        while self._queue or self.columns or self._waiting:
            self.write()
            if self.trouble:
                self._drop(0)
                self.unrecorded += self.columns.drop(0)
                self.columns.clear()
                self._checkpoints.clear()
                self._file.free_spare()
                self.write()
                break
        self._file.free_spare()
        if self._db is None:
            return
        if self._file.is_gone:
            with contextlib.suppress(sqlite3.Error):
                self._db = self._open()
        try:
            self._db.execute("PRAGMA journal_mode=DELETE")
        except sqlite3.Error:
            pass  # someone reads it at this moment: the log stays beside it, which every reader understands
        self._db.close()
        self._db = None


_COUNTED = (
    *("stage", "seq", "steps", "last_step", "records", "dropped", "total_steps", "epoch", "epochs", "later_us"),
    *("unsynchronised", "unsynchronised_at"),
)
"""What of a process changes with every batch."""
_counters = attrgetter(*_COUNTED, "id")
_COUNT = f"UPDATE processes SET {', '.join(f'{name} = ?' for name in _COUNTED)} WHERE id = ?"  # noqa: S608  ours
_PUT_STEP = schema.insert("steps", "OR IGNORE")
_PUT_PROCESS = schema.insert("processes", "OR REPLACE")


def _process_row(process: RankProcess, counters: tuple[int, int, int]) -> schema.Row:
    seq, last_step, records = counters
    return (
        process.id,
        process.attempt,
        process.rank,
        process.hello.pid,
        process.process.start_ticks if process.process else None,
        process.hello.host,
        msgspec.msgpack.encode(process.hello),
        process.stage,
        seq,
        process.steps,
        last_step,
        records,
        process.dropped,
        process.total_steps,
        process.left,
        process.dead,
        process.unsynchronised,
        process.unsynchronised_at,
        msgspec.msgpack.encode(process.last_stand) if process.last_stand else None,
        process.epoch,
        process.epochs,
        process.later_us,
        msgspec.msgpack.encode(process.end) if process.end else None,
        process.ended_us,
    )
