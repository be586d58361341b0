"""ddpmon diff and the formats of ddpmon report, on recordings of made-up runs."""

from __future__ import annotations

import json

import pytest

from ddpmon.export.width import columns
from tests.recordings import record
from tests.worlds import own_times


def recorded(name, minute, *, late_ms=0.0, steps=200, seed=0):
    """A run of four ranks; late_ms: rank 2's data takes so much longer."""
    own = own_times(steps, 4, noise=0.05, seed=seed)
    own[:, 2, 0] += late_ms
    return record(own, id=f"20260909-12{minute:02}00-7f3a", name=name, created_at=1_789_000_000.0 + 60 * minute)


@pytest.fixture
def fixed(home):
    """A run with a late rank, and the one after the fix."""
    return recorded("before", 1, late_ms=20.0), recorded("after", 2, seed=1)


def test_the_first_line_says_whether_the_fix_helped(fixed, cli):
    told = cli("diff", "before", "after")
    assert (told.returncode, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert lines[0].startswith("B is 1.5")
    assert "as fast as A (95% 1.5" in lines[0]
    assert max(map(columns, lines)) <= 80
    assert any(line.startswith("Gone  rank 2 is slow: +20.0 ms data") for line in lines)
    assert cli("diff", "20260909-1201").stdout == told.stdout


def test_it_says_that_both_are_one_run_or_that_their_arguments_differ(fixed, cli):
    def noted(*runs):
        return json.loads(cli("diff", *runs, "--format", "json").stdout)["notes"]

    assert "A and B are the same run" in noted("before", "before")
    assert not any("arguments" in note or "same run" in note for note in noted("before", "after"))
    own = own_times(200, 4, noise=0.05)
    record(own, id="20260909-120300-7f3a", name="more", script_args=["--lr", "0.1", "--amp"])
    record(own, id="20260909-120400-7f3a", name="less", script_args=["--lr", "0.2"])
    assert "the arguments differ: A has --lr 0.1 --amp; B has --lr 0.2" in noted("more", "less")


def test_for_programs_it_is_json_and_for_people_elsewhere_markdown(fixed, cli):
    told = json.loads(cli("diff", "before", "after", "--format", "json").stdout)
    assert (told["schema"], told["outcome"], told["speed"]["unit"]) == (1, "faster", "steps")
    assert told["speed"]["median"]["low"] < told["speed"]["median"]["value"] < told["speed"]["median"]["high"]
    assert (told["a"]["name"], told["b"]["name"]) == ("before", "after")
    assert told["a"]["critical"] == {"rank": 2, "share": 1.0}
    assert told["loss"]["b_is"] == "alike"
    assert [finding["kind"] for finding in told["findings"]["gone"]] == ["straggler"]
    text = cli("diff", "before", "after", "--format", "md").stdout
    assert text.startswith(f"**{told['verdict']}.**\n".replace("[", r"\["))
    assert "| step ms, median |" in text
    assert cli("report", "before", "--format", "md").stdout.startswith("### before (20260909-120100-7f3a): done")


def test_a_slower_run_fails_only_if_it_is_asked_for_and_slower_than_allowed(fixed, cli):
    assert cli("diff", "after", "before").returncode == 0
    failed = cli("diff", "after", "before", "--fail-slower", "10")
    assert failed.returncode == 1
    assert failed.stdout.splitlines()[-1].startswith("FAIL: B is slower than A by at least 5")
    passed = cli("diff", "after", "before", "--fail-slower", "70")
    assert passed.returncode == 0
    assert passed.stdout.splitlines()[-1].startswith("PASS: ")
    assert cli("diff", "before", "after", "--fail-slower", "0", "--format", "json").returncode == 0
    slower = cli("diff", "after", "before", "--fail-slower", "10", "--format", "json")
    assert slower.returncode == 1
    assert json.loads(slower.stdout)["slower_by"] > 0.5


def test_a_run_that_is_named_twice_is_no_faster_than_itself(fixed, cli):
    told = cli("diff", "after", "after", "--fail-slower", "0")
    assert told.returncode == 0
    assert "steps show no significant difference" in told.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing argument 'A'"),
        (["nothing", "after"], "no run 'nothing'"),
        (["after", "nothing"], "no run 'nothing'"),
        (["2026", "after"], "2 run ids begin with 2026"),
        (["after"], "after is the latest run itself (20260909-120200-7f3a)"),
        (["before", "after", "more"], "unexpected extra argument"),
        (["before", "--fail-slower", "-1"], "--fail-slower"),
        (["before", "--fail-slower", "much"], "--fail-slower"),
        (["before", "--fail-slower", "nan"], "--fail-slower"),
        (["before", "--format", "html"], "--format"),
    ],
)
def test_what_cannot_be_compared_is_one_line_and_exit_2(fixed, cli, arguments, said):
    told = cli("diff", *arguments)
    assert (told.returncode, told.stdout) == (2, "")
    assert len(told.stderr.splitlines()) == 1
    assert told.stderr.startswith("ddpmon: ")
    assert said in told.stderr


def test_a_run_with_too_few_steps_or_none_or_no_recording_is_exit_2(home, cli, made):
    recorded("long", 1)
    recorded("short", 2, steps=20)
    made(name="never")
    made(name="lost", ended_at=None, exit_code=None)
    for name, said in (
        ("short", "has 19 recorded steps; a comparison needs 25"),
        ("never", "has 0 recorded steps"),
        ("lost", "lost has no recording: "),
    ):
        for pair in (("long", name), (name, "long")):
            told = cli("diff", *pair)
            assert (told.returncode, told.stdout) == (2, "")
            assert said in told.stderr
            assert len(told.stderr.splitlines()) == 1
