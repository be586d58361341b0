"""Another rank is slow each time: that is nobody's fault, and one finding with its advice."""

import numpy as np
import pytest

from ddpmon.analysis.evidence import Evidence
from tests.findings import judged, unfold
from tests.worlds import own_times, world_with


def test_a_straggler_that_moves_is_nobodys_fault():
    own = own_times(200, 4, noise=0.03)
    own[np.arange(200), np.random.default_rng(0).integers(0, 4, 200), 1] += 15
    (finding,) = judged(world_with(own), Evidence())
    assert (finding.kind, finding.severity, finding.phase) == ("moving_straggler", "warn", "forward")
    assert finding.text.startswith("the slow rank rotates every step: +")
    assert "batch sizes are alike" in finding.advice
    assert finding.evidence["load_balance_moving"] < 0.85
    assert finding.cost_ms == pytest.approx(15, abs=1)


def test_uneven_work_of_each_step_is_named_as_what_moves():
    tokens = np.random.default_rng(0).integers(500, 1500, (200, 4))
    own = own_times(200, 4, noise=0.02) * (tokens / 1000)[..., None]
    (finding,) = judged(world_with(own, tokens=tokens), Evidence())
    assert (finding.kind, finding.evidence["work"]) == ("moving_straggler", "tokens")
    assert finding.text.startswith("the slow rank rotates with uneven tokens: +")
    assert finding.advice.startswith("Give all ranks equal tokens in each step: the numbers go from 5")


def test_turns_of_many_steps_are_announced_once_with_cost_and_rhythm():
    own = own_times(900, 8, noise=0.03)
    for at in range(900):
        own[at, at // 40 * 3 % 8, 2] += 6
    moments = unfold(world_with(own), every=50)
    (finding,) = [f for f in moments[-1].findings if f.kind == "moving_straggler"]
    assert finding.evidence["turn_steps"] == pytest.approx(40, rel=0.2)
    assert finding.cost_ms == pytest.approx(6, rel=0.25)
    severities = [event.severity for moment in moments for event in moment.events if "rotat" in event.text]
    assert severities in (["info"], ["warn"], ["info", "warn"])
