"""Test that other tools can read what is exported, and that it equals the recording."""

import csv
import io
import json
import math
import sqlite3
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from ddpmon.export import openmetrics, rows, trace
from ddpmon.export.steps import pieces
from ddpmon.messages import PHASES
from ddpmon.plain import plain
from ddpmon.recording.recording import Recording, recording_path
from tests.recordings import change_steps, record
from tests.tui import snapshots
from tests.worlds import own_times


def written(run, form, last=None):
    file = io.StringIO()
    with Recording(run) as recording:
        if form == "csv":
            rows.write_csv(pieces(recording, last), recording.clock, file)
        else:
            trace.write(pieces(recording, last), run.name, file)
    return file.getvalue()


def rows_of(run, last=None):
    return list(csv.DictReader(io.StringIO(written(run, "csv", last))))


def story(steps=30, ranks=3):
    own = own_times(steps, ranks)
    own[:, 1, 2] += 10
    return own


def lose(run, rank, step):
    """Take a record out of the recording."""
    change_steps(run, lambda process, told: None if (process, told.step) == (rank + 1, step) else told)


def test_the_csv_has_a_row_for_each_rank_and_step_whose_phases_add_up(home):
    rows = rows_of(record(story(), created_at=1000.0))
    assert [(int(row["step"]), int(row["rank"])) for row in rows] == [(s, r) for s in range(1, 31) for r in range(3)]
    for row in rows:
        assert sum(float(row[f"{phase}_ms"]) for phase in PHASES) == pytest.approx(float(row["length_ms"]), abs=0.01)
    assert {(row["rank"], row["critical"]) for row in rows} == {("0", "0"), ("1", "1"), ("2", "0")}
    late, waits = rows[1], rows[0]
    assert (float(late["backward_ms"]), float(late["wait_ms"]), float(late["transfer_ms"])) == (25.0, 0.0, 6.0)
    assert float(waits["wait_ms"]) == 10.0
    assert float(late["loss"]) == pytest.approx(2.0)
    assert (late["samples"], late["tokens"], late["learning_rate"]) == ("64", "", "")
    ends = [float(row["end_unix_s"]) for row in rows[::3]]
    assert ends == pytest.approx([ends[0] + 0.043 * i for i in range(30)], abs=1e-4)


def test_a_step_that_a_rank_lost_has_no_waits(home):
    run = record(story())
    lose(run, 2, 10)
    rows = {(row["step"], row["rank"]): row for row in rows_of(run)}
    assert ("10", "2") not in rows
    assert (rows["10", "0"]["wait_ms"], rows["10", "0"]["critical"]) == ("", "")
    assert float(rows["10", "0"]["forward_ms"]) == 8.0
    assert float(rows["11", "0"]["wait_ms"]) == 10.0


def test_restarted_ranks_are_a_further_attempt_and_last_means_its_last_steps(home):
    run = record(story(40), restarts=(25,))
    assert {row["attempt"] for row in rows_of(run)} == {"0", "1"}
    assert len(rows_of(run)) == 3 * (25 + 15)
    last = rows_of(run, last=5)
    assert {(row["attempt"], row["step"]) for row in last} == {("1", str(step)) for step in range(11, 16)}


def test_a_process_that_never_was_a_rank_is_in_no_file(home):
    run = record(story(5))
    with sqlite3.connect(recording_path(run.id)) as db:
        db.execute("UPDATE processes SET attempt = -1 WHERE rank = 2")
    db.close()
    assert {(row["attempt"], row["rank"]) for row in rows_of(run)} == {("0", "0"), ("0", "1")}


def test_a_loss_that_is_no_number_is_written_as_what_it_is(home):
    run = record(story(), loss=[[math.nan] * 3] * 30)
    assert {row["loss"] for row in rows_of(run)} == {"nan"}
    json.loads(written(run, "perfetto"), parse_constant=pytest.fail)


