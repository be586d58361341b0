"""Reads telemetry.db: rebuilds all that the hub knew, through the same analysis. Never writes, live runs included."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from ddpmon import runs
from ddpmon.analysis.pauses import Apart
from ddpmon.analysis.report import report
from ddpmon.analysis.since_start import SinceStart
from ddpmon.analysis.summary import summarise
from ddpmon.analysis.unarmed import Unarmed
from ddpmon.analysis.verdict import Waiting
from ddpmon.errors import RecordingError
from ddpmon.hub import schema
from ddpmon.hub.endings import read_ending
from ddpmon.hub.histories import Histories
from ddpmon.hub.processes import SAMPLES, RankProcess, Registry
from ddpmon.hub.recorder import Checkpoint
from ddpmon.hub.store import WINDOW_S, WINDOW_STEPS, Clock, Store
from ddpmon.hub.view import snapshot
from ddpmon.messages import MAX_US, Digest, Event, Failure, Hello, Layout, Sample, Scalar, Snapshot, Stack, Step
from ddpmon.runs import Process, Run

REPORT_RECORDS = 400_000
"""A report covers the last steps with at most so many records: about two seconds of reading."""
CHUNK_STEPS = 2000
DIGESTS = 100
"""Of a rank, the latest."""
EPOCH = "recording"


class Recording:
    """One telemetry.db, open for reading."""

    def __init__(self, run: Run) -> None:
        """Open a run's recording; RecordingError says what is wrong with it."""
        self.run = run
        self.path = recording_path(run.id)
        if not self.path.exists():
            raise RecordingError(f"no recording of {run.name} yet: {self.path} does not exist")
        try:
            self._db = sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True, timeout=2.0, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._unreadable(error) from None
        try:
            meta = dict(self._rows("SELECT key, value FROM meta"))
            version = int(meta["schema"])
            self.clock = Clock(int(meta["monotonic_us"]), float(meta["unix"]))
        except (KeyError, TypeError, ValueError) as error:
            self.close()
            raise RecordingError(f"{self.path} is damaged: its meta table lacks {error}") from None
        except RecordingError:
            self.close()
            raise
        if version > schema.VERSION:
            self.close()
            raise RecordingError(f"{self.path} is of a newer ddpmon (schema {version}); update to read it")

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def registry(self) -> Registry:
        """The processes as they were last known."""
        registry = Registry(self.run.id, self.run.world_size, self.run.host)
        registry.restore(self.processes())
        return registry

    def store(self, records: int | None = None) -> Store:
        """All that the hub knew at the end. records: look at the last steps with so many records, not at a window.

        RecordingError if what is in it cannot be.
        """
        try:
            return self._store(records)
        except (msgspec.MsgspecError, TypeError, ValueError, ArithmeticError) as error:
            raise self._unreadable(error) from None

    def _store(self, records: int | None) -> Store:
        registry = self.registry()
        ids = {process.id: process for process in registry.seats.values()}
        last = max((process.last_step for process in ids.values()), default=0)
        steps = WINDOW_STEPS if records is None else max(WINDOW_STEPS, records // max(1, len(ids)))
        window_s = WINDOW_S if records is None else None
        room = steps if records is None else max(1, min(steps, last))
        store = Store(self.run, registry, self.clock, room, window_s)
        saved = self._checkpoint()
        since = self._restore_histories(store, saved, last)
        if saved and saved.attempt == registry.attempt:
            store.history_step = since
            store.since_start = SinceStart(saved.since_start)
            store.apart = Apart(saved.times)
            first = min(since, last - steps) + 1
        else:
            first = 1
        for begin in range(max(1, first), last + 1, CHUNK_STEPS):
            for process in ids.values():
                told = self.steps(process.id, begin, begin + CHUNK_STEPS)
                store.add_steps(process, told)
                if told and any(sample.gpu_percent is not None for sample in process.samples):
                    span = told[0].end_us - told[0].length_us, told[-1].end_us
                    store.add_samples(process, self.samples(process.id, *span))
            store.digest()
        store.digest(final=self.run.ended)
        for process in ids.values():
            store.add_digests(process, self.digests(process.id))
        store.waiting = Waiting(
            registry.world_size,
            launcher=self.run.agent is not None,
            stages={rank: process.stage for rank, process in registry.seats.items()},
            unarmed=tuple(self.unarmed()),
        )
        store.failures = self.failures()
        store.events.extend(self.events(store.events.maxlen or 0))
        if self.run.ended:
            store.ending = read_ending(self.run)
            for process in registry.seats.values():
                process.dead = not process.left
        return store

    def _restore_histories(self, store: Store, saved: Checkpoint | None, last: int) -> int:
        """Give a store the histories that a hub left, and what was sampled and logged since; returns up to which step.

        A recording of an older ddpmon holds none of them: unless it is long, it is gone through from its first step.
        """
        seats = store.registry.seats
        if saved and saved.histories:
            store.histories = Histories.restored(saved.histories)
        whole = saved is None or (saved.histories is None and last * len(seats) <= REPORT_RECORDS)
        since = 0 if saved is None or whole or saved.attempt != store.registry.attempt else saved.step
        began_us = self.clock.us_at(self.run.created_at)
        for rank, process in seats.items():
            store.add_logged(process, self.scalars(process.id, since))
            if whole or (saved and saved.histories):
                after_us = int(began_us + store.histories.sampled_s * 1e6)
                store.histories.add_samples(rank, self.samples(process.id, after_us, MAX_US), began_us)
        return since

    def processes(self) -> Iterator[RankProcess]:
        """Every process that said it is a rank, as it was last known."""
        columns = (
            *("id", "attempt", "pid", "start_ticks", "hello", "stage", "seq", "steps", "last_step", "records"),
            *("dropped", "total_steps", "left", "dead", "unsynchronised", "unsynchronised_at", "stack"),
            *("epoch", "epochs"),
        )
        for row in self._rows(self._select("processes", columns, "ORDER BY id")):
            number, attempt, pid, ticks, hello, stage, seq, steps, last, records = row[:10]
            dropped, total, left, dead, unsynchronised, unsynchronised_at, stack, epoch, epochs = row[10:]
            process = RankProcess(
                number,
                attempt,
                msgspec.msgpack.decode(hello, type=Hello),
                Process(pid, ticks) if ticks is not None else None,
                stage=stage,
                seq=seq,
                steps=steps,
                last_step=last,
                records=records,
                dropped=dropped,
                total_steps=total,
                epoch=epoch,
                epochs=epochs,
                left=bool(left),
                dead=bool(dead),
                unsynchronised=unsynchronised or 0,
                unsynchronised_at=unsynchronised_at or 0,
                stack=msgspec.msgpack.decode(stack, type=Stack) if stack else None,
            )
            latest = self._select("samples", schema.SAMPLES, "WHERE process = ? ORDER BY time_us DESC LIMIT ?")
            rows = list(self._rows(latest, number, SAMPLES))
            process.samples.extend(schema.sample_of(row) for row in reversed(rows))
            process.layouts = self._layouts(number)
            yield process

    def steps(self, process: int, begin: int, end: int) -> list[Step]:
        """A process's records of the steps from `begin` to before `end`."""
        query = self._select("steps", schema.STEPS, "WHERE process = ? AND step >= ? AND step < ? ORDER BY step")
        return [schema.step_of(row) for row in self._rows(query, process, begin, end)]

    def samples(self, process: int, after_us: int, until_us: int) -> list[Sample]:
        """A process's samples after one moment and up to another."""
        query = self._select("samples", schema.SAMPLES, "WHERE process = ? AND time_us > ? AND time_us <= ?")
        return [schema.sample_of(row) for row in self._rows(query, process, after_us, until_us)]

    def scalars(self, process: int, after: int) -> list[Scalar]:
        """What a process's script logged after a step."""
        rows = self._rows("SELECT step, name, value FROM scalars WHERE process = ? AND step > ?", process, after)
        return [Scalar(step, name, float(value)) for step, name, value in rows if value is not None]

    def span_us(self, process: int) -> tuple[int, int] | None:
        """When a process was first and last heard of, by its samples and steps; None: never."""
        ends = [
            at
            for table, column, key in (("samples", "time_us", "time_us"), ("steps", "end_us", "step"))
            for order in ("ASC", "DESC")
            for (at,) in self._rows(
                f"SELECT {column} FROM {table} WHERE process = ? ORDER BY {key} {order} LIMIT 1",  # noqa: S608  ours
                process,
            )
        ]
        return (min(ends), max(ends)) if ends else None

    def first_end_us(self, process: int) -> int | None:
        """When the first of a process's steps ended; None: there is none."""
        rows = list(self._rows("SELECT end_us FROM steps WHERE process = ? ORDER BY step LIMIT 1", process))
        return int(rows[0][0]) if rows else None

    def first_step_after(self, process: int, at_us: int, last: int) -> int:
        """The first of a process's steps up to `last` that ends after a moment; last + 1 if none does."""
        low, high = 1, last + 1
        query = "SELECT step, end_us FROM steps WHERE process = ? AND step >= ? ORDER BY step LIMIT 1"
        while low < high:
            middle = (low + high) // 2
            found = list(self._rows(query, process, middle))
            if not found or found[0][1] > at_us:
                high = middle
            else:
                low = found[0][0] + 1
        return low

    def _lacks(self, table: str) -> bool:
        """Whether it was made by an older version, which had no such table."""
        return not list(self._rows("SELECT 1 FROM sqlite_master WHERE name = ?", table))

    def _layouts(self, process: int) -> dict[int, Layout]:
        if self._lacks("layouts"):
            return {}
        rows = self._rows("SELECT number, layout FROM layouts WHERE process = ?", process)
        return {number: msgspec.msgpack.decode(layout, type=Layout) for number, layout in rows}

    def digests(self, process: int, most: int = DIGESTS) -> list[Digest]:
        """A process's latest digests, at most so many."""
        if self._lacks("digests"):
            return []
        latest = self._select("digests", Digest.__struct_fields__, "WHERE process = ? ORDER BY rowid DESC LIMIT ?")
        rows = self._rows(latest, process, most)
        return [
            Digest(step, model, value, group, sequence, updates or 0)  # an older version told of no updates
            for step, model, value, group, sequence, updates in rows
        ][::-1]

    def _checkpoint(self) -> Checkpoint | None:
        rows = list(self._rows("SELECT value FROM checkpoints WHERE name = 'history'"))
        return msgspec.msgpack.decode(rows[0][0], type=Checkpoint) if rows else None

    def unarmed(self) -> list[Unarmed]:
        """The processes that ran torch without the probe."""
        rows = list(self._rows("SELECT value FROM checkpoints WHERE name = 'unarmed'"))
        return msgspec.msgpack.decode(rows[0][0], type=list[Unarmed]) if rows else []

    def failures(self) -> list[Failure]:
        """The exceptions that nobody caught."""
        rows = self._rows("SELECT failure FROM failures")
        return [msgspec.msgpack.decode(row[0], type=Failure) for row in rows]

    def events(self, most: int) -> list[Event]:
        """What happened to the run: the latest, at most so many."""
        rows = self._rows("SELECT at, severity, text FROM events ORDER BY rowid DESC LIMIT ?", most)
        return [Event(*row) for row in rows][::-1]

    def _select(self, table: str, columns: Sequence[str], rest: str) -> str:
        """The query for columns of a table, of which an older version's recording may lack some."""
        try:
            return schema.select(self._db, table, columns, rest)
        except sqlite3.Error as error:
            raise self._unreadable(error) from None

    def rows(self, query: str, *values: object) -> Iterator[Any]:
        """What a query finds. RecordingError where it cannot be read."""
        return self._rows(query, *values)

    def _rows(self, query: str, *values: object) -> Iterator[Any]:
        try:
            yield from self._db.execute(query, values)
        except sqlite3.Error as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> RecordingError:
        return RecordingError(f"{self.path} cannot be read: {error}")


def recording_path(run_id: str) -> Path:
    """Where a run's recording is."""
    return runs.run_dir(run_id) / "telemetry.db"


def recorded_snapshot(run: Run) -> Snapshot:
    """What the dashboard of a run showed last. RecordingError if it cannot be told."""
    return recorded_state(run)[0]


def recorded_state(run: Run) -> tuple[Snapshot, Store]:
    """The same, with all that it was made from."""
    store = _judged(run, None)
    return snapshot(store, EPOCH, 1, _end(run), _end(run)), store


def recorded_report(run: Run) -> dict[str, Any]:
    """The report of a run, from its recording. RecordingError if it cannot be told."""
    store = recorded_store(run)
    shot = snapshot(store, EPOCH, 1, _end(run), _end(run))
    summary = store.summary if store.first is None else summarise(store.first)
    return report(shot, store.means_of, summary, store.since_start.sums)


def recorded_store(run: Run) -> Store:
    """All that a report covers: many of a run's last steps, and what was found in them and at its end."""
    store = _judged(run, REPORT_RECORDS)
    late = _judged(run, None)
    # What held the run back at its end need not show over all of it.
    known = {(finding.kind, tuple(finding.ranks)) for finding in store.findings}
    more = [f for f in late.findings if (f.kind, tuple(f.ranks)) not in known]
    if more:
        store.findings = [*store.findings, *more]
        store.verdict, store.severity = late.verdict, late.severity
    return store


def _end(run: Run) -> float:
    return run.ended_at or time.time()


def _judged(run: Run, records: int | None) -> Store:
    """A store at the run's end; an empty one of a run that never came to record."""
    if run.ended and not recording_path(run.id).exists():
        registry = Registry(run.id, run.world_size, run.host)
        store = Store(run, registry, Clock(0, run.created_at))
        store.ending = read_ending(run)
    else:
        with Recording(run) as recording:
            store = recording.store(records)
    store.judge(_end(run), _end(run))
    return store
