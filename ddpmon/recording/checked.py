"""Converts a recording's rows to records and checks each like a message. Rows with impossible values are left out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from ddpmon.analysis.episodes import EpisodeRecord
from ddpmon.analysis.ledger import Judged
from ddpmon.analysis.processes.starts import Unarmed
from ddpmon.analysis.steps.pauses import PauseFilter
from ddpmon.analysis.steps.step_sums import SinceStart
from ddpmon.messages import (
    MAX_STEP,
    MAX_US,
    MAX_WORLD,
    STAGE_TRAINING,
    STAGES,
    Digest,
    Event,
    Failure,
    Hello,
    Layout,
    Refusal,
    Sample,
    Scalar,
    Stack,
    check_hello,
    check_stack,
)
from ddpmon.messages.nodes import End, check_end
from ddpmon.messages.wire import check_layout
from ddpmon.recording import schema
from ddpmon.recording.recorder import Checkpoint
from ddpmon.recording.tables import TABLES
from ddpmon.runs import Process, Run
from ddpmon.store.histories import Histories
from ddpmon.store.processes import RankProcess
from ddpmon.store.silences import Silence

UNREADABLE = (msgspec.MsgspecError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError)
"""Exceptions that are raised when a recording has an impossible value."""
PROCESSES_MOST = 1 << 16
"""Largest number of processes that are read. If there are more, the latest are read."""
TYPICAL_STEPS = 100
"""Number of a process's first steps from which its usual step length is estimated."""
UNKNOWN_STEP_US = 1000
BEYOND = 10
"""Factor by which a process may exceed the number of steps that its run had time for."""
_SEVERITIES = ("info", "warn", "critical")
Count = Annotated[int, msgspec.Meta(ge=0, lt=MAX_US)]
Moment = Annotated[float, msgspec.Meta(ge=0, lt=MAX_US / 1e6)]
"""A moment in Unix seconds."""
Rank = Annotated[int, msgspec.Meta(ge=0, lt=MAX_WORLD)]
_CHECKPOINTS = msgspec.msgpack.Decoder(Checkpoint)
_FINDINGS = msgspec.msgpack.Decoder(EpisodeRecord)
"""These decoders are made at import, because msgspec crashes if two threads use a type for the first time at once."""

_T = TypeVar("_T")


PROCESSES = tuple(column.name for column in TABLES["processes"])


def parse_rows(rows: Iterable[Any], make: Callable[[Any], _T]) -> tuple[list[_T], int]:
    """Return the records that `make` makes of rows, and the number of rows that could not be read."""
    made, bad = [], 0
    for row in rows:
        try:
            made.append(make(row))
        except UNREADABLE:
            bad += 1
    return made, bad


def checked_sample(row: Sequence[Any]) -> Sample:
    """Return the sample in a row of schema.SAMPLES."""
    made = msgspec.convert(msgspec.structs.astuple(schema.sample_of(row)), Sample)
    if not all(map(math.isfinite, (value for value in row if isinstance(value, float)))):
        raise ValueError("a sample that is not a number")
    return made


def checked_scalar(row: Sequence[Any]) -> Scalar:
    """Return the logged value in a row of step, name and value."""
    step, name, value = row
    return msgspec.convert((step, name, float(value)), Scalar)


def checked_digest(row: Sequence[Any]) -> Digest:
    """Return the digest in a row of its fields."""
    return msgspec.convert(tuple(row), Digest)


def checked_layout(row: Sequence[Any]) -> Layout:
    """Return the bucket layout in a row of its number and its blob."""
    number, blob = row
    made = msgspec.msgpack.decode(blob, type=Layout)
    check_layout(made)
    if made.number != number:
        raise ValueError("a bucket layout with a wrong number")
    return made


def checked_failure(row: Sequence[Any]) -> Failure:
    """Return the exception in a row of `failures`."""
    (blob,) = row
    made = msgspec.msgpack.decode(blob, type=Failure)
    if not (0 <= made.rank < MAX_WORLD and 0 <= made.time_us < MAX_US and 0 <= made.step < MAX_STEP):
        raise ValueError("a failure without a rank or a time")
    return made


