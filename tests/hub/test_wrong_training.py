"""A real run whose ranks do not train one model: the report says so."""

import json
from pathlib import Path

import pytest

from tests.ranks import launcher

pytestmark = pytest.mark.e2e
SCRIPT = Path(__file__).parents[1] / "probe" / "scripts" / "drifting.py"


def test_a_rank_that_changes_its_weights_alone_is_named(cli):
    done = cli("exec", "--headless", "--", *launcher(3, SCRIPT))  # of two, nobody could say which
    assert done.returncode == 0, done.stdout + done.stderr
    made = json.loads(cli("report", "--format", "json").stdout)
    (finding,) = [finding for finding in made["findings"] if finding["severity"] == "critical"]
    assert finding["kind"] == "replicas_differ"
    assert (finding["ranks"], finding["since_step"], finding["evidence"]["same_at_step"]) == ([2], 100, 30)
