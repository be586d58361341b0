"""The detector finds the rank that became slow, and nothing in noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ddpmon.analysis.slowness.detector import Detector
from ddpmon.analysis.slowness.series import BLOCK_STEPS
from tests.analysis.noise import wandering
from tests.analysis.slowness.runs import BACKWARD, STEP_MS, TRANSFER_MS, own_times
from tests.worlds import world_with


def world_of(own, **more):
    """A world of steps from 0 on, whose transfer varies a little."""
    noise = np.random.default_rng(0).standard_normal(len(own))
    return world_with(own, transfer=TRANSFER_MS * (1 + 0.03 * noise), first=0, **more)


def signals_of(world, pieces=11):
    """Return each signal that was found, and the steps after which it was; the stream comes in pieces of so many."""
    detector, found = Detector(world.ranks), {}
    for first in range(0, len(world), pieces):
        detector.append(world.steps_between(first, first + pieces))
        for signal in detector.recent_signals():
            found.setdefault(signal, first + pieces)
    return found


def found_first(found, **wanted):
    """The first signal with these values, or None."""
    alike = [each for each in found if all(getattr(each, name) == value for name, value in wanted.items())]
    return min(alike, key=lambda each: each.found, default=None)


def test_a_rank_that_becomes_slow_is_found_within_15_steps_with_its_phase_and_first_step():
    phases = own_times(400, seed=1)
    phases[300:, 3, BACKWARD] += 0.1 * STEP_MS
    found = signals_of(world_of(phases))
    assert {each.rank for each in found if each.up} == {3}
    for series in ("own", "backward"):
        signal = found_first(found, series=series, up=True)
        assert signal.found < 315
        assert abs(signal.step - 300) <= 2


def test_a_rank_that_is_slow_in_every_tenth_step_at_random_is_found():
    phases = own_times(1000, seed=7)
    phases[:, 4, BACKWARD] += 70 * (np.random.default_rng(7).random(1000) < 0.1)
    found = signals_of(world_of(phases))
    assert {each.rank for each in found} == {4}
    assert found_first(found, evidence="long_steps").found < 600


def test_the_faster_of_two_ranks_gets_a_signal_down_and_the_other_one_up():
    phases = own_times(900, 2, seed=8)
    phases[700:, 1, BACKWARD] *= 0.5
    found = signals_of(world_of(phases))
    changes = {(each.rank, each.up) for each in found if each.series == "own" and each.evidence == "change"}
    assert changes == {(0, True), (1, False), (None, False)}


def test_longer_inputs_are_no_slowdown():
    rng = np.random.default_rng(10)
    samples = rng.integers(50, 80, 1000)
    samples[800:] += 60
    phases = own_times(1000, seed=10) * (samples / 65)[:, None, None]
    counts = np.repeat(samples[:, None], 8, axis=1)
    assert not signals_of(world_of(phases, samples=counts))
    assert signals_of(world_of(phases))


def test_signals_do_not_depend_on_how_the_stream_is_cut():
    phases = own_times(600, noise=0.1, seed=11) * wandering(600, 8, share=0.02, lasts=16, seed=11)
    phases[300:450, 3, BACKWARD] += 0.2 * STEP_MS
    world, ends = world_of(phases), []
    for pieces in (1, 7, 600):
        detector = Detector(world.ranks)
        for first in range(0, len(world), pieces):
            detector.append(world.steps_between(first, first + pieces))
        ends.append(detector.recent_signals())
    assert ends[0]
    assert ends[1:] == ends[:1] * 2


def test_lost_steps_leave_the_numbers_of_the_others_right():
    phases = own_times(500, seed=12)
    phases[400:, 3, BACKWARD] += 0.2 * STEP_MS
    numbers = np.arange(500) + 100
    numbers[200:] += 5000
    own = found_first(signals_of(replace(world_of(phases), step=numbers)), series="own", up=True)
    assert abs(own.step - 5500) <= 2


def test_steps_without_any_noise_do_no_harm():
    phases = np.broadcast_to(np.full(5, 10.0), (400, 4, 5)).copy()
    phases[300:, 1, 0] += 5
    with np.errstate(all="raise"):
        found = signals_of(world_of(phases))
    assert {each.rank for each in found if each.up} == {1}
    assert not signals_of(world_of(np.zeros((200, 4, 5))))


def test_one_rank_is_compared_with_its_past_alone():
    phases = own_times(1000, 1, seed=14)
    phases[700:] *= 1.3
    assert {each.rank for each in signals_of(world_of(phases))} == {None}


def test_many_ranks_are_tested_each_though_the_noise_is_learned_from_some():
    phases = own_times(260, 300, seed=15)
    phases[200:, 171, BACKWARD] += 0.15 * STEP_MS
    found = signals_of(world_of(phases), pieces=BLOCK_STEPS)
    assert {each.rank for each in found if each.up} == {171}


def test_steps_of_other_ranks_are_refused():
    with pytest.raises(ValueError, match="ranks"):
        Detector(range(3)).append(world_of(own_times(3, 4, seed=1)))
