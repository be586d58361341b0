"""Test what a report reads of a recording, and what a run shows at its end."""

import math
import sqlite3

import msgspec
import numpy as np
import pytest

from ddpmon.analysis.ledger import Judged
from ddpmon.analysis.over_time.heat import IN_NOISE
from ddpmon.cli.commands.replaying import unpack
from ddpmon.messages import WHOLE_RUN, SeriesRequest, ViewRequest
from ddpmon.messages.cells import NOTHING
from ddpmon.recording import recorded, restoring
from ddpmon.recording.player import Player
from ddpmon.recording.recorded import recorded_snapshot
from ddpmon.recording.recording import Recording, recording_path
from ddpmon.source.recorded import RecordedSource
from ddpmon.store.store import Store
from tests.recordings import record
from tests.two_hosts import BEGAN, FIRST_US, Root
from tests.worlds import own_times, records


def watched(own):
    """A run whose hub judged it twice a second; and by second what it showed of each finding."""
    ranks = own.shape[1]
    root = Root(ranks=ranks, here=ranks)
    for rank in range(ranks):
        root.join(rank)
    told = records(own, first=1, start_us=FIRST_US)
    shown, second = {}, FIRST_US / 1e6
    while second * 1e6 < told[0][-1].end_us:
        second += 0.5
        for rank, steps in told.items():
            if fresh := [step for step in steps if (second - 0.5) * 1e6 < step.end_us <= second * 1e6]:
                root.tell(rank, fresh)
        root.turn()
        root.store.judge(second, BEGAN + second)
        root.recorder.record_findings(root.store.ledger)
        shown[second] = facts(root.store.findings)
    run = root.end(judge=True)
    return run, shown, facts(root.store.findings), root.store.verdict.text


