"""Rows of a recording as records, each checked like what comes off the wire: those that cannot be are left out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from ddpmon.analysis.pauses import Apart
from ddpmon.analysis.since_start import SinceStart
from ddpmon.analysis.unarmed import Unarmed
from ddpmon.hub import schema
from ddpmon.hub.histories import Histories
from ddpmon.hub.processes import RankProcess
from ddpmon.hub.recorder import Checkpoint
from ddpmon.messages import (
    MAX_STEP,
    MAX_US,
    MAX_WORLD,
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
    Step,
    check_hello,
    check_stack,
)
from ddpmon.messages.wire import check_digest, check_layout, check_sample, check_scalar, check_step
from ddpmon.runs import Process, Run

UNREADABLE = (msgspec.MsgspecError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError)
"""What reading a recording raises where something in it cannot be."""
UNKNOWN_STEP_US = 1000
BEYOND = 10
"""So many times the steps that a run had time for cannot have been."""
_SEVERITIES = ("info", "warn", "critical")
Count = Annotated[int, msgspec.Meta(ge=0, lt=MAX_US)]
Moment = Annotated[float, msgspec.Meta(ge=0, lt=MAX_US / 1e6)]
"""Unix seconds."""
_Stage = Annotated[int, msgspec.Meta(ge=0, lt=len(STAGES))]

_T = TypeVar("_T")


class ProcessRow(msgspec.Struct, array_like=True):
    """A row of `processes`, its values in the order of PROCESSES."""

    id: Annotated[int, msgspec.Meta(gt=0, lt=MAX_STEP)]
    attempt: Annotated[int, msgspec.Meta(ge=-1, lt=MAX_WORLD)]
    rank: Annotated[int, msgspec.Meta(ge=0, lt=MAX_WORLD)]
    pid: Annotated[int, msgspec.Meta(gt=0, le=1 << 22)]
    start_ticks: int | None
    host: str | None
    hello: bytes | None
    stage: _Stage
    seq: Count
    steps: Count
    last_step: Count
    records: Count
    dropped: Count
    total_steps: Count | None
    left: bool
    dead: bool
    unsynchronised: Count | None
    unsynchronised_at: Count | None
    stack: bytes | None
    epoch: Count | None
    epochs: Count | None


PROCESSES = ProcessRow.__struct_fields__


def kept(rows: Iterable[Any], make: Callable[[Any], _T]) -> tuple[list[_T], int]:
    """What could be made of rows, and of how many nothing could."""
    made, bad = [], 0
    for row in rows:
        try:
            made.append(make(row))
        except UNREADABLE:
            bad += 1
    return made, bad


def steps(rows: Sequence[Sequence[Any]]) -> tuple[list[Step], int]:
    """Records from rows of schema.STEPS in the order of their numbers, and how many could not be read."""
    return kept(rows, _checked_step)


def _step(row: Sequence[Any]) -> Step:
    return msgspec.convert(msgspec.structs.astuple(schema.step_of(row)), Step)


def _checked_step(row: Sequence[Any]) -> Step:
    step = _step(row)
    check_step(step)
    return step


def sample(row: Sequence[Any]) -> Sample:
    """From a row of schema.SAMPLES."""
    made = msgspec.convert(msgspec.structs.astuple(schema.sample_of(row)), Sample)
    if not all(map(math.isfinite, (value for value in row if isinstance(value, float)))):
        raise ValueError("a sample that is no number")
    check_sample(made)
    return made


def scalar(row: Sequence[Any]) -> Scalar:
    """From step, name, value."""
    step, name, value = row
    made = msgspec.convert((step, name, float(value)), Scalar)
    check_scalar(made)
    return made


def digest(row: Sequence[Any]) -> Digest:
    """From a digest's fields."""
    made = msgspec.convert((*row[:-1], row[-1] or 0), Digest)  # an older version told of no updates
    check_digest(made)
    return made


def layout(row: Sequence[Any]) -> Layout:
    """From its number and its blob."""
    made = msgspec.msgpack.decode(row[1], type=Layout)
    check_layout(made)
    if made.number != row[0]:
        raise ValueError("a layout of another number")
    return made


