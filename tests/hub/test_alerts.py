"""--on-alert: a program of the user's is told once of what needs a look, and cannot harm the hub."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from ddpmon import runs
from ddpmon.hub import alerts
from tests.conftest import wait_for
from tests.hub.conftest import Rank, until
from tests.worlds import own_times, records

KEEPS = "import pathlib, sys; pathlib.Path(sys.argv[1]).open('a').write(sys.stdin.read())"


def told(path):
    """Return the messages that the program received, oldest first."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def train(stage, first, last, late_from=1):
    """Two ranks, 33 ms a step; from a step on rank 1 is late by 30 ms in each. The steps from `first` to `last`."""
    own = own_times(400, 2)
    own[late_from - 1 :, 1, 0] += 30.0
    story = records(own, first=1)
    ranks = [peer for peer in stage.peers if isinstance(peer, Rank)]
    for begin in range(first - 1, last, 20):
        for rank in ranks:
            rank.batch(story[rank.rank][begin : min(begin + 20, last)])
    for rank in ranks:
        rank.acknowledged(rank.seq)


@pytest.fixture
def hub(stage, tmp_path):
    """A hub of two ranks that have joined; its program keeps what it is told."""
    stage.save(on_alert=[sys.executable, "-c", KEEPS, str(tmp_path / "told")], cwd=str(tmp_path))
    stage.start()
    return stage.hubs[-1]


def test_a_straggler_is_told_once_with_its_finding_and_a_failure_too(stage, hub, tmp_path):
    train(stage, 1, 200)
    (alert,) = until(lambda: told(tmp_path / "told"), "an alert")
    finding = alert.pop("finding")
    assert (finding["kind"], finding["ranks"], finding["phase"]) == ("straggler", [1], "data")
    assert alert["sentence"] == finding["text"]
    assert alert["run"] == {"id": stage.run.id, "name": "made-up", "script": "train.py", "host": stage.run.host}
    assert (alert["schema"], alert["state"], alert["severity"]) == (1, "slow", "warn")
    assert finding["since_step"] <= alert["step"] <= 200
    train(stage, 201, 400)
    stage.viewer().until(lambda s: s.step == 400, "the steps")
    stage.finish(exit_code=1)
    _, failed = told(tmp_path / "told")
    assert (failed["state"], failed["severity"]) == ("failed", "critical")


def test_without_a_reason_nobody_is_told_and_a_later_hub_tells_nothing_again(stage, hub, tmp_path):
    train(stage, 1, 200, late_from=201)
    stage.viewer().until(lambda s: s.step == 200, "the steps")
    assert not told(tmp_path / "told")
    train(stage, 201, 400, late_from=201)
    until(lambda: told(tmp_path / "told"), "an alert")
    stage.kill_hub()
    stage.hub()
    stage.viewer().until(lambda s: s.severity == "warn", "the finding again")
    stage.finish()
    assert len(told(tmp_path / "told")) == 1


class Judged:
    """The part of a store that alerts read."""

    def __init__(self, run):
        self.run, self.state, self.step, self.announced, self.verdict = run, "running", 0, [], None


@pytest.mark.parametrize(("program", "said"), [
    (["/no/such/program"], "ddpmon cannot start --on-alert /no/such/program: No such file or directory"),
    (["sh", "-c", "echo one; echo no route >&2; exit 3"], "--on-alert sh ended with 3: no route"),
    (["sh", "-c", "head -c 300000 /dev/zero; exit 3"], "--on-alert sh ended with 3"),
])  # fmt: skip
def test_a_program_that_fails_is_told(stage, monkeypatch, program, said):
    monkeypatch.setattr(alerts, "MAX_END_WAIT_S", 60.0)
    events = []
    mine = alerts.Alerts(program, Judged(stage.run), lambda unix, severity, text: events.append(text))
    mine._queue(0.0, b"{}\n")
    mine.finish(0.0)
    assert len(events) == 1
    assert events[0].startswith(said)


def test_what_takes_long_is_killed_with_what_it_started_and_an_hour_has_a_bound(stage, tmp_path, monkeypatch):
    monkeypatch.setattr(alerts, "MAX_PROGRAM_S", 0.2)
    events = []
    started = tmp_path / "started"
    program = ["sh", "-c", 'sleep 600 & echo $! >> "$0"; wait', str(started)]
    mine = alerts.Alerts(program, Judged(stage.run), lambda unix, severity, text: events.append(text))
    for number in range(alerts.MOST_AN_HOUR + 3):
        mine._queue(float(number), b"{}\n")
        mine.queue_alerts(float(number), 0.0)
        if number < alerts.MOST_AN_HOUR:
            wait_for(lambda: len(started.read_text().splitlines()) > number if started.exists() else False)  # noqa: B023
        mine.queue_alerts(number + 0.5, 0.0)
    assert events.count("--on-alert sh ran for more than 0.2 s, so ddpmon killed it") == alerts.MOST_AN_HOUR
    assert events[-1] == "--on-alert: ddpmon skipped 1 alert, because the limit is 20 an hour"
    assert len(events) == alerts.MOST_AN_HOUR + 3
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started.read_text().split()))


@pytest.mark.parametrize(("command", "said"), [("", "no program ''"), ("no-such-program", "no program"), ("'", "quot")])
def test_what_is_no_program_starts_nothing(cli, tmp_path, command, said):
    refused = cli("exec", "--on-alert", command, "--", "true")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert said in refused.stderr
    assert runs.all_runs() == []


def test_the_programs_secrets_are_not_in_run_json(cli, tmp_path):
    words = f"{shlex.quote(sys.executable)} -c pass --token hunter22"
    assert cli("exec", "--headless", "--on-alert", words, "--", "true").returncode == 0
    run = runs.find(None)
    assert "hunter22" not in (runs.run_dir(run.id) / "run.json").read_text()
    assert runs.alerts(run)[0][-1] == "hunter22"
