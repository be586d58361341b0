"""Runs that are judged as they go on: findings are true, announced once, and stay as they were."""

import numpy as np
import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.kinds.relevance import COSTLY
from ddpmon.analysis.processes.conditions import Conditions
from tests.analysis.noise import STEP_MS, bursts, wandering
from tests.findings import judged, unfold
from tests.worlds import OWN, own_times, records, world_of, world_with


def slow(found):
    """Return the findings of ranks that are slow now."""
    return [f for f in found if f.kind == "straggler" and f.severity == "warn" and f.until_step is None]


def test_a_quarter_of_a_step_shows_in_ranks_that_wander_and_its_first_step_stays_as_it_was_told():
    """Although the window has moved on by then, and holds nothing of the time before."""
    own = own_times(1100, 8, noise=0.01, seed=4) * wandering(1100, 8, share=0.05, lasts=33, seed=4)
    own[300:, 5, 2] += 0.25 * STEP_MS
    moments = unfold(world_with(own))
    told = [finding for moment in moments for finding in slow(moment.findings)]
    assert {finding.ranks[0] for finding in told} == {5}
    assert {finding.since_step for finding in told} == {302}
    assert len(told) >= 35  # of the 40 moments since
    events = [event for moment in moments for event in moment.events if event.text.startswith("rank")]
    assert [event.text.startswith("rank 5 is slow") for event in events if "rank 5" in event.text] == [True]


def test_a_tenth_of_a_step_shows_in_its_phase_where_ranks_wander_by_as_much_in_all_phases():
    own = own_times(700, 8, noise=0.01, seed=3) * wandering(700, 8, share=0.1, lasts=33, seed=3)
    own[300:, 5, 0] += 0.12 * STEP_MS
    told = [f for moment in unfold(world_with(own), every=40) for f in slow(moment.findings)]
    assert {(f.ranks[0], f.phase) for f in told} == {(5, "data")}
    assert abs(told[-1].since_step - 302) <= 5


def test_the_first_step_is_right_in_bursts_and_stays_so():
    own = own_times(700, 8, noise=0.05, seed=1) * bursts(700, 8, share=0.3, lasts=6, seed=1)
    own[400:, 5, 2] += 0.25 * STEP_MS
    told = [f for moment in unfold(world_with(own)) for f in slow(moment.findings)]
    assert {f.ranks[0] for f in told} == {5}
    for one in told:
        earliest, latest = one.evidence.get("since_interval", [one.since_step] * 2)
        assert earliest - 5 <= 402 <= latest + 5


def test_of_a_thousand_ranks_that_wander_one_is_far_out_and_not_slow():
    """One normal value in so many is 3.8 standard deviations out in one of seven draws; in few values hardly ever."""
    factors = wandering(100, 1024, share=0.1, lasts=33, seed=1)
    factors[70:, 5, 0] = 1 + 0.1 * np.minimum(3.8, np.arange(30))
    assert slow(judged(world_with(own_times(100, 1024, noise=0.01) * factors))) == []


def test_of_a_thousand_noisy_ranks_one_that_is_late_from_the_first_step_is_so_from_the_start():
    own = own_times(120, 1024, noise=0.1, seed=5)
    own[:, 13, 2] += 0.4 * sum(OWN)
    *_, last = unfold(world_with(own), every=40)
    (finding,) = slow(last.findings)
    assert finding.ranks == [13]
    assert "from the start" in finding.text


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


def test_a_host_that_is_short_of_cores_stays_so_while_its_share_strays_around_the_threshold():
    def told(share, before=()):
        return judged(None, Evidence(conditions=[Conditions(0, "here", starved=[share] * 10)]), before)

    first = told(1.1 * COSTLY.enter)
    assert [f.severity for f in first] == ["warn"]
    assert [f.severity for f in told(0.9 * COSTLY.enter, first)] == ["warn"]
    assert [f.severity for f in told(0.9 * COSTLY.enter)] == ["info"]


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


def test_a_cause_that_was_not_measured_is_called_so():
    own = own_times(150, 4, noise=0.02)
    own[:, 1, 2] += 15
    (finding,) = judged(world_with(own, samples=0))
    assert "no measurement shows why it is slow" in finding.advice


def test_every_text_fits_the_verdict():
    own = own_times(200, 8, noise=0.02) * 400
    own[100:, 2:4, 3] += 12_345
    for first in (2, 12_345_678):
        found = judged(world_with(own, first=first))
        assert found
        assert max(len(finding.text) for finding in found) <= 76
