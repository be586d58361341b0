"""Another rank is slow each time: that is nobody's fault, and one finding."""

import numpy as np
import pytest

from tests.analysis.noise import wandering
from tests.findings import judged, unfold
from tests.worlds import OWN, own_times, records, world_of, world_with


def rotating(moments):
    """The findings of the last moment above info."""
    return [finding for finding in moments[-1].findings if finding.severity != "info"]


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_another_rank_in_each_step_is_nobodys_fault(ranks):
    own = own_times(200, ranks, noise=0.03)
    own[np.arange(200), np.random.default_rng(0).integers(0, ranks, 200), 1] += 15
    (finding,) = rotating(unfold(world_with(own)))
    assert (finding.kind, finding.phase) == ("moving_straggler", "forward")
    assert finding.cost_ms == pytest.approx(15, abs=3)


@pytest.mark.parametrize("seed", [1, 2])
def test_nobody_is_accused_where_all_wander_by_as_much(seed):
    own = own_times(400, 8, noise=0.01, seed=seed) * wandering(400, 8, share=0.1, lasts=33, seed=seed)
    own[200 + np.arange(200), np.random.default_rng(seed).integers(0, 8, 200), 2] += 0.25 * sum(OWN)
    moments = unfold(world_with(own))
    told = {(f.kind, f.phase) for moment in moments for f in moment.findings if f.severity != "info"}
    assert told == {("moving_straggler", "backward")}
    (last,) = rotating(moments)
    assert abs(last.since_step - 202) <= 5


@pytest.mark.parametrize("longer", [1, 125])
def test_turns_of_many_steps_are_announced_once_with_cost_and_rhythm(longer):
    own = own_times(900, 8, noise=0.03)
    for at in range(900):
        own[at, at // 40 * 3 % 8, 2] += 6
    moments = unfold(world_with(longer * own))
    (finding,) = [f for f in moments[-1].findings if f.kind == "moving_straggler"]
    assert finding.evidence["turn_steps"] == pytest.approx(40, rel=0.2)
    assert finding.cost_ms == pytest.approx(6 * longer, rel=0.25)
    severities = [event.severity for moment in moments for event in moment.events if "rotat" in event.text]
    assert severities in (["info"], ["warn"], ["info", "warn"])


def test_uneven_work_of_each_step_is_named_as_what_moves():
    tokens = np.random.default_rng(0).integers(500, 1500, (200, 4))
    own = own_times(200, 4, noise=0.02) * (tokens / 1000)[..., None]
    told = records(own)
    for rank, steps in told.items():
        for i, step in enumerate(steps):
            step.tokens = int(tokens[i, rank])
    (finding,) = judged(world_of(told))
    assert finding.kind == "moving_straggler"
    assert finding.text.startswith("the slow rank rotates with uneven tokens:")
