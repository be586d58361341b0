"""Each way to end in docs/faults.md happens to rank 1 of a world of real ranks, all worlds in one run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.ports import free_port
from ddpmon import runs
from ddpmon.export import report as reports
from tests.conftest import Cli
from tests.faults.table import PAGE

SCRIPT = Path(__file__).with_name("quitting.py")


def quits() -> dict[str, str]:
    """Return what happens to a rank, and what the report then says of it, from the page's table."""
    _, _, page = PAGE.read_text().partition("\n## A rank that ends while the others train\n")
    lines = [line for line in page.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    return dict([cell.strip().strip("`") for cell in line.strip("|").split(" | ")][:2] for line in lines)


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_a_rank_that_ends_by_itself_is_the_cause_and_no_lost_connection_is(cli: Cli) -> None:
    ways = quits()
    assert len(ways) > 5
    worlds = [word for way in ways for word in (way, str(free_port()))]
    ended = cli("exec", "--headless", "--", sys.executable, str(SCRIPT), *worlds)
    run = reports.build(runs.find(None))
    assert ended.returncode == 1, ended.stdout + ended.stderr
    causes = [(attempt["ranks"], attempt["cause"]) for attempt in run["run"]["attempts"]]
    last = run["verdict"].removeprefix("rank 1 failed first: ").partition("; 1 other")[0]
    assert [*causes, ([1], last)] == [([1], says) for says in ways.values()]
    assert run["findings"][0]["kind"] == "rank_failed"
    assert run["findings"][0]["ranks"] == [1]
