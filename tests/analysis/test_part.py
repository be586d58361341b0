"""Test the findings of a hub that hears only a part of the world."""

import numpy as np
import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.steps.table import Rows
from ddpmon.analysis.steps.waits import split
from ddpmon.messages import Phase
from tests.findings import judged
from tests.worlds import own_times, records


def part(*ranks, whole=False):
    """The steps of four ranks of which the last is 15 ms late in data, as a hub sees them that hears `ranks` only."""
    own = own_times(200, 4, noise=0.02)
    own[:, 3, Phase.DATA] += 15
    told = records(own, transfer=2.0)
    return split(Rows(ranks, [list(row) for row in zip(*(told[rank] for rank in ranks), strict=True)]), whole=whole)


def test_waiting_for_ranks_that_are_not_heard_is_no_transfer():
    """Each of both waits 15 ms for a rank of another machine: what looked like a slow network."""
    assert "communication_bound" in {found.kind for found in judged(part(0, 1, whole=True), Evidence(world_size=4))}
    world = part(0, 1)
    assert np.allclose(world.transfer_ms, 0)
    assert world.wait_ms.mean() == pytest.approx(17, abs=0.5)
    assert not [found.kind for found in judged(world, Evidence(world_size=4)) if found.severity != "info"]


def test_a_late_rank_is_named_by_the_hub_that_hears_it_and_one_of_its_peers():
    (found,) = [found for found in judged(part(2, 3), Evidence(world_size=4)) if found.severity != "info"]
    assert (found.kind, found.ranks, found.phase) == ("straggler", [3], "data")
    assert found.cost_ms == pytest.approx(15, abs=1)
