"""Every row of the second table of docs/faults.md happens to a rank of one real run."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from ddpmon import runs
from ddpmon.export import report
from ddpmon.recording.recording import recording_path
from tests.conftest import Cli
from tests.faults.table import ways_to_leave
from tests.ranks import launcher

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
SCRIPT = Path(__file__).parent / "leaving.py"
STEPS = 300


def test_what_a_rank_could_not_send_is_counted_to_the_step(cli: Cli) -> None:
    ways = ways_to_leave()
    cli("exec", "--headless", "--", *launcher(len(ways), SCRIPT, str(STEPS), *ways))
    made = report.build(runs.find(None))
    with sqlite3.connect(recording_path(runs.find(None).id)) as db:
        recorded = dict(
            db.execute("SELECT rank, sum(count) FROM step_blocks JOIN processes ON id = process GROUP BY rank")
        )
    db.close()
    assert [rank["steps"] for rank in made["ranks"]] == [STEPS] * len(ways)
    assert made["steps"]["records_lost"] == sum(STEPS - recorded.get(rank, 0) for rank in range(len(ways)))
    for rank, lost in enumerate(ways.values()):
        assert lost == "its last steps, counted" or recorded[rank] == STEPS