def checked_silence(row: Sequence[Any]) -> Silence:
    """Return the silence in a row of `silences`."""
    attempt, first, last, blob = row
    ranks = msgspec.msgpack.decode(blob, type=tuple[Rank, ...])
    made = msgspec.convert({"attempt": attempt, "first_step": first, "last_step": last, "ranks": ranks}, Silence)
    if not (0 <= made.attempt < MAX_WORLD and 0 < made.first_step <= made.last_step < MAX_STEP):
        raise ValueError("a silence without steps")
    return made


def checked_event(row: Sequence[Any]) -> Event:
    """Return the event in a row of moment, severity and text."""
    at, severity, text = row
    made = msgspec.convert({"at": at, "severity": severity, "text": text}, Event)
    if severity not in _SEVERITIES or not 0 <= made.at < MAX_US / 1e6:
        raise ValueError("an event without a time or a severity")
    return made


def checkpoint(row: Sequence[Any]) -> Checkpoint:
    """Return the checkpoint that is recorded as `history`, or raise ValueError if a hub could not continue from it."""
    (blob,) = row
    made = _CHECKPOINTS.decode(blob)
    SinceStart(made.since_start)
    PauseFilter(made.times)
    Histories.restored(made.histories)
    if not (0 <= made.step < MAX_STEP and 0 <= made.attempt < MAX_WORLD):
        raise ValueError("a checkpoint without a step")
    if not all(0 < loss.step < MAX_STEP and not math.isfinite(loss.value) for loss in made.bad_losses):
        raise ValueError("a bad loss without a step, or a good loss")
    return made


def checked_finding(row: Sequence[Any]) -> EpisodeRecord:
    """Return the episode in a row of `findings`, or raise ValueError if a ledger could not continue from it."""
    record, number, blob = row
    made = _FINDINGS.decode(blob)
    if (made.record, made.number) != (record, number) or not (0 < record < MAX_STEP and 0 < number < MAX_STEP):
        raise ValueError("an episode that belongs to another finding")
    steps = made.begin_step, made.last_step, made.end_step
    if not all(0 <= step <= MAX_STEP for step in steps) or not 0 <= made.attempt < MAX_WORLD:
        raise ValueError("a finding without a step or an attempt")
    if not 0 < made.times < MAX_STEP:
        raise ValueError("a finding that never began")
    moments = (made.reported_at, made.grave_at, made.ended_at, made.replaced_at)
    if not all(0 <= at < MAX_US / 1e6 for at in moments if at is not None):
        raise ValueError("a finding without a time")
    if not abs(made.cost_s or 0.0) < MAX_US / 1e6:
        raise ValueError("a cost that is not a time")
    if (made.ended is None) != (made.ended_at is None) or made.finding.until_step is not None:
        raise ValueError("a finding that has ended and still lasts")
    if made.ended is not None and made.ended.until_step is None:
        raise ValueError("a finding that ended without a step")
    words = (made.finding, made.ended or made.finding)
    if any(one.severity not in _SEVERITIES for one in words) or made.severity not in _SEVERITIES:
        raise ValueError("a finding without a severity")
    return made


def checked_judged_step(row: Sequence[Any]) -> Judged:
    """Return the step up to which a hub judged the run, which is recorded as `judged`."""
    (blob,) = row
    made = msgspec.msgpack.decode(blob, type=Judged)
    if not (0 <= made.step < MAX_STEP and 0 <= made.attempt < MAX_WORLD):
        raise ValueError("an analysis that ends at no step")
    return made


def checked_unarmed(row: Sequence[Any]) -> list[Unarmed]:
    """Return the processes that ran torch without the probe, which are recorded as `unarmed`."""
    (blob,) = row
    return msgspec.msgpack.decode(blob, type=list[Unarmed])


def checked_refusals(row: Sequence[Any]) -> list[Refusal]:
    """Return the refused values that are recorded as `refused`."""
    (blob,) = row
    return msgspec.msgpack.decode(blob, type=list[Refusal])


