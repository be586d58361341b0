"""Recordings of made-up runs, written by the recorder as a live hub would have."""

import contextlib
import dataclasses
import itertools
import sqlite3

import msgspec
import numpy as np

from ddpmon import runs
from ddpmon.analysis.steps.table import row_of, steps_of, table_of
from ddpmon.messages import PROTOCOL, STAGE_ENDED, Batch, Event, Hello, Sample, Scalar
from ddpmon.recording import schema
from ddpmon.recording.recorder import Checkpoint, Recorder
from ddpmon.recording.recording import Recording, recording_path
from ddpmon.recording.restoring import judge_unjudged, restored_store
from ddpmon.store.clock import Clock
from ddpmon.store.processes import RankProcess
from tests.worlds import own_times, records

BEGAN = 1_789_000_000.0
BLOCK_STEPS = 100
"""Of the blocks in which steps are recorded."""
FIRST_S = 5.0
"""Seconds from the start of the run to its first step."""


def story(steps=1800, ranks=4, late=2, begin=600, end=1200, extra_ms=12.0):
    """Own times of a world in which one rank is late for a stretch: 33 ms a step, 45 in the stretch."""
    own = own_times(steps, ranks, noise=0.02)
    own[begin:end, late, 0] += extra_ms
    return own


def record(
    own=None, *, loss=None, restarts=(), events=(), dead=(), accuracy=False, sums=None, room=None,
    judged="end", **changes,
):  # fmt: skip
    """Write a run that has ended, and its recording; returns the run.

    own: [S, R, 5] ms. restarts: step numbers at which every rank is replaced by a new process.
    sums: makes of the sums since the start what is written down of them.
    room: bytes of the recording, and the last step records that are kept whole; None: as a hub has it.
    accuracy: rank 0 logs one every tenth step: a thousandth of its number.
    judged: what the hub that wrote it judged: the last window "end", "all" of the run, or nothing ("").
    """
    own = story() if own is None else own
    steps, ranks, _ = own.shape
    if loss is None:
        loss = 2.0 * 0.999 ** np.arange(steps)[:, None] * (1 + 1e-7 * np.arange(ranks))
    run = runs.Run(
        id="20260909-120000-7f3a", name="told", argv=["torchrun"], script="train.py", script_args=[], cwd="/",
        host="here", boot_id=runs.boot_id(), created_at=BEGAN, world_size=ranks,
    )  # fmt: skip
    run = dataclasses.replace(run, **changes)
    arrays = [own.shape, own.tobytes(), np.asarray(loss, float).tobytes()]
    arguments = (*arrays, *map(repr, (run, restarts, events, dead, accuracy, room, judged)))
    runs.create(run)
    if sums is None and arguments in _WRITTEN:
        recording, ended_at = _WRITTEN[arguments]
        recording_path(run.id).write_bytes(recording)
        return _ended(run, ended_at)
    recorder = Recorder(recording_path(run.id), run.id, Clock(0, BEGAN), None, *(room or ()))
    bounds = [0, *restarts, steps]
    now_us, number = round(FIRST_S * 1e6), 0
    for attempt, (first, last) in enumerate(itertools.pairwise(bounds)):
        told = records(own[first:last], first=1, loss=loss[first:last], start_us=now_us)
        for rank in range(ranks):
            number += 1
            process = told_by(run, number, attempt, rank, told[rank], dead=rank in dead)
            end_us = told[rank][-1].end_us if told[rank] else now_us
            samples = [Sample(at, 90.0, 1 << 30) for at in range(now_us - 500_000, end_us, 1_000_000)]
            tenth = range(10, last - first + 1, 10) if accuracy and rank == 0 else ()
            batch = Batch(
                rank, process.hello.pid, 1, 0, 4, last - first, 0, steps=told[rank], samples=samples,
                scalars=[Scalar(step, "accuracy", step / 1000) for step in tenth],
            )  # fmt: skip
            recorder.record_process(process)
            for begin in range(0, len(told[rank]) or 1, BLOCK_STEPS):
                recorder.record_batch(process, batch, told[rank][begin : begin + BLOCK_STEPS])
                recorder.write_soon()
                recorder.write()
                batch = msgspec.structs.replace(batch, samples=[], scalars=[])
        now_us = end_us + 2_000_000
    with Recording(run) as recording:
        store = restored_store(recording)
        saved = Checkpoint(
            store.registry.attempt, store.history_step,
            sums(store.since_start.sums) if sums else store.since_start.sums,
            store.histories.saved(), store.pause_filter.times, list(store.bad_losses.values()),
        )  # fmt: skip
        recorder.checkpoint(saved)
    while recorder.too_large:
        recorder.merge_oldest()
    recorder.record_event([Event(BEGAN + at, "info", text) for at, text in events])
    recorder.close()
    run = _ended(run, BEGAN + now_us / 1e6)
    if sums is None:
        if judged:
            _judge(run, judged)
        while len(_WRITTEN) >= MOST_WRITTEN:
            del _WRITTEN[next(iter(_WRITTEN))]
        _WRITTEN[arguments] = recording_path(run.id).read_bytes(), BEGAN + now_us / 1e6
    return run


