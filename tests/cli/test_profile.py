"""ddpmon profile: operators of two ranks of a run that goes on, and what is said where none can be profiled."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from ddpmon import runs, source
from ddpmon.cli.commands import profiling
from ddpmon.errors import DdpmonError
from ddpmon.launch import stop
from ddpmon.messages import ProfiledRank, ProfileRequest, ProfileView
from tests.conftest import wait_for
from tests.fake_source import FakeSource
from tests.hub.conftest import until
from tests.ranks import TORCH, launcher
from tests.tui import snapshots

SCRIPT = Path(__file__).parents[1] / "probe" / "scripts" / "profiled.py"
STEPS = 10
"""Enough that one step in which another program takes the core decides nothing."""
BOTH = ("--ranks", "1,0", "--steps", str(STEPS))
LONGEST_S = 300


@pytest.fixture
def trains(launch, home):
    """Run of two ranks that train, and its source."""
    started = launch(*launcher(2, SCRIPT, str(home), modules=TORCH, timeout_s=900))
    live = source.LiveSource(started.run)
    until(lambda: (shot := live.snapshot()) and shot.step >= 10, "steps", LONGEST_S)
    yield started, live
    live.close()
    stop.request_stop(started.run, now=True)
    stop.wait_until_gone(started.run, 60)


class Beside(FakeSource):
    """A run of which somebody requests rank 1's profile at the same moment, a little earlier."""

    def ask(self, *_):
        own = [ProfiledRank(1, answered=True)]
        self.current = replace(self.current, profile=ProfileView(1, own, False, [], "", ProfileRequest((1,), 5)))


def test_of_two_requests_at_one_moment_the_second_gets_the_same_profile_or_is_refused(made):
    nothing = replace(snapshots.slow(), profile=ProfileView(0, [], False, []))
    assert profiling._profile(Beside(nothing), made(), [1], 5, flops=False).number == 1
    for ranks, steps in (([0], 5), ([], 5), ([1], 6)):
        with pytest.raises(DdpmonError, match="is being profiled already; try again in a minute"):
            profiling._profile(Beside(nothing), made(), ranks, steps, flops=False)


class Empty(FakeSource):
    """A run in which the hub finds no rank to profile."""

    def ask(self, *request):
        view = ProfileView(1, [], False, [], "", ProfileRequest(tuple(request[0]), request[1]))
        self.current = replace(self.current, profile=view)


def test_ranks_that_have_ended_are_told_apart_from_those_that_have_not_connected(made):
    nothing = replace(snapshots.slow(), profile=ProfileView(0, [], False, []))
    for pid, said in ((4_100_000, "all ranks of .* have ended, so none can be profiled"), (0, "is connected yet")):
        ranks = [replace(rank, pid=pid) for rank in nothing.ranks]
        with pytest.raises(DdpmonError, match=said):
            profiling._profile(Empty(replace(nothing, ranks=ranks)), made(), [], 5, flops=False)


@pytest.mark.e2e
@pytest.mark.timeout(1800)
def test_the_operator_of_the_slow_rank_comes_first_and_training_is_as_without(trains, cli, home, monkeypatch):
    started, live = trains
    told = cli("profile", *BOTH, "--json")
    assert told.returncode == 0, told.stderr
    facts = json.loads(told.stdout)
    first = facts["operators"][0]
    assert (first["name"], first["phase"], first["waits"]) == ("aten::mm", "forward", False)
    assert first["per_rank"]["1"]["self_cpu_ms"] > first["per_rank"]["0"]["self_cpu_ms"]
    assert first["per_rank"]["1"]["calls"] == 10
    assert [(one["rank"], one["why"]) for one in facts["ranks"]] == [(1, None), (0, None)]
    assert all(one["steps"][1] - one["steps"][0] == STEPS and one["cost_ms"] > 0 for one in facts["ranks"])
    the_trace_has_both_ranks_on_one_clock(Path(facts["trace"]))
    shot = until(lambda: (s := live.snapshot()) and s.times and s.times.counts.get("profiling") and s, "marked steps")
    assert not [finding for finding in shot.findings if finding.subject == "profiling"]
    operations_are_counted(cli, home, live, monkeypatch)
    the_scripts_own_profiler_is_left_alone(cli, home)
    none = cli("profile", "--ranks", "0,7")
    assert none.stderr.splitlines()[-1] == f"ddpmon: --ranks 7: test ({runs.find(None).id}) has ranks 0 to 1"
    (home / "end").touch()
    written = [home / f"same-{rank}" for rank in range(2)]
    wait_for(lambda: all(one.exists() and one.read_text() for one in written), LONGEST_S)
    assert {one.read_text().split()[0] for one in written} == {"True"}
    ranks_that_end_while_they_are_profiled_end_well(started, cli, home)


