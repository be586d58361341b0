"""A loss that jumps up is told with where it began; one that falls, or is noisy, is not."""

import numpy as np
import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.findings import all_findings
from tests.worlds import own_times, world_with


def spiked(loss):
    """Return the spikes found in losses [S, R] of ranks of which none is slow."""
    world = world_with(own_times(*loss.shape), loss=loss)
    return [finding for finding in all_findings(world, Evidence()) if finding.kind == "loss_spiked"]


def falling(seed, steps=200, ranks=4, noise=0.1):
    rng = np.random.default_rng(seed)
    return 2.5 * np.exp(-np.arange(steps) / 150)[:, None] * (1 + noise * rng.standard_normal((steps, ranks)))


def test_a_jump_of_all_ranks_is_a_warning_while_it_lasts():
    loss = falling(0)
    loss[140:] += 4
    (finding,) = spiked(loss)
    assert (finding.severity, finding.ranks, finding.until_step) == ("warn", [], None)
    assert abs(finding.since_step - 142) <= 1
    assert "all ranks at once" in finding.text
    assert len(finding.text) <= 76


def test_the_rank_that_rose_first_is_named():
    loss = falling(1)
    loss[135:, 2] += 30
    loss[140:] += 8
    (finding,) = spiked(loss)
    assert finding.ranks == [2]
    assert abs(finding.since_step - 137) <= 1
    assert "rank 2" in finding.text


def test_a_jump_that_is_over_is_no_alarm():
    loss = falling(2)
    loss[100:130] += 5
    (finding,) = spiked(loss)
    assert finding.severity == "info"
    assert abs(finding.until_step - 132) <= 3


def test_a_jump_of_a_loss_below_zero_is_over_too_once_it_has_come_back():
    loss = falling(2) - 7.0
    loss[100:130] += 30.0
    (finding,) = spiked(loss)
    assert (finding.severity, finding.until_step is None) == ("info", False)


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.3])
def test_a_loss_that_falls_or_strays_is_left_alone(noise):
    for seed in range(4):
        assert spiked(falling(seed, noise=noise)) == []
        assert spiked(np.abs(np.random.default_rng(seed).normal(0.05, 0.05, (300, 4)))) == []


def test_two_odd_batches_are_no_jump():
    loss = falling(3)
    loss[120:122] += 50
    assert spiked(loss) == []


def test_a_loss_that_rises_a_little_is_no_jump():
    loss = falling(4, noise=0.02)
    loss[150:] *= 1.5
    assert spiked(loss) == []


def test_the_rounding_of_a_loss_that_is_zero_is_no_jump():
    loss = falling(3)
    loss[:] = 1e-13 * (1 + 0.1 * np.random.default_rng(0).standard_normal(loss.shape))
    loss[140:] *= 4
    assert spiked(loss) == []
    assert len(spiked(loss * 1e9)) == 1