def _judge(run, judged):
    with Recording(run) as recording:
        store = restored_store(recording)
        if judged == "all":
            judge_unjudged(recording, store)
    store.judge(run.ended_at, run.ended_at)
    recorder = Recorder(recording_path(run.id), run.id, store.clock)
    recorder.record_findings(store.ledger)
    recorder.close()


def change_steps(run, change):
    """Rewrite the steps of a recording as `change(process, step)` returns them; None loses one."""
    with contextlib.closing(sqlite3.connect(recording_path(run.id))) as db, db:
        for process, first, *blobs in db.execute(
            "SELECT process, first_step, rows, records FROM step_blocks"
        ).fetchall():
            table, records = schema.block_steps(*blobs)
            changed = [made for step in (*steps_of(table), *records) if (made := change(process, step)) is not None]
            rows = [row_of(step) for step in changed]
            table = table_of(b"".join(row for row in rows if row is not None))
            records = [step for step, row in zip(changed, rows, strict=True) if row is None]
            db.execute("DELETE FROM step_blocks WHERE (process, first_step) = (?, ?)", (process, first))
            db.executemany(schema.insert_sql("step_blocks"), schema.block_rows(process, table, records))


MOST_WRITTEN = 12
_WRITTEN = {}
"""Recordings by what they were made of: (bytes of the file, when the run ended). Many tests begin with the same one."""


def _ended(run, ended_at):
    if run.ended_at is None:
        run = dataclasses.replace(run, ended_at=ended_at, exit_code=0)
        runs.save(run)
    return run


def told_by(run, number, attempt, rank, steps, *, dead=False):
    """A process as it was last known."""
    hello = Hello(PROTOCOL, run.id, rank, rank, run.world_size, 0, "here", 4_000_000 + number, 4, restart=attempt)
    return RankProcess(
        number, attempt, hello, stage=STAGE_ENDED, seq=1, steps=len(steps), last_step=len(steps), records=len(steps),
        left=not dead, dead=dead,
    )  # fmt: skip


def execute(path, statement):
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()


UNUSABLE = {
    "no database": (lambda path: path.write_bytes(b"nothing of the kind" * 99), "ddpmon can read none of its ranks"),
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:5000]), "ddpmon can read nothing from it"),
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "newer": (
        lambda path: execute(path, "UPDATE meta SET value = 99 WHERE key = 'schema'"),
        "newer ddpmon (schema 99), and this version reads only schema 5",
    ),
    "earlier": (
        lambda path: execute(path, "UPDATE meta SET value = 4 WHERE key = 'schema'"),
        "earlier ddpmon (schema 4), and this version reads only schema 5",
    ),
}
"""Ways to damage a recording so that it cannot be shown, and the message for each."""
