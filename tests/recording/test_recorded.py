"""What a report reads of a recording, and what a run shows at its end."""

import math
import sqlite3

import numpy as np
import pytest

from ddpmon.cli.replaying import unpack
from ddpmon.recording import recorded
from ddpmon.recording.player import Player
from ddpmon.recording.recorded import recorded_snapshot
from ddpmon.recording.recording import recording_path
from tests.recordings import record
from tests.two_hosts import FIRST_US, Root
from tests.worlds import own_times, records


@pytest.mark.parametrize(("step_ms", "readings"), [(30, 1), (2000, 2)])
def test_a_run_whose_end_is_all_of_it_is_read_once(home, monkeypatch, step_ms, readings):
    root = Root(ranks=2, here=2)
    for rank in range(2):
        root.join(rank)
    slower = step_ms / 27
    told = records(own_times(60, 2, noise=0.02) * slower, transfer=6.0 * slower, first=1, start_us=FIRST_US)
    root.train(told, 1, 60)
    run = root.end()
    read = []
    monkeypatch.setattr(
        recorded, "judged_store", lambda *args, real=recorded.judged_store: read.append(args) or real(*args)
    )
    assert recorded.recorded_report(run)["steps"]["count"] == 60
    assert len(read) == readings


@pytest.mark.parametrize("hub_saw_the_end", [True, False])
def test_at_its_end_a_run_that_was_late_before_the_last_steps_was_so_since_then_and_its_end_is_told_once(
    home, hub_saw_the_end
):
    run = unpack()
    with sqlite3.connect(recording_path(run.id)) as database:
        if not hub_saw_the_end:
            database.execute("DELETE FROM events WHERE at >= ?", (run.ended_at,))
    database.close()
    player = Player(run)
    for end in (recorded_snapshot(run), player.at(player.end)):
        (finding,) = end.findings
        assert (finding.since_step, finding.until_step) == (450, 800)
        told = [event.text for event in end.events]
        assert [text.split(":")[0] for text in told] == [
            "all 4 ranks connected", "first step after 12 s", "rank 2 is slow",
            "rank 2 keeps up again; it cost 10.5 s", "done",
        ]  # fmt: skip
    player.close()


def test_a_loss_that_is_not_finite_is_told_of_its_first_step_however_little_of_the_run_is_read(home):
    loss = np.ones((800, 2))
    loss[25:], loss[100:] = math.inf, math.nan
    run = record(own_times(800, 2), loss=loss)
    player = Player(run)
    (reported,) = recorded.recorded_report(run)["findings"]
    assert (reported["kind"], reported["since_step"], reported["evidence"]["value"]) == ("loss_not_finite", 26, "inf")
    for shot in (recorded_snapshot(run), player.at(player.end)):
        assert [finding.text for finding in shot.findings] == [reported["text"]]
    player.close()