def facts(findings):
    return [(f.kind, f.severity, f.ranks, f.phase, f.since_step, f.until_step, f.text) for f in findings]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """A run with two bursts of one rank, long before its last 600 steps, and what its hub showed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DDPMON_HOME", str(tmp_path_factory.mktemp("home")))
        own = own_times(1000, 3, noise=0.02)
        own[60:160, 1, 0] += 20
        own[260:360, 1, 0] += 20
        yield watched(own)


def assert_both_bursts(finding):
    assert [(episode["since_step"], episode["until_step"]) for episode in finding["episodes"]] == [
        (pytest.approx(61, abs=2), pytest.approx(160, abs=4)),
        (pytest.approx(261, abs=5), pytest.approx(360, abs=4)),
    ]


def test_the_recording_that_ships_with_ddpmon_is_whole(home):
    """A reader would note a part that it cannot decode on the screen Findings of the demo."""
    assert not restoring.restored_store(Recording(unpack())).damaged


def test_report_ended_dashboard_and_replay_show_what_the_hub_showed_and_judge_nothing(seen, monkeypatch):
    run, live, at_end, verdict = seen
    (finding,) = at_end
    assert finding[:4] == ("straggler", "warn", [1], "data")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "judge", lambda *_: pytest.fail("judged again"))
        report = recorded.recorded_report(run)
        ended = recorded_snapshot(run)
        assert facts(ended.findings) == at_end
        assert ended.window == (401, 1000), "its means are of the last window"
        player = Player(run)
        assert facts(player.snapshot_at(player.end).findings) == at_end
        for second, shown in live.items():
            replayed = facts(player.snapshot_at(BEGAN + second).findings) if second % 6 == 0 else shown
            assert [(f[0], *f[2:4]) for f in replayed] == [(f[0], *f[2:4]) for f in shown]
            assert [f[5] for f in replayed] == [f[5] for f in shown]
        player.close()
    assert report["verdict"] == verdict
    assert "; 2 times, 4." in verdict or "; 2 times, 3.9" in verdict
    (reported,) = report["findings"]
    assert_both_bursts(reported)
    assert reported["cost_s"] == pytest.approx(0.2 * 20 - 0.1, abs=0.2)


@pytest.mark.parametrize("judged", ["until its hub was killed", "nothing"])
def test_what_no_hub_judged_is_judged_as_it_would_have(seen, judged):
    """No test after these two sees the recording, which they change."""
    run, _, at_end, _ = seen
    with sqlite3.connect(recording_path(run.id)) as database:
        if judged == "nothing":
            database.execute("DROP TABLE findings")
            database.execute("DELETE FROM checkpoints WHERE name = 'judged'")
        else:
            blob = msgspec.msgpack.encode(Judged(0, 200, over=False))
            database.execute("UPDATE checkpoints SET value = ? WHERE name = 'judged'", (blob,))
    database.close()
    assert [f[:4] for f in facts(recorded_snapshot(run).findings)] == [f[:4] for f in at_end]
    (finding,) = recorded.recorded_report(run)["findings"]
    assert_both_bursts(finding)


def test_a_fault_in_judging_what_no_hub_judged_is_noted(home, monkeypatch):
    run = record(own_times(60, 2), judged="")

    def fault(*_):
        raise IndexError("of our own")

    monkeypatch.setattr("ddpmon.store.store.SURVIVED", (Exception,))
    monkeypatch.setattr("ddpmon.store.store.all_findings", fault)
    notes = recorded_snapshot(run).notes
    assert "findings are out of date, because ddpmon's analysis failed (IndexError: of our own)" in notes
    assert "IndexError: of our own" in recorded.recorded_store(run).fault


@pytest.mark.parametrize("hub_saw_the_end", [True, False])
def test_at_its_end_a_run_that_was_late_before_the_last_steps_was_so_since_then_and_its_end_is_told_once(
    home, hub_saw_the_end
):
    run = unpack()
    with sqlite3.connect(recording_path(run.id)) as database:
        if not hub_saw_the_end:
            database.execute("DELETE FROM events WHERE at >= ?", (run.ended_at,))
            blob = msgspec.msgpack.encode(Judged(0, 1200, over=False))
            database.execute("UPDATE checkpoints SET value = ? WHERE name = 'judged'", (blob,))
    database.close()
    player = Player(run)
    for end in (recorded_snapshot(run), player.snapshot_at(player.end)):
        (finding,) = end.findings
        assert (finding.since_step, finding.until_step) == (450, pytest.approx(796, abs=5))
        told = [event.text for event in end.events]
        assert [text.split(":")[0] for text in told] == [
            "all 4 ranks connected", "first step after 12 s", "rank 2 is slow",
            "rank 2 has recovered; it cost 10.5 s", "done",
        ]  # fmt: skip
    player.close()


def test_a_loss_that_is_not_finite_is_told_of_its_first_step_however_little_of_the_run_is_read(home):
    loss = np.ones((700, 2))
    loss[25:], loss[100:] = math.inf, math.nan
    run = record(own_times(700, 2), loss=loss)
    player = Player(run)
    (reported,) = recorded.recorded_report(run)["findings"]
    assert (reported["kind"], reported["since_step"], reported["evidence"]["value"]) == ("loss_not_finite", 26, "inf")
    for shot in (recorded_snapshot(run), player.snapshot_at(player.end)):
        assert [finding.text for finding in shot.findings] == [reported["text"]]
    player.close()


@pytest.mark.parametrize("budget", [100_000, 2_000])
def test_the_heat_of_a_run_that_has_ended_is_of_all_of_it_or_of_some_steps_of_each_part(home, monkeypatch, budget):
    monkeypatch.setattr(restoring, "HEAT_RECORDS", budget)
    own = own_times(3000, 2)
    own[900:, 1, 0] += 9.0
    run = record(own)
    ended, player = RecordedSource(run), Player(run)
    view_request = ViewRequest(
        heat=SeriesRequest(("own",), per_column=WHOLE_RUN, rows=2, columns=94, beyond_chance=True)
    )
    ended.request_view(view_request)
    shown = [ended.snapshot().heat]
    if budget < 3000:
        shown.append(player.snapshot_at(player.end, view_request).heat)
    for heat in shown:
        assert (heat.steps, heat.first, heat.columns, heat.last_step) == (32, 0, 94, 3000)
        first, late = heat.cells[:94], heat.cells[94:]
        assert NOTHING not in heat.cells
        assert set(first) == {IN_NOISE}
        assert max(late[: 900 // 32 - 1]) == IN_NOISE
        assert min(late[900 // 32 + 1 :]) > IN_NOISE
        assert heat.moments[0] < heat.moments[3] < heat.moments[-1]
    player.close()