def test_the_trace_has_a_track_for_each_rank_on_which_phases_lie_inside_their_steps(home):
    run = record(story(), restarts=(20,))
    events = json.loads(written(run, "perfetto"))["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {(attempt, rank + 1): f"rank {rank}" for attempt in (1, 2) for rank in range(3)}
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {"told", "told, attempt 2"}
    slices = [e for e in events if e["ph"] == "X"]
    steps = [e for e in slices if e["cat"] == "step"]
    assert len(steps) == 3 * (20 + 10)
    assert min(e["ts"] for e in steps) == 0
    assert {e["args"]["waited for"] for e in steps} == {"rank 1"}
    for one in steps[::7]:
        inside = [
            e
            for e in slices
            if e["cat"] == "phase"
            and (e["pid"], e["tid"]) == (one["pid"], one["tid"])
            and one["ts"] <= e["ts"] < one["ts"] + one["dur"]
        ]
        assert sum(e["dur"] for e in inside) == one["dur"]
        assert all(a["ts"] + a["dur"] == b["ts"] for a, b in pairwise(inside))
        waits = [] if one["tid"] == 2 else ["wait"]
        assert [e["name"] for e in inside] == ["optimizer", "other", "data", "forward", "backward", *waits, "transfer"]


def test_a_trace_of_a_run_without_steps_is_a_trace(home):
    run = record(story(1))
    with sqlite3.connect(recording_path(run.id)) as db:
        db.execute("DELETE FROM step_blocks")
    db.close()
    assert json.loads(written(run, "perfetto"))["traceEvents"] == []
    assert rows_of(run) == []


def test_a_block_that_cannot_be_read_is_left_out(home):
    run = record(story())
    whole = rows_of(run)
    with sqlite3.connect(recording_path(run.id)) as db:
        db.execute("UPDATE step_blocks SET rows = 'long' WHERE process = 1")
    db.close()
    assert len(rows_of(run)) == len(whole) - 30


def metrics(text):
    """Return the metrics as Prometheus reads them: {(name, labels): value}, and the type of each family."""
    families = list(text_string_to_metric_families(text))
    samples = [sample for family in families for sample in family.samples]
    values = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(values) == len(samples)
    return values, {family.name: family.type for family in families}


def test_metrics_tell_the_snapshot_in_base_units():
    shot = snapshots.slow()
    values, types = metrics(openmetrics.text(shot))

    def value(name, **labels):
        return values[name, frozenset({"run": shot.run.name, "run_id": shot.run.id, **labels}.items())]

    assert value("ddpmon_run_state", state="slow") == 1
    assert sum(value for (name, _), value in values.items() if name == "ddpmon_run_state") == 1
    assert value("ddpmon_steps_total") == shot.step
    rank = shot.ranks[13]
    assert value("ddpmon_rank_own_seconds", rank="13") == pytest.approx(rank.own_ms / 1e3)
    assert value("ddpmon_rank_phase_seconds", rank="13", phase="wait") == pytest.approx(rank.phases_ms[5] / 1e3)
    assert types["ddpmon_steps"] == "counter"


@given(st.text(), st.none() | st.floats())
def test_any_name_and_any_number_can_be_read_back(name, loss):
    shot = snapshots.running(1)
    shot = snapshots.replace(shot, loss=loss, run=snapshots.replace(shot.run, name=name))
    text = openmetrics.text(shot)
    values, _ = metrics(text)
    ((labels, told),) = [(dict(key[1]), v) for key, v in values.items() if key[0] == "ddpmon_loss"] or [({}, None)]
    if loss is None:
        assert told is None
    else:
        assert told == loss or (math.isnan(told) and math.isnan(loss))
        assert labels["run"] == plain(name)


def test_what_the_script_named_is_told_of_its_steps(home):
    run = record(story())

    def named(process, step):
        names = {"augment": 1500} if (process, step.step) == (2, 10) else {}
        return msgspec.structs.replace(step, named_us=names)

    change_steps(run, named)
    told = {(row["step"], row["rank"]): row["named_ms"] for row in rows_of(run)}
    assert json.loads(told.pop(("10", "1"))) == {"augment": 1.5}
    assert set(told.values()) == {""}
    events = json.loads(written(run, "perfetto"))["traceEvents"]
    steps = [e for e in events if e.get("cat") == "step" and "in augment" in e["args"]]
    assert [(e["name"], e["tid"], e["args"]["in augment"]) for e in steps] == [("step 10", 2, "1.500 ms")]
