"""Ranks that were asked to end, and ranks that end by themselves while others train on."""

import time

import pytest

from ddpmon import runs
from ddpmon.export import report as reports
from ddpmon.messages import OWN_PHASES, Failure, encode
from ddpmon.recording.recorded import recorded_snapshot
from tests.worlds import own_times, records

PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:4021"
OMP = (
    "W1125 21:53:59.1 145 torch/distributed/run.py:852] Setting OMP_NUM_THREADS environment variable for each process\n"
)


def training(stage, kinds=("rank", "rank", "rank")):
    """Three ranks that have made twenty steps."""
    stage.save(world_size=3)
    stage.hub()
    told = records(own_times(20, 3), first=1)
    ranks = [getattr(stage, kind)(rank, world_size=3) for rank, kind in enumerate(kinds)]
    for rank in ranks:
        rank.join()
        rank.train(told[rank.rank])
    viewer = stage.viewer()
    viewer.until(lambda s: s.state in {"running", "slow"}, "it runs")
    return ranks, viewer


def raises(rank, error, trace=""):
    rank.socket.send(encode(Failure(rank.rank, rank.pid, time.monotonic_ns() // 1000, error, trace, rank.step)))


def test_a_stop_is_shown_as_one_and_what_ranks_raise_then_is_no_failure(stage):
    ranks, viewer = training(stage, ("rank", "rank", "rank_process"))
    stage.save(stopping=True, stopping_at=time.time())
    asked = viewer.until(lambda s: s.state == "stopping", "it stops")
    assert asked.verdict.startswith("stop requested: 0/3 ranks ended; the others have ")
    stage.save(grace_ended_at=time.time())
    killing = viewer.until(lambda s: "killed" in s.verdict, "the grace is over")
    assert killing.verdict == "stop requested: 0/3 ranks ended; the others are being killed"
    assert killing.run.kill_at <= killing.at
    for rank in ranks[:2]:
        raises(rank, "KeyboardInterrupt")
        rank.bye(seq=2)
    ranks[2].kill()
    stopping = viewer.until(lambda s: "3/3 ranks ended" in s.verdict, "all have ended")
    assert (stopping.state, stopping.severity, stopping.findings) == ("stopping", "info", [])
    assert reports.build(runs.load(stage.run.id))["run"]["live_state"] == "stopping"
    stage.finish(exit_code=1)
    last = recorded_snapshot(runs.load(stage.run.id))
    assert last.state == "stopped"
    assert not [finding for finding in last.findings if finding.kind == "rank_failed"]
    assert not [event.text for event in last.events if event.severity != "info"]
    assert not any("go on" in event.text for event in last.events)
    assert [rank.exit for rank in last.ranks] == [None, None, None]


def test_an_exception_from_before_the_stop_is_still_a_failure(stage):
    ranks, viewer = training(stage)
    raises(ranks[1], "ValueError: no such class")
    viewer.until(lambda s: s.findings, "it is found")
    stage.save(stopping=True, stopping_at=time.time())
    stopping = viewer.until(lambda s: s.state == "stopping", "it stops")
    assert [finding.text for finding in stopping.findings] == ["rank 1 failed: ValueError: no such class"]


def test_a_rank_that_left_before_the_stop_is_still_why_the_others_lost_it(stage):
    ranks, viewer = training(stage)
    ranks[2].bye()
    raises(ranks[0], PEER)
    found = viewer.until(lambda s: s.verdict.startswith("rank 2 failed"), "rank 2 is named")
    stage.save(stopping=True, stopping_at=time.time())
    viewer.until(lambda s: s.state == "stopping", "it stops")
    for rank in ranks[:2]:
        rank.bye(seq=2)
    stage.finish(exit_code=1)
    last = recorded_snapshot(runs.load(stage.run.id))
    assert last.state == "stopped"
    assert [(one.kind, one.text) for one in last.findings] == [("rank_failed", found.verdict)]


def test_a_killed_launcher_is_the_cause_and_its_warnings_are_not(stage):
    ranks, viewer = training(stage, ("rank", "rank", "rank_process"))
    (stage.dir / "logs" / "launcher.log").write_text(OMP)
    stage.save(launcher_killed_at=time.time())
    winding = viewer.until(lambda s: s.state == "stopping", "its ranks were asked to end")
    assert winding.severity == "critical"
    assert winding.verdict.startswith("torchrun was killed: stopping its ranks; 0/3 ranks ended")
    ranks[2].kill()
    raises(ranks[0], PEER)
    stage.finish(exit_code=137)
    last = recorded_snapshot(runs.load(stage.run.id))
    assert (last.state, last.verdict) == ("failed", "torchrun was ended by SIGKILL (exit 137)")
    assert not [finding for finding in last.findings if finding.kind == "rank_failed"]


def test_a_rank_that_left_is_named_at_once_and_its_last_words_at_the_end(stage):
    ranks, viewer = training(stage)
    raises(ranks[0], PEER)
    raises(ranks[2], PEER)
    ranks[1].bye()
    found = viewer.until(lambda s: s.verdict.startswith("rank 1"), "rank 1 is named")
    assert (
        found.verdict == "rank 1 failed: it exited after 20 steps without an exception, while the other ranks continued"
    )
    assert [(finding.kind, finding.severity, finding.ranks) for finding in found.findings] == [
        ("rank_failed", "critical", [1])
    ]
    folder = stage.dir / "logs" / "ranks" / "x" / "attempt_0" / "1"
    folder.mkdir(parents=True)
    (folder / "stderr.log").write_text("bad config: learning rate\n 15%|█▌ | 60/400 [00:01<00:07]\n")
    row = "[{}]:\n  rank : {} (local_rank: {})\n  exitcode : {} (pid: 9)\n"
    table = [row.format(0, 1, 1, 1), row.format(1, 0, 0, -15), row.format(2, 2, 2, -15)]
    (stage.dir / "logs" / "launcher.log").write_text(f"{OMP}Failures:\n{''.join(table)}")
    stage.finish(exit_code=1)
    last = recorded_snapshot(runs.load(stage.run.id))
    assert last.verdict == "rank 1 failed first: exit 1: bad config: learning rate; 2 others then stopped"


def test_a_rank_that_died_before_others_said_why_they_ended_is_named_by_the_order_of_ends(stage):
    ranks, viewer = training(stage, ("rank", "rank_process", "rank_process"))
    ranks[1].kill()
    raises(ranks[0], PEER)  # which makes the hub look for who is gone
    viewer.until(lambda s: s.findings, "it is found")
    ranks[2].kill()  # as a launcher ends the others
    viewer.until(lambda s: s.ranks[2].health == "dead", "the launcher ended the other")
    stage.save(world_size=0)  # another launcher than torchrun
    stage.finish(exit_code=1)
    last = recorded_snapshot(runs.load(stage.run.id))
    assert last.verdict.startswith("rank 1 failed first: it exited unexpectedly, as a killed process does")
    gone = [event.severity for event in last.events if event.text.endswith("exited unexpectedly")]
    assert gone == ["critical", "warn"]


def test_ranks_that_end_in_order_are_no_failure_whatever_their_launcher_does_next(stage):
    ranks, _ = training(stage)
    for rank in ranks:
        rank.bye()
    (stage.dir / "logs" / "launcher.log").write_text("train.sh: upload failed\n")
    stage.finish(exit_code=4)
    last = recorded_snapshot(runs.load(stage.run.id))
    assert last.verdict == "the command ended with exit 4: train.sh: upload failed"


def ends_ranks(stage, ranks, viewer):
    """Kill ranks one after the other; returns what is shown once all are dead."""
    for rank in ranks:
        rank.kill()
        viewer.until(lambda s, rank=rank: s.ranks[rank.rank].health == "dead", "it is dead")
    return viewer.get(viewer.get())


@pytest.mark.parametrize(("exit_code", "verdict"), [(0, "done"), (1, "rank 0 failed first: it exited unexpectedly")])
def test_ranks_that_a_launcher_kills_after_training_have_failed_only_if_it_says_so(stage, exit_code, verdict):
    ranks, viewer = training(stage, ("rank_process",) * 3)
    stage.save(world_size=0)  # another launcher than torchrun
    shot = ends_ranks(stage, ranks, viewer)
    assert [finding.kind for finding in shot.findings if finding.kind == "rank_failed"] == []
    assert {event.severity for event in shot.events if event.text.endswith("exited unexpectedly")} == {"info"}
    assert "failed" not in shot.verdict
    stage.finish(exit_code=exit_code)
    assert recorded_snapshot(runs.load(stage.run.id)).verdict.startswith(verdict)


def test_a_killed_rank_that_others_still_need_has_failed(stage):
    ranks, viewer = training(stage, ("rank", "rank_process", "rank"))
    ranks[0].batch(phase=OWN_PHASES.index("backward"))
    ranks[0].acknowledged(2)
    ranks[1].kill()
    shot = viewer.until(lambda s: s.verdict.startswith("rank 1 failed"), "rank 1 is named")
    assert [event.severity for event in shot.events if event.text.endswith("exited unexpectedly")] == ["critical"]
