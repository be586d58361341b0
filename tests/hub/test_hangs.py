"""Real ranks that stand still: who it is and where is named in time, and forgotten once they go on.

A run has two or three of them, one after the other: each takes half as long again to be called one as the last did.
"""

import os
import signal
from pathlib import Path

import pytest

from ddpmon import runs, source
from ddpmon.export import report
from ddpmon.launch import stop
from tests.conftest import wait_for
from tests.hub.standing import hangs, watch
from tests.ranks import launcher

__all__ = ["watch"]  # a fixture

SCRIPTS = Path(__file__).parents[1] / "probe" / "scripts"
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_a_hang_in_the_very_first_step_is_named_and_later_ones_are_in_report_and_exports(watch, cli):
    watched = watch("sleep-1")
    in_the_very_first_step(watched)
    in_a_place_of_the_script(watched, "spin-2", "goes_in_circles")
    told_in_report_and_exports_while_it_runs_and_once_it_was_stopped(watched, cli)


def test_a_rank_whose_workers_bring_nothing_is_named_and_one_that_was_stopped_is_told_as_such(watch):
    watched = watch()
    stopped_by_a_signal(watched)
    in_workers_that_bring_nothing(watched)


def test_a_rank_that_ran_out_of_batches_is_named_though_both_wait(launch):
    started = launch(*launcher(2, SCRIPTS / "uneven.py", "apart"))
    watched = source.LiveSource(started.run)
    # On a busy machine the run, which trains for less than a second, may stand still before both ranks are heard.
    shot = wait_for(lambda: (shot := watched.snapshot()) and "left the loop" in shot.verdict and shot, 180)
    (finding,) = hangs(shot)
    watched.close()
    stop.request_stop(started.run, now=True)
    started.until_gone()
    assert (finding.ranks, finding.evidence["waiting"], shot.verdict) == ([1], [0], finding.text)
    assert finding.text == "rank 1 left the loop: barrier in uneven.py:23 train"
    assert "DDP's gradient all-reduce, uneven.py:21 train, in the loop of line 19" in finding.advice
    (predicted,) = [one for one in shot.findings if one.kind == "uneven_batches"]
    assert (predicted.severity, predicted.ranks) == ("warn", [1])
    assert predicted.text == "rank 1 has 100 batches, others 140: may hang after batch 100"
    told = [one for one in report.build(runs.load(started.id))["findings"] if one["kind"] == "hang"]
    assert [one["ranks"] for one in told] == [[1]]


def in_the_very_first_step(watched):
    shot = watched.until(lambda s: s.state == "stalled", "a start that stands still")
    assert shot.step == 0
    (finding,) = hangs(shot)
    assert (finding.ranks, finding.severity, finding.since_step) == ([1], "critical", 1)
    assert shot.verdict.startswith("rank 1 does not reach DDP's gradient all-reduce: in standing.py:")
    watched.go_on("sleep-1")


def in_a_place_of_the_script(watched, how, function):
    rank = int(how[-1])
    others = [other for other in range(3) if other != rank]
    shot = watched.stand(how)
    (finding,) = hangs(shot)
    assert (finding.ranks, finding.severity, shot.state) == ([rank], "critical", "stalled")
    assert shot.verdict == finding.text
    assert f"rank {rank} does not reach DDP's gradient all-reduce: in standing.py:" in finding.text
    assert finding.text.endswith((function, " held"))  # `held` is called by both and lets other threads in
    assert finding.evidence["waiting"] == others
    assert [group["ranks"] for group in finding.evidence["stacks"]] == [[rank], others]
    assert any(function in frame for frame in shot.ranks[rank].stack.frames)
    assert all(shot.ranks[other].stack.blocked for other in others)
    seen = len(goes_on(shot))
    watched.go_on(how)
    watched.until(lambda s: len(goes_on(s)) > seen, "the event")


def goes_on(shot):
    return [event for event in shot.events if event.text == "steps go on"]


def in_workers_that_bring_nothing(watched):
    shot = watched.stand("workers-0")
    (finding,) = hangs(shot)
    pid = shot.ranks[0].stack.worker
    assert finding.ranks == [0]
    assert finding.text.startswith(f"rank 0 waits for DataLoader worker {pid}: ")
    assert any("dataloader.py" in frame for frame in shot.ranks[0].stack.frames)
    # It sleeps for 0.1 s and looks for a file, again and again: the line is one of these two.
    (finding,) = hangs(watched.until(lambda s: "without using a core" in s.verdict, "what the worker does"))
    assert f"worker {pid}: in standing.py:" in finding.text
    assert finding.text.endswith(", without using a core; ranks 1-2 wait in DDP's gradient all-reduce")
    assert finding.evidence["workers"]["0"]["pid"] == pid
    stop.request_stop(watched.started.run)
    ended = watched.started.until_gone(60)
    last = next(one for one in report.build(runs.load(ended.id))["findings"] if one["kind"] == "hang")
    assert f"worker {pid}: in standing.py:" in last["text"]


def stopped_by_a_signal(watched):
    pid = watched.until(lambda s: s.step >= 19, "steps").ranks[1].pid
    os.kill(pid, signal.SIGSTOP)
    shot = watched.until(lambda s: s.state == "stalled" and "stopped" in s.verdict, "a stopped rank")
    (finding,) = hangs(shot)
    assert (finding.ranks, finding.severity) == ([1], "critical")
    assert finding.advice == f"Resume it: kill -CONT {pid}"
    os.kill(pid, signal.SIGCONT)
    watched.trains()


def told_in_report_and_exports_while_it_runs_and_once_it_was_stopped(watched, cli):
    shot = watched.stand("sleep-0")
    made = report.build(watched.started.run)
    assert (made["run"]["state"], made["run"]["live_state"], made["run"]["stale_s"]) == ("running", "stalled", None)
    assert made["verdict"].startswith("rank 0 does not reach DDP's gradient all-reduce")
    hung = [(f["ranks"], f["until_step"]) for f in made["findings"] if f["kind"] == "hang"]
    assert [ranks for ranks, _ in hung] == [[0], [2], [1]]
    assert [until is None for _, until in hung] == [True, False, False]
    assert made["steps"]["window"] == [2, shot.step]
    assert report.text(made).splitlines()[0].endswith("stalled, 3 ranks")
    assert 'state="stalled"} 1.0' in cli("export", "--format", "openmetrics").stdout
    stop.request_stop(watched.started.run, now=True)
    ended = watched.started.until_gone()
    made = report.build(runs.load(ended.id))
    assert next(f for f in made["findings"] if f["kind"] == "hang")["ranks"] == [0]
    text = report.text(made)
    assert "rank 0 does not reach" in text
    assert "fell_asleep" in text
