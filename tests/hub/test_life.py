"""Beginning, end and second lives of the hub."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddpmon import runs
from ddpmon.export import report as reports
from ddpmon.hub import opening
from ddpmon.hub.sockets import Sockets
from ddpmon.launch.kept_process import HubKeeper
from ddpmon.messages import Event
from ddpmon.recording.recorded import recorded_report, recorded_snapshot
from ddpmon.recording.recording import Recording
from ddpmon.recording.restoring import restored_store
from ddpmon.source import attaching
from tests.hub.conftest import DEADLINE_S, until
from tests.worlds import own_times, records


def train(stage, steps=60, slow=None, **kwargs):
    """Two ranks that train and say goodbye."""
    own = own_times(steps, 2)
    if slow is not None:
        own[:, slow, 0] += 20
    told = records(own, first=1, **kwargs)
    for rank in (stage.rank(0, world_size=2), stage.rank(1, world_size=2)):
        rank.join()
        rank.batch(told[rank.rank], total_steps=2 * steps)
        rank.leave()


def test_a_second_hub_of_the_same_run_is_refused_and_the_first_goes_on(stage):
    stage.hub()
    second = stage.hub(ready=False)
    assert second.wait(DEADLINE_S) == 1
    assert f"run {stage.run.id} already has a hub" in stage.log()
    stage.rank(0).join()


def test_sigterm_after_the_end_writes_the_report_and_tells_viewers_what_the_recording_shows(stage):
    stage.save(world_size=2)
    stage.hub()
    train(stage, slow=1, loss=[[3.0 - i / 30, 2.0] for i in range(60)])
    viewer = stage.viewer()
    live = viewer.until(lambda s: s.window == (2, 60) and s.findings, "the straggler")
    assert live.state == "slow"
    stage.end(exit_code=0)
    last = viewer.until(lambda s: s.state == "done", "the end")  # A hub tells it only to who asked within seconds.
    assert last.verdict.startswith("done: 60 steps in ")
    assert "rank 1 is slow: +20.0 ms data" in last.verdict
    assert last.run.exit_code == 0
    assert stage.hubs[-1].wait(DEADLINE_S) == 0
    report = json.loads((stage.dir / "report.json").read_text())
    assert report == json.loads(json.dumps(recorded_report(stage.run)))
    assert report["run"]["state"] == "done"
    assert [rank["exit"]["code"] for rank in report["ranks"]] == [0, 0]
    assert not list(stage.dir.glob("telemetry.db-*")), "the recording is one file"
    again = recorded_snapshot(runs.load(stage.run.id))
    for field in ("step", "step_ms_p50", "loss", "loss_falls", "window", "own_series", "loss_series", "samples_per_s"):
        assert getattr(again, field) == getattr(live, field), field
    assert [view.own_ms for view in again.ranks] == [view.own_ms for view in live.ranks]
    assert again.findings == live.findings
    assert again.state == "done"


def test_the_report_of_a_run_whose_hub_does_not_answer_says_how_old_it_is(stage, monkeypatch):
    stage.save(world_size=2)
    stage.hub()
    train(stage)
    live = stage.viewer().until(lambda s: s.window == (2, 60), "everything analysed")
    made = reports.build(stage.run)
    assert (made["run"]["live_state"], made["run"]["stale_s"], made["steps"]["count"]) == (live.state, None, 60)
    until(lambda: recorded_snapshot(stage.run).step == 60, "everything recorded")
    stage.hubs[-1].kill()
    monkeypatch.setattr(attaching, "FIRST_ANSWER_S", 0.5)
    made = reports.build(stage.run)
    assert (made["run"]["state"], made["run"]["live_state"], made["steps"]["count"]) == ("running", None, 60)
    assert attaching.FIRST_ANSWER_S - 0.1 <= made["run"]["stale_s"] <= time.time() - stage.run.created_at + 0.1
    assert reports.text(made).splitlines()[1].startswith("Stale    the hub does not answer; this is the state ")


def test_while_waiting_it_says_for_whom(stage):
    agent = subprocess.Popen([sys.executable, "-c", STARTS_TWO_RANKS], env=dict(os.environ), start_new_session=True)
    try:
        stage.save(agent=runs.Process.of(agent.pid))
        stage.hub()
        viewer = stage.viewer()
        viewer.until(lambda s: s.verdict.endswith("ranks 0-1 have not connected yet"), "two processes seen")
        stage.rank(1).join()
        snapshot = viewer.until(lambda s: "1/4 ranks connected" in s.verdict, "one connected")
        assert "ranks 2-3 have not started" in snapshot.verdict
        assert "rank 0 has not connected yet" in snapshot.verdict
        assert snapshot.state == "waiting"
    finally:
        os.killpg(agent.pid, signal.SIGKILL)
        agent.wait()


STARTS_TWO_RANKS = """
import os, subprocess
ranks = [subprocess.Popen(["sleep", "60"], env=os.environ | {"RANK": str(rank)}) for rank in (0, 1)]
ranks[0].wait()
"""


def test_a_hub_that_nobody_ends_any_more_ends_by_itself(stage):
    gone = subprocess.Popen(["true"])
    gone.wait()
    stage.save(supervisor=runs.Process(gone.pid, 1), created_at=time.time() - 60)
    hub = stage.hub()
    assert hub.wait(DEADLINE_S) == 0
    assert recorded_snapshot(stage.run).state == "lost"


def test_a_damaged_recording_is_put_aside_and_the_run_goes_on(stage):
    (stage.dir / "telemetry.db").write_bytes(b"this is no database" * 1000)
    stage.hub()
    rank = stage.rank(0)
    rank.join()
    rank.train(records(own_times(3, 1), first=1)[0])
    assert (stage.dir / "telemetry.damaged").exists()
    assert any(
        "ddpmon has moved the recording to telemetry.damaged, and started a new one" in event.text
        for event in stage.viewer().get().events
    )


@pytest.mark.parametrize("journal", ["none", "TRUNCATE", "WAL"])
def test_a_recording_that_a_killed_hub_had_only_begun_is_gone_on_with(stage, journal):
    path = stage.dir / "telemetry.db"
    path.touch()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        if journal != "none":
            db.execute(f"PRAGMA journal_mode={journal}")
            db.execute("BEGIN")
            db.execute("CREATE TABLE processes (rank INTEGER)")
        left = {each.name: each.read_bytes() for each in stage.dir.glob("telemetry.db*")}
    for name, content in left.items():
        (stage.dir / name).write_bytes(content)
    store, recorder = opening.open_recording(stage.run)
    recorder.record_event([Event(1.0, "info", "new")])
    recorder.write()
    recorder.close()
    assert not list(stage.dir.glob("*.damaged"))
    assert not store.events
    assert [event.text for event in recorded_snapshot(stage.run).events] == ["new"]


def test_a_recording_that_cannot_be_written_is_said_once_and_the_run_is_still_served(stage):
    (stage.dir / "telemetry.db").mkdir()
    (stage.dir / "telemetry.db" / "in the way").touch()
    (stage.dir / "telemetry.damaged").mkdir()
    (stage.dir / "telemetry.damaged" / "as well").touch()
    stage.hub()
    rank = stage.rank(0)
    rank.join()
    rank.batch(records(own_times(30, 1), first=1)[0])
    snapshot = stage.viewer().until(lambda s: s.step == 30, "it is served")
    said = [event.text for event in snapshot.events if "cannot write the recording" in event.text]
    assert len(said) == 1
    assert snapshot.records_lost == 0  # they wait: the rank was told of nothing that is not on disk


def test_a_fault_in_judging_costs_neither_the_recording_nor_the_view(stage, tmp_path):
    fault = "import ddpmon.store.store\ndef all_findings(*_): raise IndexError('of our own')\n"
    (tmp_path / "sitecustomize.py").write_text(f"{fault}ddpmon.store.store.all_findings = all_findings\n")
    stage.save(world_size=2)
    hub = stage.hub(before=["env", f"PYTHONPATH={tmp_path}"])
    train(stage, slow=1)
    said = "ddpmon's analysis of the run failed: IndexError: of our own"
    shot = stage.viewer().until(lambda s: s.step == 60 and any(said in event.text for event in s.events), "the event")
    assert [event.text for event in shot.events].count(said) == 1
    assert "findings are out of date, because ddpmon's analysis failed (IndexError: of our own)" in shot.notes
    stage.end(exit_code=0)
    assert hub.wait(DEADLINE_S) == 0, stage.log()
    assert stage.log().count("IndexError: of our own") == 1
    made = json.loads((stage.dir / "report.json").read_text())
    assert (made["run"]["state"], made["steps"]["count"]) == ("done", 60)
    (stage.dir / "logs" / "hub.log").unlink()  # no test ends well with a traceback in it


def test_signals_of_a_terminal_do_not_reach_it(stage):
    hub = stage.hub()
    for number in (signal.SIGHUP, signal.SIGINT):
        hub.send_signal(number)
    stage.rank(0).join()
    assert hub.poll() is None


def test_a_hub_that_is_told_to_end_as_it_begins_still_writes_the_report(stage):
    stage.save(ended_at=time.time(), exit_code=0)
    keeper = HubKeeper(stage.run.id, print)
    assert keeper.start_if_due(0.0)
    os.kill(keeper.process.pid, signal.SIGTERM)  # long before there is a handler for it
    assert os.waitstatus_to_exitcode(os.waitpid(keeper.process.pid, 0)[1]) == 0, stage.log()
    assert json.loads((stage.dir / "report.json").read_text())["run"]["state"] == "done"


def test_sigterm_in_the_middle_of_a_run_leaves_a_recording_to_go_on_from(stage):
    hub = stage.hub()
    rank = stage.rank(0)
    rank.join()
    rank.train(records(own_times(30, 1), first=1)[0])
    hub.send_signal(signal.SIGTERM)
    assert hub.wait(DEADLINE_S) == 0
    assert not (stage.dir / "report.json").exists()
    with Recording(stage.run) as recording:
        assert restored_store(recording).step == 30
    stage.hub()
    rank.batch()
    rank.join()


def test_sockets_that_were_gone_as_soon_as_they_were_bound_are_bound_again(home):
    sockets = Sockets("r")
    paths = [Path(address("r").removeprefix("ipc://")) for address in (runs.ingest_address, runs.view_address)]
    try:
        assert not sockets.rebind_deleted()
        for path in paths:
            path.unlink()
        sockets._inodes = sockets._read_inodes()  # as where ZeroMQ unlinks late what it was unbound from
        assert sockets.rebind_deleted()
        assert all(path.exists() for path in paths)
    finally:
        sockets.close()
