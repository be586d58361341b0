"""Recordings of every schema there ever was: each is reported, played, charted, exported and gone on with."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from ddpmon.cli.exporting import export
from ddpmon.export import report
from ddpmon.hub import opening
from ddpmon.messages import Event, SeriesWish, Wish
from ddpmon.recording.player import Player
from ddpmon.recording.recorded import recorded_snapshot
from ddpmon.recording.recording import recording_path
from ddpmon.source import RecordedSource
from tests import recorded

STEPS = 60
"""Of each of the two ranks, since they were restarted after ten."""


@pytest.fixture(params=recorded.NAMES)
def older(request, home):
    return recorded.unpacked(request.param)


def test_its_report_is_whole(older):
    made = report.build(older)
    assert (made["run"]["state"], made["run"]["world_size"], made["run"]["restarts"]) == ("done", 2, 1)
    assert (made["steps"]["count"], made["steps"]["records_lost"]) == (STEPS, 0)
    assert [rank["steps"] for rank in made["ranks"]] == [STEPS, STEPS]
    assert 30 < made["steps"]["step_ms"]["mean"] < 50
    assert made["ranks"][0]["phases_ms"]["wait"] > made["ranks"][1]["phases_ms"]["wait"]
    assert "damaged" not in report.text(made)


def test_it_plays_from_its_beginning_to_its_end(older):
    player = Player(older)
    before = player.at(player.begin + 0.1)
    middle = player.at((player.begin + player.end) / 2)
    last = player.at(player.end)
    player.close()
    assert before.state == "waiting"
    assert 0 < middle.step <= last.step == STEPS
    assert (last.state, last.verdict) == ("done", recorded_snapshot(older).verdict)
    assert not any("damaged" in note for note in last.notes)


def test_its_charts_are_whole(older):
    source = RecordedSource(older)
    names = source.snapshot().quantities
    assert {"loss", "step", "own", "wait", "transfer", "cpu", "rss"} <= set(names)
    for name in names:
        source.wish(Wish(series=SeriesWish(name)))
        told = source.snapshot().series
        assert any(value is not None for value in told.median), name
    source.wish(Wish(series=SeriesWish("own")))
    assert max(source.snapshot().series.steps) == STEPS
    source.close()


@pytest.mark.parametrize("form", ["csv", "perfetto", "openmetrics"])
def test_it_is_exported(older, form):
    done = CliRunner().invoke(export, ["--format", form])
    assert done.exit_code == 0, done.output
    if form == "csv":
        assert f",{STEPS}," in done.stdout.splitlines()[-1]
    elif form == "perfetto":
        assert json.loads(done.stdout)["traceEvents"]
    else:
        assert f'ddpmon_steps_total{{run="told",run_id="{older.id}"}} {STEPS}.0' in done.stdout


def test_a_hub_of_today_goes_on_with_it(older):
    store, recorder = opening.open_recording(older)
    assert store.step == STEPS
    assert not store.damaged
    recorder.event([Event(older.ended_at, "info", "a word of today")])
    recorder.close()
    assert recorder.trouble is None
    assert [path.name for path in recording_path(older.id).parent.glob("telemetry.*")] == ["telemetry.db"]
    assert "a word of today" in [event.text for event in recorded_snapshot(older).events]
    test_its_report_is_whole(older)
