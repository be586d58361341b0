"""ddpmon stack: where every rank is, of a run that goes on, one that stands still, and one that cannot be asked."""

from __future__ import annotations

import json
import os
import signal

import psutil
import pytest

from ddpmon import runs
from ddpmon.cli import asking, reaching
from ddpmon.cli.commands import stacking
from ddpmon.export import stacks
from ddpmon.messages import Collective, Stack, StackView
from tests.conftest import wait_for
from tests.hub.standing import hangs, watch

__all__ = ["watch"]  # a fixture


def test_without_a_name_it_asks_the_latest_run_that_has_not_ended(made, living):
    running = made(ended_at=None, exit_code=None, supervisor=living)
    ended = made()
    assert reaching.find_running(None).id == running.id
    assert reaching.find_running(ended.id).id == ended.id


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_every_rank_says_where_it_is_one_that_holds_the_gil_and_one_that_was_stopped_too(watch, cli):
    watched = watch()
    while_it_goes_on(watched, cli)
    pipe = watched.folder / "lock-1.pipe"
    os.mkfifo(pipe)
    watched.stand("lock-1")
    the_hub_names_the_line_of_who_holds_the_gil(watched)
    told = cli("stack")
    assert told.returncode == 0
    first, *_ = told.stdout.split("\n\n")
    assert first.startswith("rank 1 in standing.py:")
    assert "keeps_the_lock" in first
    assert "ranks 0, 2 wait in DDP's gradient all-reduce" in told.stdout
    (watched.folder / "lock-1.end").touch()
    pipe.write_bytes(b"x")
    watched.trains()
    pid = watched.source.snapshot().ranks[0].pid
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    told = cli("stack", "--rank", "0")
    os.kill(pid, signal.SIGCONT)
    assert told.returncode == 1
    assert told.stdout.splitlines()[0] == f"rank 0 is stopped (SIGSTOP or Ctrl-Z). Resume it: kill -CONT {pid}"


def the_hub_names_the_line_of_who_holds_the_gil(watched):
    shot = watched.until(lambda s: " in standing.py:" in s.verdict, "its line")
    (finding,) = hangs(shot)
    assert (finding.ranks, finding.severity, finding.evidence["silent"]) == ([1], "critical", [1])
    assert finding.text.startswith("rank 1 is silent though its process is alive: in standing.py:")
    assert any(frame.endswith(" keeps_the_lock") for frame in shot.ranks[1].stack.frames)


def while_it_goes_on(watched, cli):
    watched.until(lambda s: s.step >= 19, "steps")
    source = watched.source
    told = cli("stack")
    assert (told.returncode, told.stderr) == (0, "")
    assert "standing.py:" in told.stdout
    assert "<module>" in told.stdout
    facts = json.loads(cli("stack", "--json").stdout)["ranks"]
    assert [(rank["rank"], rank["answered"]) for rank in facts] == [(0, True), (1, True), (2, True)]
    assert all(any(frame.endswith(" main") for frame in rank["frames"]) for rank in facts)
    assert all(rank["age_s"] < 30 and rank["step"] >= 19 for rank in facts)
    assert source.snapshot().state in {"running", "slow"}
    one = cli("stack", "--rank", "2").stdout
    assert one.startswith("rank 2 ")
    assert "rank 0" not in one
    before = source.snapshot().step
    wait_for(lambda: source.snapshot().step > before + 20)
    none = cli("stack", "--rank", "3")
    assert (none.returncode, none.stdout) == (2, "")
    assert none.stderr.splitlines() == [f"ddpmon: --rank 3: the run test ({runs.find(None).id}) has ranks 0 to 2"]


def test_a_run_that_has_ended_cannot_be_asked(cli, made):
    run = made()
    told = cli("stack")
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr == (
        f"ddpmon: mnist ({run.id}) has ended (done), so no rank can answer; ddpmon report says how the run ended\n"
    )
    assert cli("stack", "nowhere").stderr == "ddpmon: no run 'nowhere'; ddpmon ls lists all runs\n"
    assert "Usage" not in cli("stack", "--rank", "-1").stdout
    assert cli("stack", "--rank", "-1").returncode == 2


def test_a_hub_that_does_not_answer_is_one_line(made, living, monkeypatch):
    from click.testing import CliRunner

    made(ended_at=None, exit_code=None, supervisor=living)
    monkeypatch.setattr(asking, "HUB_S", 0.1)
    told = CliRunner().invoke(stacking.stack, [])
    assert "does not answer; see logs/hub.log" in str(told.exception)


def stack_of(rank, *frames, own=0, waits=None):
    return Stack(
        rank, 900 + rank, 0, 12, 0, 2, list(frames), own, Collective(waits) if waits else None, waits is not None
    )  # fmt: skip


def test_identical_stacks_are_told_once_and_the_odd_one_first():
    told = [StackView(r, stack_of(r, "train.py:12 main", waits="all_reduce"), 100.0) for r in range(8)]
    told[5] = StackView(5, stack_of(5, "torch/x.py:3 read", "data.py:4 load\x1b[2J", own=1), 100.0)
    told[6] = StackView(6, stack_of(6, "train.py:9 main"), 60.0, why="a debugger holds rank 6")
    told[7] = StackView(7, why="rank 7 sends nothing to this machine")
    told.append(StackView(8, stack_of(8, "slow_module.py:1 <module>"), 95.0, steps_since=1280))
    fresh = set(range(6))
    assert stacks.text(told, fresh, 8, 101.0) == [
        "rank 5 in data.py:4 load",
        "    torch/x.py:3 read",
        "  › data.py:4 load",
        "",
        "ranks 0-4 wait in all_reduce, from train.py:12 main",
        "  › train.py:12 main",
        "",
        "a debugger holds rank 6",
        "  the last known stack of this rank, 41 s ago:",
        "  › train.py:9 main",
        "",
        "rank 7 sends nothing to this machine",
        "",
        "rank 8 did not answer the request for its stack",
    ]
    facts = stacks.facts(told, fresh, 101.0)
    assert facts[7] == {"rank": 7, "why": "rank 7 sends nothing to this machine", "frames": None, "answered": False}
    assert facts[8] == {"rank": 8, "why": None, "frames": None, "answered": False}
    assert (facts[5]["own_frame"], facts[5]["waits"], facts[5]["phase"]) == (1, False, "backward")


def test_a_rank_without_any_python_code_is_no_error():
    assert stacks.text([StackView(0, stack_of(0, own=None), 1.0)], {0}, 1, 1.0) == ["rank 0 in no Python code"]
