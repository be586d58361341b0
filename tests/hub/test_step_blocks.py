"""Steps are recorded in blocks: a damaged one costs its steps, and none is counted twice."""

import contextlib
import math
import sqlite3
import zlib

import numpy as np
import pytest

from ddpmon import runs
from ddpmon.analysis.steps.table import ROW, column_bytes
from ddpmon.messages import STAGE_ENDED, Batch, Step
from ddpmon.recording import schema
from ddpmon.recording.recorder import Recorder
from ddpmon.recording.recording import Recording, recording_path
from ddpmon.recording.write_queue import WriteQueue
from ddpmon.store.clock import Clock
from tests.hub.thinned import rows
from tests.recordings import BEGAN, record, told_by
from tests.worlds import own_times, records


def test_a_block_of_more_steps_than_any_holds_is_damaged_and_those_after_it_are_read(home):
    run = record(own_times(200, 2))
    table = np.zeros(schema.MAX_BLOCK_STEPS + 1, ROW)
    table["step"] = np.arange(1, len(table) + 1)
    bomb = zlib.compress(column_bytes(table))
    with contextlib.closing(sqlite3.connect(recording_path(run.id))) as db:
        db.execute("UPDATE step_blocks SET rows = ? WHERE first_step = 1", (bomb,))
        db.commit()
    with pytest.raises(ValueError, match="too large"):
        schema.block_steps(bomb, None)
    with Recording(run) as recording:
        process = recording.processes()[1]
        assert [step.step for step in recording.steps.whole_steps(process.id, 1, most=2)] == [101, 102]
        assert list(recording.steps.stretches([process.id], 1, 100)) == [(1, 101), (101, 201)]
        assert recording.is_damaged


def test_many_steps_of_a_process_are_several_blocks(monkeypatch):
    monkeypatch.setattr(schema, "MAX_BLOCK_STEPS", 100)
    table = np.zeros(250, ROW)
    table["step"] = np.arange(1, 251)
    written = schema.block_rows(7, table, [])
    assert [row[:4] for row in written] == [(7, 1, 100, 100), (7, 101, 200, 100), (7, 201, 250, 50)]
    read = np.concatenate([schema.block_steps(*row[-2:])[0] for row in written])
    assert read["step"].tolist() == list(range(1, 251))


def test_a_batch_that_was_recorded_twice_counts_once(home):
    run = record(own_times(100, 2))
    with contextlib.closing(sqlite3.connect(recording_path(run.id))) as db:
        db.execute("INSERT INTO step_blocks SELECT process, first_step + 1, last_step, count, first_end_us, "
                   "last_end_us, rows, records FROM step_blocks")  # fmt: skip
        db.commit()
    with Recording(run) as recording:
        for process in recording.processes():
            assert [step.step for step in recording.steps.whole_steps(process.id, 1, 1000)] == list(range(1, 101))
            assert [step.step for step in recording.steps.whole_steps(process.id, 49, most=4)] == [49, 50, 51, 52]


def test_steps_that_compress_too_well_are_kept_as_they_are():
    table = np.zeros(schema.MAX_BLOCK_STEPS, ROW)
    table["step"] = np.arange(1, len(table) + 1)
    records = [Step(number, 0, 0, 0, 0, 0, 0, 0, named_us={"x" * 60: 1}) for number in range(1, 5000)]
    (row,) = schema.block_rows(7, table[len(records) :], records)
    read, further = schema.block_steps(*row[-2:])
    assert len(read) + len(further) == schema.MAX_BLOCK_STEPS
    assert further == records


def test_counters_of_a_process_are_those_of_what_is_recorded(home, monkeypatch):
    """A hub that is killed leaves what its nodes must send again."""
    monkeypatch.setattr(WriteQueue, "gather_s", math.inf)
    own = own_times(60, 1)
    run = record(own_times(1, 1))
    told = records(own, first=1)[0]
    recorder = Recorder(recording_path(run.id), run.id, Clock(0, BEGAN))
    process = told_by(run, 7, 0, 0, [])
    process.left, process.stage, process.seq = False, STAGE_ENDED, 0
    recorder.record_process(process)
    recorder.write()

    def counters():
        return rows(run, "SELECT seq, last_step, records FROM processes WHERE id = 7")[0]

    for seq in (1, 2):
        batch = Batch(0, process.hello.pid, seq, 0, 4, 30 * seq, 0, steps=told[30 * seq - 30 : 30 * seq])
        process.seq, process.last_step, process.records = seq, 30 * seq, 30 * seq
        recorder.record_batch(process, batch, batch.steps)
        if seq == 1:
            recorder.write_soon()
            recorder.write()
    recorder.write()
    assert counters() == (1, 30, 30), "the second waits"
    assert recorder.last_recorded_batch(process) == 1
    recorder.record_process(process)  # it said goodbye, say
    recorder.write()
    assert counters() == (2, 60, 60)
    recorder.close()
    assert runs.load(run.id)
