"""Converts a recording's rows to records, and checks each record like a message. Rows with impossible values are left
out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

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
    Event,
    Failure,
    Hello,
    Layout,
    Micros,
    Pid,
    Rank,
    Refusal,
    Sample,
    Scalar,
    Stack,
    Stage,
    StepCount,
)
from ddpmon.messages.nodes import End
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
"""Factor by which a process's step counter may exceed the number of usual steps that fit into the run's duration."""
FAILURES = msgspec.msgpack.Decoder(Failure)
FINDINGS = msgspec.msgpack.Decoder(EpisodeRecord)
JUDGED = msgspec.msgpack.Decoder(Judged)
LAYOUTS = msgspec.msgpack.Decoder(Layout)
REFUSALS = msgspec.msgpack.Decoder(list[Refusal])
UNARMED = msgspec.msgpack.Decoder(list[Unarmed])
_CHECKPOINTS = msgspec.msgpack.Decoder(Checkpoint)
"""These decoders are made at import, because msgspec crashes if two threads use a type for the first time at once."""

_T = TypeVar("_T")


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
    """Return the sample in a row of the columns schema.SAMPLE_FIELDS. The row has numbers for booleans, which SQLite
    lacks.
    """
    return msgspec.convert(row, Sample, strict=False)


def checked_scalar(row: Sequence[Any]) -> Scalar:
    """Return the logged value in a row of step, name and value."""
    step, name, value = row
    return msgspec.convert((step, name, float(value)), Scalar)


def checked_silence(row: Sequence[Any]) -> Silence:
    """Return the silence in a row of `silences`."""
    *steps, ranks = row
    return msgspec.convert((*steps, msgspec.msgpack.decode(ranks)), Silence)


def checked_event(row: Sequence[Any]) -> Event:
    """Return the event in a row of moment, severity and text."""
    return msgspec.convert(dict(zip(("at", "severity", "text"), row, strict=True)), Event)


def checkpoint(blob: bytes) -> Checkpoint:
    """Return the checkpoint in an encoded value, or raise ValueError if a hub could not continue from it."""
    made = _CHECKPOINTS.decode(blob)
    SinceStart(made.since_start)
    PauseFilter(made.times)
    Histories.restored(made.histories)
    if not all(0 < loss.step < MAX_STEP and not math.isfinite(loss.value) for loss in made.bad_losses):
        raise ValueError("a bad loss without a step, or a good loss")
    return made


PROCESSES = tuple(column.name for column in TABLES["processes"])
_PROCESS_FIELDS: dict[str, tuple[Any, Any]] = {
    "id": (StepCount, 0),
    "attempt": (Annotated[int, Meta(ge=-1, lt=MAX_WORLD)], 0),
    "start_ticks": (Micros | None, None),
    "stage": (Stage, 0),
    "seq": (Micros, 0),
    "steps": (Micros, MAX_US),
    "last_step": (Micros, MAX_US),
    "records": (Micros, MAX_US),
    "dropped": (Micros, 0),
    "total_steps": (Micros | None, None),
    "epoch": (Micros | None, None),
    "epochs": (Micros | None, None),
    "later_us": (Annotated[int, Meta(gt=-MAX_US, lt=MAX_US)] | None, None),
    "left": (bool, False),
    "dead": (bool, False),
    "ended_us": (Micros | None, None),
    "unsynchronised": (Micros, 0),
    "unsynchronised_at": (Micros, 0),
}
"""Columns of `processes` that hold numbers: the type, and the value that replaces an impossible one. An impossible
count of steps becomes MAX_US, which is larger than any possible count."""
_PROCESS_BLOBS = {name: msgspec.msgpack.Decoder(kind) for name, kind in {"end": End, "stack": Stack}.items()}
_HELLOS = msgspec.msgpack.Decoder(Hello)


def checked_process(row: Sequence[Any], run: Run) -> tuple[RankProcess, bool]:
    """Return the process in a row of PROCESSES, and whether the row is valid. Raise ValueError if the row names no
    process.
    """
    cells = dict(zip(PROCESSES, row, strict=True))
    values: dict[str, Any] = {}
    is_whole = True
    for name, (kind, default) in _PROCESS_FIELDS.items():
        try:
            values[name] = msgspec.convert(cells[name], kind, strict=kind is not bool)
        except msgspec.ValidationError:
            values[name], is_whole = default, False
    for name, decoder in _PROCESS_BLOBS.items():
        try:
            values[name] = None if cells[name] is None else decoder.decode(cells[name])
        except UNREADABLE:
            values[name], is_whole = None, False
    try:
        hello = _HELLOS.decode(cells["hello"])
    except UNREADABLE:
        hello = None
    if hello is None or hello.run_id != run.id:
        is_whole = False
        rank, pid = msgspec.convert(cells["rank"], Rank), msgspec.convert(cells["pid"], Pid)
        host = cells["host"] if isinstance(cells["host"], str) else ""
        hello = Hello(1, run.id, rank, rank, max(run.world_size, rank + 1), 0, host, pid, STAGE_TRAINING)
    ticks = values.pop("start_ticks")
    return RankProcess(hello=hello, process=None if ticks is None else Process(hello.pid, ticks), **values), is_whole


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
