"""Sentences and advice about ranks that are slow in turn."""

import numpy as np
import pytest

from ddpmon.analysis.evidence import Evidence
from tests.findings import judged
from tests.worlds import own_times, world_with


def test_a_straggler_that_moves_is_nobodys_fault():
    own = own_times(200, 4, noise=0.03)
    own[np.arange(200), np.random.default_rng(0).integers(0, 4, 200), 1] += 15
    (finding,) = judged(world_with(own), Evidence())
    assert (finding.kind, finding.severity, finding.phase) == ("moving_straggler", "warn", "forward")
    assert finding.text.startswith("the slow rank rotates every step: +")
    assert "batches are alike" in finding.advice
    assert finding.evidence["load_balance_moving"] < 0.85
    assert finding.cost_ms == pytest.approx(15, abs=1)


def test_turns_of_many_steps_are_told_with_their_length():
    own = own_times(900, 8, noise=0.03)
    for at in range(900):
        own[at, at // 40 * 3 % 8, 2] += 6
    finding, *_ = judged(world_with(own), Evidence())
    assert finding.text.startswith("the slow rank rotates: each is slow for about 40 steps: +")
    assert "from one rank to the next every 40 steps on all 8 ranks" in finding.advice


def test_uneven_work_of_each_step_is_named_as_what_moves():
    tokens = np.random.default_rng(0).integers(500, 1500, (200, 4))
    own = own_times(200, 4, noise=0.02) * (tokens / 1000)[..., None]
    (finding,) = judged(world_with(own, tokens=tokens), Evidence())
    assert (finding.kind, finding.evidence["work"]) == ("moving_straggler", "tokens")
    assert finding.text.startswith("the slow rank rotates with uneven tokens: +")
    assert finding.advice.startswith("Balance tokens within a step: they go from 5")
