"""Real ranks that stand still: who it is and where is named in time, and forgotten once they go on."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from ddpmon import runs, source
from ddpmon.export import report
from ddpmon.launch import stop

pytestmark = pytest.mark.e2e
SCRIPT = Path(__file__).parents[1] / "probe" / "scripts" / "standing.py"


class Watched:
    """A run of the script under a supervisor and a hub, seen as a viewer sees it."""

    def __init__(self, launch, folder, how, rank, nproc, step):
        self.marker = folder / "go-on"
        self.started = launch(
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(nproc)),
            *(str(SCRIPT), str(self.marker), "--how", how, "--rank", str(rank), "--step", str(step)),
        )
        self.source = source.LiveSource(self.started.run)

    def until(self, condition, what, seconds):
        deadline = time.monotonic() + seconds
        while not ((shot := self.source.snapshot()) and condition(shot)):
            told = (shot.state, shot.verdict, shot.step) if shot else None
            assert time.monotonic() < deadline, f"{what}: {told}"
            time.sleep(0.1)
        return shot

    def hang(self, seconds=60.0):
        """The finding, from the moment on that no more steps come."""
        self.until(lambda s: s.step >= 19, "the last step before", 60)
        return self.until(lambda s: any(f.kind == "hang" for f in s.findings), "a hang", seconds)


@pytest.fixture
def watch(launch, home):
    made = []

    def start(how, rank, nproc=3, step=20):
        made.append(Watched(launch, home, how, rank, nproc, step))
        return made[-1]

    yield start
    for one in made:
        one.source.close()
        stop.request(one.started.run, now=True)
        stop.wait_until_gone(one.started.run, 30)


@pytest.mark.parametrize(
    ("how", "function"), [("sleep", "fell_asleep"), ("spin", "goes_in_circles"), ("data", "fell_asleep")]
)
def test_a_rank_that_stands_still_is_named_with_its_line_and_forgotten_when_it_goes_on(watch, how, function):
    watched = watch(how, rank=1)
    shot = watched.hang()
    (finding,) = [f for f in shot.findings if f.kind == "hang"]
    assert (finding.ranks, finding.severity, shot.state) == ([1], "critical", "stalled")
    assert shot.verdict == finding.text
    assert "rank 1 does not reach DDP's gradient all-reduce: in standing.py:" in finding.text
    assert finding.text.endswith((function, " held"))  # `held` is called by both and lets other threads in
    assert finding.evidence["waiting"] == [0, 2]
    assert [group["ranks"] for group in finding.evidence["stacks"]] == [[1], [0, 2]]
    assert any(function in frame for frame in shot.ranks[1].stack.frames)
    assert shot.ranks[0].stack.blocked
    watched.marker.touch()
    after = watched.until(lambda s: s.state in {"running", "slow"} and s.step > 40, "going on", 30)
    assert not [f for f in after.findings if f.kind == "hang"]
    assert any(event.text == "steps go on" for event in after.events)


def test_a_rank_whose_workers_bring_nothing_is_named(watch):
    watched = watch("workers", rank=0, nproc=2)
    shot = watched.hang()
    (finding,) = [f for f in shot.findings if f.kind == "hang"]
    assert finding.ranks == [0]
    assert "standing.py" in finding.text
    assert "main" in finding.text
    assert any("dataloader.py" in frame for frame in shot.ranks[0].stack.frames)
    watched.marker.touch()
    watched.until(lambda s: s.step > 40, "going on", 30)


def test_a_rank_that_holds_the_gil_is_named_with_its_line(watch, home):
    os.mkfifo(home / "go-on.pipe")
    watched = watch("lock", rank=1)
    watched.hang()
    shot = watched.until(lambda s: " in standing.py:" in s.verdict, "its line", 30)
    (finding,) = [f for f in shot.findings if f.kind == "hang"]
    assert (finding.ranks, finding.severity, finding.evidence["silent"]) == ([1], "critical", [1])
    assert finding.text.startswith("rank 1 is not heard though its process lives: in standing.py:")
    assert any(frame.endswith(" keeps_the_lock") for frame in shot.ranks[1].stack.frames)
    (home / "go-on.pipe").write_bytes(b"x")
    watched.until(lambda s: s.state in {"running", "slow"} and s.step > 40, "going on", 30)


def test_a_rank_that_was_stopped_is_told_as_such_and_goes_on(watch):
    watched = watch("nothing", rank=1)
    pid = watched.until(lambda s: s.step >= 19, "steps", 60).ranks[1].pid
    os.kill(pid, signal.SIGSTOP)
    shot = watched.until(lambda s: s.state == "stalled" and "stopped" in s.verdict, "a stopped rank", 30)
    (finding,) = [f for f in shot.findings if f.kind == "hang"]
    assert (finding.ranks, finding.severity) == ([1], "critical")
    assert finding.advice == f"Have it go on: kill -CONT {pid}"
    os.kill(pid, signal.SIGCONT)
    watched.until(lambda s: s.state in {"running", "slow"} and s.step > shot.step + 20, "going on", 30)


def test_a_hang_in_the_very_first_step_is_named(watch):
    watched = watch("sleep", rank=1, nproc=2, step=1)
    shot = watched.until(lambda s: s.state == "stalled", "a start that stands still", 90)
    assert shot.step == 0
    (finding,) = [f for f in shot.findings if f.kind == "hang"]
    assert (finding.ranks, finding.severity, finding.since_step) == ([1], "critical", 1)
    assert shot.verdict.startswith("rank 1 does not reach DDP's gradient all-reduce: in standing.py:")
    watched.marker.touch()
    after = watched.until(lambda s: s.state in {"running", "slow"} and s.step > 20, "training", 30)
    assert not [f for f in after.findings if f.kind == "hang"]


def test_a_run_that_stands_still_says_so_in_its_report_and_exports_while_it_runs_and_once_it_was_stopped(watch, cli):
    watched = watch("sleep", rank=2)
    shot = watched.hang()
    made = report.build(watched.started.run)
    assert (made["run"]["state"], made["run"]["live_state"], made["run"]["stale_s"]) == ("running", "stalled", None)
    assert made["verdict"].startswith("rank 2 does not reach DDP's gradient all-reduce")
    assert [f["ranks"] for f in made["findings"] if f["kind"] == "hang"] == [[2]]
    assert made["steps"]["window"] == [2, shot.step]
    assert report.text(made).splitlines()[0].endswith("stalled, 3 ranks")
    assert 'state="stalled"} 1.0' in cli("export", "--format", "openmetrics").stdout
    stop.request(watched.started.run, now=True)
    ended = watched.started.until_gone()
    made = report.build(runs.load(ended.id))
    (finding,) = [f for f in made["findings"] if f["kind"] == "hang"]
    assert finding["ranks"] == [2]
    text = report.text(made)
    assert "rank 2 does not reach" in text
    assert "fell_asleep" in text
