"""Test the findings of made-up runs that are judged again and again, as a hub does."""

import pytest

from ddpmon.analysis.evidence import Evidence
from tests.analysis.noise import STEP_MS, clean
from tests.findings import judged, unfold
from tests.worlds import world_with


def told(own):
    """[(step, severity, sentence)] of a run that is judged every 10 steps."""
    moments = unfold(world_with(own), every=10)
    return [(one.steps + 1, event.severity, event.text) for one in moments for event in one.events]


@pytest.mark.parametrize(
    ("kind", "end", "size"),
    [("garbage", 350, 0.25), ("hiccups", 350, 1.0)],
)
def test_a_straggler_is_told_once_and_taken_back_once_and_nothing_comes_after_it(kind, end, size):
    own = clean(kind, end + 200, 4, 1)
    own[150:end, 1, 1] += size * STEP_MS
    alarm, *rest = [text for step, severity, text in told(own) if step > 150]
    assert alarm.startswith("rank 1 is slow")
    assert [text.partition(";")[0] for text in rest] == ["rank 1 has recovered"]


def test_taking_turns_is_told_soon_after_it_begins_and_taken_back_soon_after_it_ends():
    own = clean("garbage", 600, 4, 5)
    for step in range(200, 450):
        own[step, step * 7 // 3 % 4, 1] += STEP_MS
    (begun, severity, alarm), (gone, _, over) = told(own)
    assert severity == "warn"
    assert alarm.startswith("the slow rank rotates every step")
    assert over.startswith("the rotation of slow ranks has ended")
    assert 200 < begun <= 235
    assert 450 < gone <= 515


def test_a_straggler_that_is_worth_acting_on_from_some_moment_on_is_told_then_and_once():
    own = clean("garbage", 300, 4, 1)
    own[150:, 1, 1] += 0.1 * STEP_MS
    severities = [severity for _, severity, text in told(own) if text.startswith("rank 1 is slow")]
    assert severities == ["warn"]


def test_a_rhythm_of_long_steps_is_found_though_few_of_them_are_looked_at_for_the_rest():
    own = clean("even", 400, 4, 7)
    own[20::50, 2, 4] += 2 * STEP_MS
    world = world_with(own)
    assert judged(world.last_steps(60), Evidence()) == []
    (finding,) = judged(world.last_steps(60), Evidence(), longer=world)
    assert (finding.kind, finding.ranks, finding.evidence["every"]) == ("periodic_straggler", [2], 50)
