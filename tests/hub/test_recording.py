"""Test that a recording returns what was written."""

import sqlite3

import msgspec
import pytest

from ddpmon.export import report
from ddpmon.messages import Digest, Sample, Stack, encode
from ddpmon.recording import schema
from ddpmon.recording.recorded import recorded_snapshot
from tests.worlds import own_times, records


def telling(told, rank):
    """Steps of a rank with all that a step can tell."""
    return [msgspec.structs.replace(step, tokens=512, learning_rate=0.1 / step.step, gc_us=2000) for step in told[rank]]


def samples_after(steps, share):
    first = steps[0].end_us + 2_000_000
    return [
        Sample(first + i * 1_000_000, 90.0, 1 << 30, starved_share=share, major_faults_per_s=3.0, threads=7)
        for i in range(10)
    ]


def test_what_ranks_tell_of_a_step_and_a_second_reaches_screen_and_report(stage):
    told = records(own_times(60, 2), first=1)
    ranks = stage.start(cores=1, compute_threads=1)
    for rank in ranks:
        steps = telling(told, rank.rank)
        rank.train(steps, samples=samples_after(steps, 0.4))
    shot = stage.viewer().until(lambda s: s.window and len(s.findings) == 2, "both findings")
    (finding,) = [f for f in shot.findings if f.kind == "cpu_starved"]
    assert finding.text == "2 ranks on 1 core: each is starved 40% of the time"
    assert [f.cost_ms for f in shot.findings if f.kind == "gc_pauses"] == [pytest.approx(2.0)]
    view = shot.ranks[1]
    assert view.sample.starved_share == pytest.approx(0.4)
    assert (view.sample.threads, view.sample.major_faults_per_s, view.gc_ms) == (7, 3.0, 2.0)
    assert view.learning_rate == pytest.approx(0.1 / 60)
    assert view.tokens_per_s == pytest.approx(512 / 0.033, rel=0.01)
    for rank in ranks:
        rank.leave()
    stage.finish()
    made = report.build(stage.run)
    (recorded,) = [f for f in made["findings"] if f["kind"] == "cpu_starved"]
    assert recorded["text"] == finding.text
    assert made["ranks"][1]["cpu_starved_share"] == pytest.approx(0.4)
    assert made["ranks"][1]["gc_ms"] == 2.0


def test_replicas_that_differ_gradients_not_synchronised_and_a_stack_survive_into_the_report(stage):
    told = records(own_times(60, 3), first=1)
    ranks = stage.start(3)
    for rank in ranks:
        values = [Digest(1, 0, 7, "0", 3), Digest(10, 0, 7 + (rank.rank == 1), "0", 30)]
        rank.train(told[rank.rank], digests=values, unsynchronised=20 if rank.rank == 2 else 0)
    expected = {("replicas_differ", 1), ("gradients_not_synchronised", 2)}
    shot = stage.viewer().until(lambda s: len(s.findings) == 2, "two findings")
    assert {(f.kind, *f.ranks) for f in shot.findings} == expected
    stack = Stack(0, ranks[0].pid, 9_000_000, 3, 8_000_000, 2, ["train.py:3 main"], 0)
    ranks[0].socket.send(encode(stack))
    assert stage.viewer().until(lambda s: s.ranks[0].stack, "the stack").ranks[0].stack == stack
    for rank in ranks:
        rank.leave()
    stage.finish()
    told = report.build(stage.run)["findings"]
    assert {(f["kind"], *f["ranks"]) for f in told if f["kind"] != "hang"} == expected, (
        "by their stack they stand still"
    )
    assert recorded_snapshot(stage.run).ranks[0].stack == stack


def test_a_sample_comes_back_as_it_was():
    db = sqlite3.connect(":memory:")
    schema.create_tables(db)
    told = [Sample(5), Sample(6, 90.0, 1 << 30, gpu_throttled="", loader_workers=0, loader_pinned=False)]
    told.append(Sample(7, threads=3, loader_workers=2, loader_pinned=True))
    db.executemany(schema.insert_sql("samples"), [schema.sample_row(1, sample) for sample in told])
    rows = db.execute(schema.select_sql("samples", schema.SAMPLE_FIELDS, "ORDER BY time_us"))
    found = [schema.sample_of(row) for row in rows]
    assert found == told
    assert [sample.loader_pinned for sample in found] == [None, False, True]
    assert msgspec.json.encode(found) == msgspec.json.encode(told)
