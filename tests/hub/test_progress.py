"""Test how many steps and epochs are planned: from the messages of ranks to screen, status and report."""

import json

from ddpmon.export import report
from ddpmon.recording.recorded import recorded_snapshot
from tests.worlds import own_times, records


def test_total_and_epochs_reach_screen_recording_and_report(stage, cli):
    told = records(own_times(60, 2), first=1)
    ranks = stage.start()
    # The second rank shows no bar: it knows the epoch alone.
    ranks[0].batch(told[0], total_steps=180, epoch=1, epochs=3)
    ranks[1].batch(told[1], epoch=1)
    viewer = stage.viewer()
    shot = viewer.until(lambda s: s.step == 60 and s.total_steps, "the total")
    assert (shot.total_steps, shot.training_epoch, shot.training_epochs) == (180, 1, 3)
    assert shot.eta_s is not None
    facts = json.loads(cli("status", "--json").stdout)
    assert (facts["step"], facts["total_steps"], facts["epoch"], facts["epochs"]) == (60, 180, 1, 3)
    assert "step 60/180" in cli("status").stdout
    assert "epoch 1/3" in cli("status").stdout

    ranks[0].batch(total_steps=180, epoch=2, epochs=3)
    ranks[0].acknowledged(2)
    viewer.until(lambda s: s.training_epoch == 2, "the second epoch")
    for rank in ranks:
        rank.leave()
    stage.finish()
    shot = recorded_snapshot(stage.run)
    assert (shot.total_steps, shot.training_epoch, shot.training_epochs) == (180, 2, 3)
    made = report.build(stage.run)
    steps = made["steps"]
    assert (steps["count"], steps["total"], steps["epoch"], steps["epochs"]) == (60, 180, 2, 3)
    assert "steps 60 of 180 (epoch 2 of 3), means over" in report.text(made)


def test_a_total_that_is_passed_or_taken_back_is_not_shown(stage):
    (told,) = records(own_times(40, 1), first=1).values()
    (rank,) = stage.start(1)
    viewer = stage.viewer()
    rank.batch(told[:20], total_steps=30)
    viewer.until(lambda s: s.step == 20 and s.total_steps == 30, "the total")
    rank.batch(told[20:], total_steps=30)
    shot = viewer.until(lambda s: s.step == 40, "all steps")
    assert (shot.total_steps, shot.eta_s) == (None, None)
    rank.batch(total_steps=50)
    viewer.until(lambda s: s.total_steps == 50, "a better total")
    rank.batch()
    shot = viewer.until(lambda s: s.total_steps is None, "the total is taken back")
    assert shot.eta_s is None
