"""A run that another machine started and that shares its home: every command says what it cannot know."""

from __future__ import annotations

import json

import pytest

from ddpmon import runs
from ddpmon.errors import DdpmonError, UsageError
from ddpmon.launch import prepare, stop
from ddpmon.source import attach
from tests.recordings import record
from tests.worlds import own_times

SAID = "started on node07, and ddpmon cannot see it from here"


@pytest.fixture
def far(run):
    return runs.update(run.id, host="node07", boot_id="another")


@pytest.mark.parametrize("command", [("stop",), ("stop", "--now"), ("stop", "mnist")])
def test_stop_says_where(cli, far, command):
    told = cli(*command)
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr == f"ddpmon: mnist ({far.id}) {SAID}; stop the run there with ddpmon stop {far.id}\n"
    assert not runs.load(far.id).stopping


def test_stop_prefers_a_run_that_it_can_stop(cli, far, launch):
    started = launch("sleep", "60")
    assert cli("stop", "--now").returncode == 0
    assert started.until_gone().state() == "stopped"


def test_rm_asks_to_be_sure(cli, far):
    told = cli("rm", "mnist", "--yes")
    assert told.returncode == 2
    assert f"{SAID}; delete the run there, or use ddpmon rm --force if the run has certainly ended" in told.stderr
    assert cli("rm", "mnist", "--yes", "--force").returncode == 0
    assert runs.all_ids() == []


def test_ls_and_status_show_it_as_unknown(cli, far):
    told = cli("ls")
    assert told.stdout.splitlines()[1].split()[2] == "unknown"
    assert f"\n{far.id} {SAID}\n" in told.stdout
    assert json.loads(cli("ls", "--json").stdout)[0]["state"] == "unknown"
    told = cli("status")
    assert (told.returncode, told.stdout.splitlines()[0]) == (1, f"? mnist ({far.id}) {SAID}")
    assert json.loads(cli("status", "--json").stdout)["state"] == "unknown"


def test_stack_and_starting_it_again_are_refused(cli, far):
    told = cli("stack")
    assert (told.returncode, told.stderr) == (
        1,
        f"ddpmon: mnist ({far.id}) {SAID}; run ddpmon stack {far.id} there\n",
    )
    with pytest.raises(
        UsageError, match="ddpmon cannot see it from here; stop it there first, then start the run again"
    ):
        prepare.prepare_again(far, "20260101-000002-0002")
    with pytest.raises(DdpmonError, match="stop the run there"):
        stop.request_stop(far)


def test_its_recording_is_shown_as_far_as_it_goes_and_nothing_is_made_up_of_its_end(cli, home):
    run = record(own_times(200, 2, noise=0.02), host="node07", boot_id="another")
    run = runs.update(run.id, ended_at=None, exit_code=None)
    snapshot = attach(run).snapshot()
    assert (snapshot.state, snapshot.severity) == ("unknown", "warn")
    assert snapshot.verdict == "ddpmon cannot see from here whether the run still runs; 200 steps so far"
    assert "rank_failed" not in {finding.kind for finding in snapshot.findings}
    assert json.loads(cli("report", "--format", "json").stdout)["run"]["state"] == "unknown"
    assert cli("report").stdout.startswith(f"told ({run.id}): unknown, 2 ranks\n")
    assert cli("status").returncode == 1
    told = cli("attach", "--headless")
    assert (told.returncode, told.stdout.splitlines()[-1]) == (
        1,
        f"told ({run.id}) {SAID}; ddpmon attach node07:{run.id} shows it there",
    )