def failure(row: Sequence[Any]) -> Failure:
    """From its blob."""
    made = msgspec.msgpack.decode(row[0], type=Failure)
    if not (0 <= made.rank < MAX_WORLD and 0 <= made.time_us < MAX_US and 0 <= made.step < MAX_STEP):
        raise ValueError("a failure of no rank or time")
    return made


def event(row: Sequence[Any]) -> Event:
    """From at, severity, text."""
    at, severity, text = row
    made = msgspec.convert({"at": at, "severity": severity, "text": text}, Event)
    if severity not in _SEVERITIES or not 0 <= made.at < MAX_US / 1e6:
        raise ValueError("an event of no time or severity")
    return made


def _stack(blob: bytes) -> Stack:
    """From its blob."""
    made = msgspec.msgpack.decode(blob, type=Stack)
    check_stack(made)
    return made


def checkpoint(row: Sequence[Any]) -> Checkpoint:
    """From its blob; what was worked out must be such that it can be gone on with."""
    made = msgspec.msgpack.decode(row[0], type=Checkpoint)
    SinceStart(made.since_start)
    Apart(made.times)
    if made.histories:
        Histories.restored(made.histories)
    if not (0 <= made.step < MAX_STEP and 0 <= made.attempt < MAX_WORLD):
        raise ValueError("a checkpoint of no step")
    return made


def unarmed(row: Sequence[Any]) -> list[Unarmed]:
    """From their blob."""
    return msgspec.msgpack.decode(row[0], type=list[Unarmed])


def refused(row: Sequence[Any]) -> list[Refusal]:
    """From their blob."""
    return msgspec.msgpack.decode(row[0], type=list[Refusal])


def process(row: Sequence[Any], run: Run) -> tuple[RankProcess, bool]:
    """From a row of PROCESSES; False if of what it said of itself only the row still tells."""
    values = dict(zip(PROCESSES, row, strict=True))
    values |= {"left": bool(values["left"]), "dead": bool(values["dead"])}  # SQLite has no truth values
    told = msgspec.convert(tuple(values.values()), ProcessRow)
    hello = _hello(told, run)
    whole = hello is not None
    if hello is None:
        size = max(run.world_size, told.rank + 1)
        hello = Hello(1, run.id, told.rank, told.rank, size, 0, told.host or "", told.pid, told.stage)
    process = RankProcess(
        told.id,
        told.attempt,
        hello,
        Process(told.pid, told.start_ticks) if told.start_ticks is not None else None,
        stage=told.stage,
        seq=told.seq,
        steps=told.steps,
        last_step=told.last_step,
        records=told.records,
        dropped=told.dropped,
        total_steps=told.total_steps,
        epoch=told.epoch,
        epochs=told.epochs,
        left=told.left,
        dead=told.dead,
        unsynchronised=told.unsynchronised or 0,
        unsynchronised_at=told.unsynchronised_at or 0,
    )
    stacks, bad = kept([told.stack] if told.stack else [], _stack)
    process.stack = stacks[0] if stacks else None
    return process, whole and not bad


def _hello(row: ProcessRow, run: Run) -> Hello | None:
    try:
        made = msgspec.msgpack.decode(row.hello or b"", type=Hello)
        check_hello(made)
    except UNREADABLE:
        return None
    return made if (made.rank, made.pid, made.run_id) == (row.rank, row.pid, run.id) else None


def last_possible(process: RankProcess, seconds: float, lengths_us: Sequence[Any]) -> int:
    """The last step that a process can have come to in a run that took so long. lengths_us: of some of its steps."""
    known = [length for length in lengths_us if isinstance(length, int) and length > 0]
    had_time_for = int(seconds * 1e6 / (statistics.median(known) if known else UNKNOWN_STEP_US))
    agrees = process.records <= min(process.last_step, process.steps)
    return min(1000 + BEYOND * max(process.records if agrees else 0, had_time_for), MAX_STEP)
