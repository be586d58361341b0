"""A host or a rank that is late again and again: one finding, and a sentence that keeps still."""

from itertools import pairwise

import pytest

from ddpmon.analysis.events import News
from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.processes.conditions import Conditions
from ddpmon.analysis.verdict import running
from tests.findings import judged
from tests.worlds import OWN, own_times, world_with

STEP_MS = sum(OWN) + 6
HOSTS = [Conditions(rank, f"node{rank // 4}") for rank in range(8)]
EVERY, EACH = 100, 30


def unfolding(late, begins, *, steps, each=EACH, for_good=None):
    """What is found after every 15 steps, and the events. late: ranks; for_good: from that step on they stay late."""
    own = own_times(steps, 8, noise=0.03)
    for begin in begins:
        own[begin : begin + each, late, 2] += 0.3 * STEP_MS
    if for_good is not None:
        own[for_good:, late, 2] += 0.3 * STEP_MS
    world, found, news = world_with(own), [], News()
    moments, events = [], []
    for end in range(15, steps + 1, 15):
        part = world.between(max(0, end - 600), end)
        before, found = found, judged(part, Evidence(world_size=8, conditions=HOSTS), found)
        events += news.of(before, found, float(part.end_us[-1]) / 1e6)
        moments.append(found)
    return world, moments, events


def above_info(found):
    return [one for one in found if one.severity != "info"]


@pytest.mark.parametrize(("late", "name"), [([4, 5, 6, 7], "node1"), ([5], "rank 5")])
def test_what_is_late_again_and_again_is_one_finding_with_its_rhythm_from_the_third_time_on(late, name):
    world, moments, events = unfolding(late, range(90, 800, EVERY), steps=780)
    since_third = moments[(290 + EACH) // 15 :]
    for found in since_third:
        (one,) = above_info(found)
        assert (one.kind, one.subject, one.ranks, one.phase) == ("late_in_bursts", name, late, "backward")
        assert one.until_step is None
        assert [other.kind for other in found].count(one.kind) == len(found)
    assert one.since_step == 92
    assert one.evidence["every_steps"] == EVERY
    assert one.evidence["each_steps"] == pytest.approx(EACH, abs=2)
    assert f"{name} is slow in bursts: +9." in one.text
    assert f"of {EVERY} steps" in one.text
    own = own_times(780, 8, noise=0.03)
    well = world_with(own)
    assert one.evidence["gain"] == pytest.approx(float(world.step_ms[180:].sum() / well.step_ms[180:].sum()), abs=0.015)
    sentences = [running(found, None).text.split(":")[0] for found in moments]
    assert sum(a != b for a, b in pairwise(sentences)) <= 5
    assert len(events) <= 2
    assert events[0].text.startswith(f"{name} is slow:")


def test_a_first_burst_too_short_to_be_found_counts_for_since_when():
    own = own_times(460, 8, noise=0.03)
    for begin, end in ((90, 97), (190, 220), (290, 320), (390, 420)):
        own[begin:end, [4, 5, 6, 7], 2] += 0.3 * STEP_MS
    world, found = world_with(own), []
    for end in range(15, 460, 15):
        found = judged(world.between(0, end), Evidence(world_size=8, conditions=HOSTS), found)
    (one,) = above_info(found)
    assert (one.kind, one.since_step) == ("late_in_bursts", 92)


@pytest.mark.parametrize("each", [10, 12])
def test_bursts_too_short_to_be_seen_each_are_counted_once_they_have_a_name(each):
    """Of these one or two are found as they come: the more there are, the more of them is taken for noise."""
    _, moments, _ = unfolding([4, 5, 6, 7], range(100, 700, 40), steps=700, each=each)
    (one,) = above_info(moments[-1])
    assert (one.evidence["every_steps"], one.evidence["each_steps"]) == (40, pytest.approx(each, abs=1))


def test_bursts_are_over_when_two_of_them_are_missed():
    _, moments, _ = unfolding([5], range(90, 400, EVERY), steps=700)
    ends = [[one.until_step for one in found if one.kind == "late_in_bursts"] for found in moments]
    assert ends[(390 + EVERY) // 15] == [None]
    assert above_info(moments[(390 + 2 * EVERY + 30) // 15]) == []
    assert ends[-1] == [pytest.approx(390 + EACH + 1, abs=3)]
    assert "rank 5 was slow in bursts" in moments[-1][0].text


def test_what_stays_late_after_bursts_is_told_as_that():
    _, moments, _ = unfolding([5], range(90, 400, EVERY), steps=700, for_good=450)
    (one,) = above_info(moments[-1])
    assert (one.kind, one.ranks) == ("straggler", [5])
    assert one.since_step == pytest.approx(452, abs=3)


def test_twice_is_no_rhythm():
    _, moments, _ = unfolding([5], (90, 190), steps=400)
    assert {one.kind for found in moments for one in found} == {"straggler"}
