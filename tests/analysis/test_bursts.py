"""A host or a rank that is slow again and again: one finding, and a sentence that keeps still."""

import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.verdict import running_sentence
from tests.analysis.noise import STEP_MS
from tests.findings import unfold
from tests.worlds import own_times, world_with

HOSTS = [Conditions(rank, f"node{rank // 4}") for rank in range(8)]
EVERY, EACH = 100, 30
FOURTH = 390
"""Index of the first step of the fourth burst: three distances show a rhythm."""


def bursts(late, begins, *, steps, each=EACH, for_good=None):
    """Judge a run every 30 steps. late: ranks; for_good: from that step on they stay late."""
    own = own_times(steps, 8, noise=0.03)
    for begin in begins:
        own[begin : begin + each, late, 2] += 0.3 * STEP_MS
    if for_good is not None:
        own[for_good:, late, 2] += 0.3 * STEP_MS
    return unfold(world_with(own), Evidence(world_size=8, conditions=HOSTS), every=30)


def above_info(moment):
    return [one for one in moment.findings if one.severity != "info"]


@pytest.mark.parametrize(
    ("late", "sentence"),
    [([4, 5, 6, 7], "node1 is slow in bursts: all 4 ranks +9."), ([5], "rank 5 is slow in bursts: +9.")],
)
def test_what_is_late_again_and_again_is_one_finding_from_the_fourth_time_on(late, sentence):
    moments = bursts(late, range(90, 800, EVERY), steps=700)
    since_fourth = [moment for moment in moments if moment.steps >= FOURTH + EACH]
    for moment in since_fourth:
        (one,) = above_info(moment)
        assert (one.ranks, one.phase, one.since_step, one.until_step) == (late, "backward", 92, None)
        assert moment.findings == [one]
        assert one.text.startswith(sentence)
    assert one.kind == "late_in_bursts"
    assert one.evidence["every"] == pytest.approx(EVERY, abs=1)
    assert one.evidence["share"] == pytest.approx(EACH / EVERY, abs=0.05)
    sentences = {running_sentence(moment.findings, None).text.split(":")[0] for moment in since_fourth}
    assert len(sentences) == 1


def test_what_stays_late_for_longer_than_its_bursts_took_is_told_as_that():
    moments = bursts([5], range(90, FOURTH, EVERY), steps=850, for_good=450)
    (one,) = above_info(moments[-1])
    assert (one.kind, one.ranks) == ("straggler", [5])
    assert one.since_step == pytest.approx(452, abs=3)


def test_twice_is_no_rhythm():
    moments = bursts([5], (90, 190), steps=400)
    assert {one.kind for moment in moments for one in moment.findings} == {"straggler"}
    assert {one.since_step for one in moments[-1].findings} == {92, 192}