def the_trace_has_both_ranks_on_one_clock(path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    events = json.loads(path.read_text())["traceEvents"]
    tracks = {
        (event["pid"], event["args"]["name"])
        for event in events
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    assert {(rank + 1, name) for rank in range(2) for name in ("phases", "training thread")} <= tracks
    slices = [event for event in events if event["ph"] == "X"]
    for rank in range(2):
        names = {event["name"] for event in slices if event["pid"] == rank + 1}
        assert {"forward", "backward", "optimizer", "aten::addmm", "gradients"} <= names
    ends = [
        sorted(event["ts"] + event["dur"] for event in slices if event["name"] == "gradients" and event["pid"] == pid)
        for pid in (1, 2)
    ]
    # No rank leaves an all-reduce before the other one has come: on one clock the ranks' ends lie side by side.
    assert any(abs(mine - theirs) < 1_000_000 for mine in ends[0] for theirs in ends[1])
    assert min(event["ts"] for event in slices) >= 0


def operations_are_counted(cli, home, live, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    counted = ("profile", "--flops", "--ranks", "0,1", "--json")
    unknown = cli(*counted)
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("ddpmon: --flops: ddpmon does not know the peak of a CPU; set peak_tflops under")
    (home / "ddpmon").mkdir()
    (home / "ddpmon" / "config.toml").write_text("[gpu]\npeak_tflops = 0.5\n")
    told = cli(*counted)
    assert told.returncode == 0, told.stderr
    facts = json.loads(told.stdout)
    linear = 2 * 8 * 16 * 16 * 2 + 2 * 8 * 16 * 3  # the first layer's input needs no gradient
    assert [one["flops"] for one in facts["ranks"]] == [linear, linear + 10 * 2 * 500**3]
    assert all(one["steps"][1] - one["steps"][0] == 1 and 0 < one["mfu"] < 1 for one in facts["ranks"])
    assert (facts["operators"], facts["trace"]) == ([], None)
    until(lambda: (shot := live.snapshot()) and "log:mfu" in shot.quantities, "mfu", LONGEST_S)


def the_scripts_own_profiler_is_left_alone(cli, home):
    left = "the script uses torch.profiler itself; ddpmon left that alone and profiled nothing"
    (home / "own-later").touch()
    told = cli("profile", *BOTH)
    wait_for(lambda: all((home / f"profiles-itself-{rank}").exists() for rank in range(2)), LONGEST_S)
    assert (told.returncode, told.stdout.splitlines()) == (1, [f"rank 1: {left}", f"rank 0: {left}"])
    told = cli("profile", *BOTH)
    assert (told.returncode, told.stdout.splitlines()) == (1, [f"rank 1: {left}", f"rank 0: {left}"])
    (home / "own-later").unlink()
    (home / "own.end").touch()
    wait_for(lambda: all((home / f"profiled-itself-{rank}").exists() for rank in range(2)), LONGEST_S)
    assert cli("profile", *BOTH).returncode == 0


def ranks_that_end_while_they_are_profiled_end_well(started, cli, home):
    (home / "end-profiled").touch()
    told = cli("profile", "--steps", "50")
    why = "ended before its profile was finished"
    ends = told.stdout.splitlines() or told.stderr.splitlines()[-1:]
    assert all(why in line or "has ended" in line or "have ended" in line for line in ends), told
    stop.wait_until_gone(started.run, LONGEST_S)
    assert runs.load(started.run.id).exit_code == 0
    told = cli("profile")
    assert told.returncode == 1
    assert told.stderr.splitlines()[-1].startswith("ddpmon: test (")
    assert "has ended (done), so no rank can answer" in told.stderr


@pytest.mark.parametrize("ranks", ["x", "1,", "-1", "99999999999"])
def test_ranks_that_are_none_are_refused(cli, ranks):
    told = cli("profile", "--ranks", ranks)
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == f"ddpmon: {ranks} is no list of ranks: put commas between them, as in 2,0\n"
