"""Real runs that train, but not one model: the report says so, and says nothing of a sound one."""

import json
from pathlib import Path

import pytest

from tests.ranks import launcher

pytestmark = pytest.mark.e2e
SCRIPT = Path(__file__).parents[1] / "probe" / "scripts" / "drifting.py"


def run(cli, how, nproc=2):
    done = cli("exec", "--headless", "--", *launcher(nproc, SCRIPT, how), timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(cli("report", "--format", "json").stdout)


def critical(made):
    return {finding["kind"]: finding for finding in made["findings"] if finding["severity"] == "critical"}


def test_a_rank_that_changes_its_weights_alone_is_named(cli):
    found = critical(run(cli, "alone", nproc=3))  # of two, nobody could say which
    assert set(found) == {"replicas_differ"}
    finding = found["replicas_differ"]
    assert (finding["ranks"], finding["since_step"], finding["evidence"]["same_at_step"]) == ([2], 100, 30)


def test_training_past_ddp_is_told(cli):
    found = critical(run(cli, "unsynchronised"))
    assert set(found) == {"gradients_not_synchronised"}
    finding = found["gradients_not_synchronised"]
    assert finding["ranks"] == [0, 1]
    assert (finding["since_step"], finding["evidence"]["replicas_differ"]) == (1, [0, 1])


def test_a_script_that_averages_gradients_by_itself_is_left_alone(cli):
    made = run(cli, "averaged")
    assert [f for f in made["findings"] if f["kind"] in {"gradients_not_synchronised", "replicas_differ"}] == []
