"""The only writer of telemetry.db. Committed records survive a crash of the hub."""

from __future__ import annotations

import contextlib
import sqlite3
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import msgspec

from ddpmon import runs
from ddpmon.analysis.evidence import BadLoss
from ddpmon.analysis.ledger import Judged, Ledger
from ddpmon.analysis.processes.starts import Unarmed, worth_telling
from ddpmon.analysis.steps.pauses import Times
from ddpmon.analysis.steps.step_sums import StepSums
from ddpmon.analysis.steps.table import Table
from ddpmon.messages import Batch, Event, Failure, Refusal, SmallCount, Step, StepCount
from ddpmon.recording import schema
from ddpmon.recording.tables import TABLES
from ddpmon.recording.thinning import KEPT_RECORDS, WHOLE_BYTES, Thinning
from ddpmon.recording.write_queue import MAX_HELD_ROWS, WriteQueue
from ddpmon.recording.written_file import WrittenFile
from ddpmon.store.clock import Clock
from ddpmon.store.histories import SavedHistories
from ddpmon.store.processes import RankProcess
from ddpmon.store.silences import Silence

REMOTE_WRITE_INTERVAL_S = 1.0
"""Interval in seconds between two transactions on a remote file system, where each transaction needs messages to a
server."""
RETRY_INTERVAL_S = 2.0
"""Interval in seconds between two attempts to write while the disk fails. Each attempt writes records until the disk is
full."""


class Checkpoint(msgspec.Struct):
    """Histories and sums over all steps so far, so that a reader need not process every step since the start."""

    attempt: SmallCount
    step: StepCount
    since_start: StepSums | None
    histories: SavedHistories
    times: Times | None
    bad_losses: list[BadLoss] = []
    """First loss of each rank that was not finite. These losses are stored because a reader may begin at a later
    step."""


@dataclass
class _Waiting:
    """Records other than batches that wait to be written."""

    processes: dict[int, RankProcess] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    silences: list[Silence] = field(default_factory=list)
    checkpoints: dict[str, bytes] = field(default_factory=dict)
    """Values that replace those recorded under the same name."""
    findings: dict[int, list[schema.Row]] = field(default_factory=dict)
    """New rows of the table `findings` by record number; each replaces the recorded row of that number."""

    def __bool__(self) -> bool:
        return any(vars(self).values())


