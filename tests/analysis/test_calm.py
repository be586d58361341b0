"""Runs that are judged as they go on: findings are true, announced once, and stay as they were."""

import numpy as np
import pytest

from tests.analysis.noise import wandering
from tests.findings import judged
from tests.worlds import own_times, records, world_of, world_with


def slow(found):
    """Return the findings of ranks that are slow now."""
    return [f for f in found if f.kind == "straggler" and f.severity == "warn" and f.until_step is None]


def test_of_a_thousand_ranks_that_wander_one_is_far_out_and_not_slow():
    """One normal value in so many is 3.8 standard deviations out in one of seven draws; in few values hardly ever."""
    factors = wandering(100, 1024, share=0.1, lasts=33, seed=1)
    factors[70:, 5, 0] = 1 + 0.1 * np.minimum(3.8, np.arange(30))
    assert slow(judged(world_with(own_times(100, 1024, noise=0.01) * factors))) == []


def test_the_first_finding_stays_first_while_another_costs_about_as_much():
    own = own_times(200, 8, noise=0.02)
    own[100:, 1, 0] += 15
    own[100:, 2, 2] += 14.5
    before = judged(world_with(own))
    own[100:, 2, 2] += 1.5
    assert next(f.ranks[0] for f in judged(world_with(own), before=before)) == before[0].ranks[0]


def test_ranks_that_are_equally_slow_cost_what_the_others_wait_for_each():
    own = own_times(200, 8, noise=0.02)
    own[100:, 1, 0] += 15
    own[100:, 2, 2] += 15
    found = judged(world_with(own))
    assert [finding.cost_ms for finding in found] == pytest.approx([15, 15], abs=0.5)
    assert [finding.evidence["gain"] for finding in found] == pytest.approx([1, 1], abs=0.02)


def test_tokens_count_as_work():
    own = own_times(150, 4, noise=0.02)
    own[:, 1] *= 1.4
    told = records(own)
    for rank, steps in told.items():
        for step in steps:
            step.tokens = 1400 if rank == 1 else 1000
    (finding,) = judged(world_of(told))
    assert (finding.kind, finding.ranks) == ("load_imbalance", [1])
    assert "40% more tokens" in finding.text
    assert "With 1,100 and 1,100, at the present speed of each rank" in finding.advice


def test_every_text_fits_the_verdict():
    own = own_times(200, 8, noise=0.02) * 400
    own[100:, 2:4, 3] += 12_345
    for first in (2, 12_345_678):
        found = judged(world_with(own, first=first))
        assert found
        assert max(len(finding.text) for finding in found) <= 76