class _Row:
    """Reader of a row of PROCESSES. It replaces impossible values by defaults, and then sets `whole` to False."""

    def __init__(self, row: Sequence[Any]) -> None:
        self._values = dict(zip(PROCESSES, row, strict=True))
        self.whole = True

    def count(self, name: str, most: int = MAX_US, *, otherwise: int = 0) -> int:
        value = self._values[name]
        if isinstance(value, int) and 0 <= value < most:
            return value
        self.whole = False
        return otherwise

    def optional_count(self, name: str) -> int | None:
        """Return a count, or None if it was not recorded or is impossible."""
        return None if self._values[name] is None else self.count(name) or None

    def difference(self, name: str) -> int | None:
        """Return the difference of two clocks, or None if they are the same clock."""
        value = self._values[name]
        if value is None or (isinstance(value, int) and abs(value) < MAX_US):
            return value
        self.whole = False
        return None

    def flag(self, name: str) -> bool:
        return bool(self.count(name, 2))

    def blob(self, name: str, kind: type[_T], check: Callable[[_T], None]) -> _T | None:
        value = self._values[name]
        if value is None:
            return None
        try:
            made = msgspec.msgpack.decode(value, type=kind)
            check(made)
        except UNREADABLE:
            self.whole = False
            return None
        return made


def checked_process(row: Sequence[Any], run: Run) -> tuple[RankProcess, bool]:
    """Return the process in a row of PROCESSES and whether the row is valid, or raise ValueError if it names none.

    Impossible counts of steps become MAX_US, which is larger than any possible count.
    """
    cells = _Row(row)
    number = cells.count("id", MAX_STEP)
    hello = cells.blob("hello", Hello, check_hello)
    if hello is None or hello.run_id != run.id:
        cells.whole = False
        rank, pid = cells.count("rank", MAX_WORLD, otherwise=-1), cells.count("pid", (1 << 22) + 1)
        if rank < 0 or not pid:
            raise ValueError("a process without a rank or a process id")
        host = row[PROCESSES.index("host")]
        size = max(run.world_size, rank + 1)
        hello = Hello(1, run.id, rank, rank, size, 0, host if isinstance(host, str) else "", pid, STAGE_TRAINING)
    attempt = row[PROCESSES.index("attempt")]
    ticks = cells.optional_count("start_ticks")
    made = RankProcess(
        number,
        -1 if attempt == -1 else cells.count("attempt", MAX_WORLD),
        hello,
        Process(hello.pid, ticks) if ticks is not None else None,
        stage=cells.count("stage", len(STAGES)),
        seq=cells.count("seq"),
        steps=cells.count("steps", otherwise=MAX_US),
        last_step=cells.count("last_step", otherwise=MAX_US),
        records=cells.count("records", otherwise=MAX_US),
        dropped=cells.count("dropped"),
        total_steps=cells.optional_count("total_steps"),
        epoch=cells.optional_count("epoch"),
        epochs=cells.optional_count("epochs"),
        later_us=cells.difference("later_us"),
        end=cells.blob("end", End, check_end),
        left=cells.flag("left"),
        dead=cells.flag("dead"),
        ended_us=cells.optional_count("ended_us"),
        unsynchronised=cells.optional_count("unsynchronised") or 0,
        unsynchronised_at=cells.optional_count("unsynchronised_at") or 0,
        stack=cells.blob("stack", Stack, check_stack),
    )
    return made, cells.whole


def last_possible(process: RankProcess, seconds: float, lengths_us: Sequence[Any]) -> int:
    """Return the last step that a process can have reached.

    Args:
        process: The process.
        seconds: Duration of the run.
        lengths_us: Lengths of some of the process's steps, in microseconds.

    """
    positive_us = [length for length in lengths_us if isinstance(length, int) and length > 0]
    had_time_for = int(seconds * 1e6 / (statistics.median(positive_us) if positive_us else UNKNOWN_STEP_US))
    agrees = process.records <= min(process.last_step, process.steps)
    return min(1000 + BEYOND * max(process.records if agrees else 0, had_time_for), MAX_STEP)