class Recorder:
    """Queues records and writes them in transactions. If the disk fails, the records stay in the queue for the next
    attempt.

    Args:
        path: File of the recording.
        run_id: The run.
        clock: Clock of the recording.
        db: An open recording to write to, instead of the file at `path`.
        whole_bytes: Size of the file in bytes up to which no rows are merged, see `thinning`.
        kept_records: Number of the latest step records that are never merged.

    """

    def __init__(
        self,
        path: Path,
        run_id: str,
        clock: Clock,
        db: sqlite3.Connection | None = None,
        whole_bytes: int = WHOLE_BYTES,
        kept_records: int = KEPT_RECORDS,
    ) -> None:
        """Create a recorder; the file is opened at the first write."""
        self._path = path
        self._whole_bytes = whole_bytes
        self._kept_records = kept_records
        self._file = WrittenFile(path, schema.meta_rows(run_id, clock))
        self._db = db
        self._queue = WriteQueue()
        self._is_urgent = False
        """True if everything must be written with the next transaction."""
        self._written_at = self._not_before = float("-inf")
        self._waiting = _Waiting()
        self._unarmed: set[tuple[int, int | None, str]] = set()
        self._refused: list[Refusal] = []
        self._judged: Judged | None = None
        self.trouble: str | None = None
        """Error of the disk, or None while writing works."""
        self.was_deleted = False
        """True if the recording was deleted and has been written again. The code that reports this to the user sets it
        to False again."""
        self.unrecorded = 0
        """Number of step records that had to be discarded because the disk failed for too long."""
        self._thinning: Thinning | None = None
        self.too_large = False
        """True if rows wait to be merged by `merge_oldest`."""

    @cached_property
    def _is_remote(self) -> bool:
        return not runs.is_local(self._path.parent)

    def _open(self) -> sqlite3.Connection:
        """Open the recording for writing. If it was deleted, write its whole content again first."""
        if self._db is not None:
            self._file.put_back(self._db)
            self._db, self.was_deleted = None, True
        db = self._file.open(far=self._is_remote)
        self._thinning = Thinning(db, self._whole_bytes, self._kept_records)
        return db

    def reserve_space(self) -> None:
        """Reserve disk space while there is some, to record later how many records a full disk did not take."""
        self._file.reserve_space()

    def record_process(self, process: RankProcess) -> None:
        """Record a process that has changed."""
        self._waiting.processes[process.id] = process

    def record_batch(self, process: RankProcess, batch: Batch, fresh: Sequence[Step]) -> None:
        """Record a batch with its new steps, `fresh`. The batch's other steps are already recorded."""
        self._queue.add(process, batch, fresh)

    def record_rows(self, processes: Sequence[RankProcess], counts: Sequence[int], table: Table) -> None:
        """Record rows of steps, whose batches are recorded separately; `counts` is the number of rows of each
        process.
        """
        self._queue.add_rows(processes, counts, table)

    def record_event(self, events: Iterable[Event]) -> None:
        self._waiting.events.extend(events)

    def record_failure(self, failure: Failure) -> None:
        self._waiting.failures.append(failure)

    def record_silences(self, silences: Iterable[Silence]) -> None:
        self._waiting.silences.extend(silences)

    def checkpoint(self, saved: Checkpoint) -> None:
        """Record the histories and the sums since the start, in place of the checkpoint before."""
        self._waiting.checkpoints["history"] = msgspec.msgpack.encode(saved)

    def record_unarmed(self, processes: list[Unarmed]) -> None:
        """Record those processes without ddpmon's probe that ran torch and that the run's verdict may name."""
        reported = worth_telling(processes, over=True)
        if (
            reported
            and (identities := {(process.pid, process.rank, process.why) for process in reported}) != self._unarmed
        ):
            self._unarmed = identities
            self._waiting.checkpoints["unarmed"] = msgspec.msgpack.encode(reported)

    def record_refusals(self, rows: list[Refusal]) -> None:
        """Record the counts of values that were refused as impossible."""
        if rows != self._refused:
            self._refused = rows
            self._waiting.checkpoints["refused"] = msgspec.msgpack.encode(rows)

    def record_findings(self, ledger: Ledger) -> None:
        """Record the findings that have changed, and the step up to which the run was judged."""
        for record, episodes in ledger.take_changed():
            self._waiting.findings[record] = [schema.finding_row(episode) for episode in episodes]
        if ledger.judged != self._judged:
            self._judged = ledger.judged
            self._waiting.checkpoints["judged"] = msgspec.msgpack.encode(ledger.judged)

    def last_recorded_batch(self, process: RankProcess) -> int:
        """Return the number of the last batch of a process up to which all of its batches are written or discarded."""
        return self._queue.last_recorded_batch(process)

    def write_soon(self) -> None:
        """Make the next call of `write` write all queued records."""
        self._is_urgent = True

    @property
    def has_backlog(self) -> bool:
        """Return whether batches wait to be written."""
        return bool(self._queue)

    @property
    def backlog_is_large(self) -> bool:
        """Return whether the queue is so long that it must be written at once, unless the disk fails."""
        return self._queue.is_large and self.trouble is None

    @property
    def _is_due(self) -> bool:
        if not (self._queue or self._waiting):
            return False
        if self._is_urgent or self._queue.is_large:
            return True
        now = time.monotonic()
        if now < self._not_before:
            return False
        return bool(self._waiting) or now - self._written_at >= self._queue.gather_s

    def write(self) -> list[tuple[RankProcess, int]]:
        """Write all queued records if a transaction is due, and return the processes whose batches are now recorded.

        Each process comes with the number of its last recorded batch. Everything is written at once, so that the
        recorded counters of a process fit its recorded steps.
        """
        if not self._is_due:
            return []
        self._queue.pack_steps()
        try:
            if self._db is None or self._file.is_gone:
                self._db = self._open()
            self._db.execute("BEGIN")
            self._write(self._db)
            too_large = self._thinning is not None and self._thinning.is_due
            self._db.execute("COMMIT")
        except (sqlite3.Error, OverflowError) as error:
            self.trouble, self._is_urgent = str(error), False
            if self._db is not None and self._db.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
            of_the_disk = isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError
            self.unrecorded += self._queue.drop_oldest(MAX_HELD_ROWS if of_the_disk else 0)
            self._not_before = time.monotonic() + RETRY_INTERVAL_S
            return []
        recorded = [(process, process.seq) for process in self._queue.processes.values()]
        self.trouble, self.too_large, self._is_urgent = None, too_large, False
        self._waiting = _Waiting()
        self._queue.clear()
        self._written_at = time.monotonic()
        self._not_before = self._written_at + (REMOTE_WRITE_INTERVAL_S if self._is_remote else 0.0)
        return recorded

    def _write(self, db: sqlite3.Connection) -> None:
        execute, waiting = db.executemany, self._waiting
        execute(_PUT_PROCESS, map(_process_row, (waiting.processes | self._queue.processes).values()))
        self._queue.write(db)
        execute(schema.insert_sql("events"), [(e.at, e.severity, e.text) for e in waiting.events])
        execute(
            schema.insert_sql("failures", "OR IGNORE"),
            [(f.rank, f.pid, msgspec.msgpack.encode(f)) for f in waiting.failures],
        )
        execute(
            schema.insert_sql("silences", "OR REPLACE"),
            [(s.attempt, s.first_step, s.last_step, msgspec.msgpack.encode(s.ranks)) for s in waiting.silences],
        )
        execute("DELETE FROM findings WHERE record = ?", [(record,) for record in waiting.findings])
        execute(schema.insert_sql("findings"), [row for rows in waiting.findings.values() for row in rows])
        execute(schema.insert_sql("checkpoints", "OR REPLACE"), waiting.checkpoints.items())

    def merge_oldest(self) -> None:
        """Merge some of the oldest rows."""
        if self._db is None or self._thinning is None:
            return
        try:
            self._db.execute("BEGIN")
            more = self._thinning.merge_oldest()
            self._db.execute("COMMIT")
            self.too_large = more and self._thinning.is_due
        except (sqlite3.Error, zlib.error, msgspec.MsgspecError, TypeError, ValueError, ArithmeticError) as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self.too_large = False
            if not isinstance(error, sqlite3.OperationalError):  # Neither a full disk nor a lock: it would fail again.
                self._thinning = None
                print(f"the recording keeps growing, because ddpmon cannot merge its oldest steps: {error}", flush=True)

    def close(self) -> None:
        """Write the remaining records. If no other process reads the file, merge the write-ahead log into it."""
        self.write_soon()
        self.write()
        if self.trouble:
            self.unrecorded += self._queue.drop_oldest(0)
            self._waiting.checkpoints.clear()
            self._file.free_spare()
            self.write_soon()
            self.write()
        self._file.free_spare()
        if self._db is None:
            return
        if self._file.is_gone:
            with contextlib.suppress(sqlite3.Error):
                self._db = self._open()
        try:
            self._db.execute("PRAGMA journal_mode=DELETE")
        except sqlite3.Error:
            pass  # Another process is reading, so the log stays beside the file, which every reader understands.
        self._db.close()
        self._db = None


_PUT_PROCESS = schema.insert_sql("processes", "OR REPLACE")


def _process_row(process: RankProcess) -> schema.Row:
    encode, hello, stack = msgspec.msgpack.encode, process.hello, process.last_stand
    values = vars(process) | {
        "rank": hello.rank,
        "pid": hello.pid,
        "start_ticks": process.process.start_ticks if process.process else None,
        "host": hello.host,
        "hello": encode(hello),
        "stack": encode(stack) if stack else None,
        "end": encode(process.end) if process.end else None,
    }
    return tuple(values[column.name] for column in TABLES["processes"])
