"""Real ranks of which one evaluates for longer than the others may wait."""

from pathlib import Path

import pytest

from ddpmon import runs, source
from ddpmon.export import report
from tests.conftest import wait_for
from tests.ranks import launcher

pytestmark = pytest.mark.e2e
SCRIPT = Path(__file__).parents[1] / "probe" / "scripts" / "evaluating.py"


def near(findings):
    return [finding for finding in findings if finding.kind == "timeout_near"]


def test_it_is_told_before_the_timeout_ends_the_run(launch):
    started = launch(*launcher(2, SCRIPT, "600", "30"))
    watched = source.LiveSource(started.run)
    shot = wait_for(lambda: (shot := watched.snapshot()) and near(shot.findings) and shot, 120)
    (finding,) = near(shot.findings)
    assert (finding.ranks, finding.evidence["waiting"], finding.evidence["timeout_s"]) == ([0], [1], 30.0)
    assert finding.evidence["line"].startswith("evaluating.py:")
    assert finding.text.startswith("all wait for rank 0: the timeout (30 s) ends the run in ")
    assert shot.state in {"running", "slow"}, "it is no stall"
    (told,) = [f for f in report.build(started.run)["findings"] if f["kind"] == "timeout_near"]
    assert (told["ranks"], told["since_step"]) == ([0], 81)
    ended = started.until_gone(120)
    assert ended.exit_code
    watched.close()
    made = report.build(runs.load(started.id))
    assert made["run"]["state"] == "failed"
    assert "timed out" in made["verdict"].lower(), "it is the timeout that ended it"
    assert not [f for f in made["findings"] if f["kind"] == "timeout_near"]
