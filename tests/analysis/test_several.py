"""Several ranks that are late by little, none of which alone is worth fixing, are one finding."""

from math import inf

import pytest

from ddpmon.analysis.events import Announcer
from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.kinds import kind_of
from ddpmon.analysis.verdict import running_sentence
from ddpmon.messages import OWN_PHASES, Finding
from tests.findings import judged, unfold
from tests.worlds import OWN, own_times, world_with

STEP_MS = sum(OWN) + 6
LITTLE = 0.06 * STEP_MS
"""Less than 8% of the own time, from which on one rank alone is late."""


def world(late, *, ranks=8, steps=400, begin=100, end=None, seed=0):
    """late: by rank, phase and ms."""
    own = own_times(steps, ranks, noise=0.03, seed=seed)
    for rank, (phase, ms) in late.items():
        own[begin:end, rank, OWN_PHASES.index(phase)] += ms
    return world_with(own)


def above_info(found):
    return [finding for finding in found if finding.severity != "info"]


@pytest.mark.parametrize(
    ("ranks", "late", "ms"),
    [(8, (1, 3, 6), LITTLE), (8, (0, 1, 3, 5, 6), 0.25 * STEP_MS), (32, range(2, 20, 3), LITTLE)],
)
def test_ranks_that_gain_only_together_are_one_finding_with_what_all_gain(ranks, late, ms):
    ill = world(dict.fromkeys(late, ("data", ms)), ranks=ranks)
    (finding,) = above_info(judged(ill, Evidence(world_size=ranks)))
    assert (finding.kind, finding.ranks, finding.phase) == ("several_stragglers", list(late), "data")
    assert abs(finding.since_step - 102) <= 1
    well = world({}, ranks=ranks)
    real = float(ill.step_ms[100:].sum() / well.step_ms[100:].sum())
    assert finding.evidence["gain"] == pytest.approx(real, abs=0.01)
    assert finding.evidence["alone_gain"] < 1.01
    assert finding.evidence["critical_share"] > 0.8
    assert finding.cost_ms == pytest.approx(ms, rel=0.25)
    assert finding.text.startswith("ranks ")
    assert len(finding.text) <= 76
    assert f"{finding.evidence['gain']:.2f}x faster if " in finding.text
    assert "fix all" in finding.advice
    assert kind_of(finding).is_one_of_several(finding), "the report says what mending them together gains"
    assert running_sentence([finding], None).text == finding.text


@pytest.mark.parametrize("late", [(1, 6), (1, 3, 6), ()])
def test_several_that_cost_less_than_2_percent_are_none(late):
    assert above_info(judged(world(dict.fromkeys(late, ("data", 0.015 * STEP_MS))), Evidence(world_size=8))) == []


def test_two_that_are_late_by_too_little_to_be_named_one_by_one_are_one_finding():
    (finding,) = above_info(judged(world(dict.fromkeys((1, 6), ("data", LITTLE))), Evidence(world_size=8)))
    assert (finding.kind, finding.ranks, finding.since_step) == ("several_stragglers", [1, 6], 102)
    assert "1.05x faster if both are fixed" in finding.text
    assert "fix both" in finding.advice


@pytest.mark.parametrize(("ms", "gain"), [(0.25 * STEP_MS, 1.2), (LITTLE, 1.05)])
def test_half_of_a_world_that_is_late_from_the_start_is_named_and_stays_so(ms, gain):
    """Each half is then as far from the other as it is from what is usual."""
    half = (1, 3, 4, 6)
    ill = world(dict.fromkeys(half, ("data", ms)), begin=0)
    for moment in unfold(ill, Evidence(world_size=8), every=50):
        if moment.steps >= 200:
            (finding,) = above_info(moment.findings)
            assert (finding.kind, finding.ranks, finding.phase) == ("several_stragglers", list(half), "data")
            assert finding.since_step <= 3
    assert finding.evidence["gain"] == pytest.approx(gain, abs=0.06)


def test_ranks_that_are_late_in_different_phases_have_findings_of_their_own():
    late = {1: ("data", 4.0), 3: ("backward", 4.0), 6: ("forward", 4.0)}
    found = above_info(judged(world(late), Evidence(world_size=8)))
    assert {(finding.kind, *finding.ranks, finding.phase) for finding in found} == {
        ("straggler", rank, phase) for rank, (phase, _) in late.items()
    }
    assert all(finding.evidence["gain_together"] > 1.08 for finding in found)


def test_one_that_becomes_late_after_them_has_a_first_step_of_its_own():
    own = own_times(600, 8, noise=0.03)
    own[100:, (1, 3, 6), 0] += LITTLE
    own[300:, 7, 0] += LITTLE
    *_, last = unfold(world_with(own), Evidence(world_size=8), every=50)
    found = {tuple(finding.ranks): finding.since_step for finding in above_info(last.findings)}
    assert found == {(1, 3, 6): pytest.approx(102, abs=1), (7,): pytest.approx(302, abs=1)}


SEVERAL = Finding("several_stragglers", "warn", "ranks 1, 3, 6 are slow", [1, 3, 6], "data", 10, cost_ms=1.0)
ALONE = Finding("straggler", "warn", "rank 3 is slow", [3], "data", 10, cost_ms=1.0)


@pytest.mark.parametrize(("before", "now"), [([SEVERAL], [ALONE]), ([ALONE], [SEVERAL])])
def test_a_rank_that_goes_on_as_one_of_several_or_alone_does_not_keep_up_again(before, now):
    news = Announcer()
    news.announce([], before, 0.0)
    (event,) = news.announce(before, now, inf)
    assert event.text == now[0].text


def test_a_rank_that_was_one_of_several_for_a_while_is_not_announced_again_and_is_after_their_end():
    news = Announcer()
    news.announce([], [ALONE], 0.0)
    news.announce([ALONE], [SEVERAL], 1.0)
    assert news.announce([SEVERAL], [ALONE], 2.0) == []
    (end,) = news.announce([ALONE], [], inf)
    assert end.text.startswith("rank 3 has recovered")
    (again,) = news.announce([], [ALONE], inf)
    assert again.text == ALONE.text
