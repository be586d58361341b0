"""Slowdowns that move from rank to rank, as the engine describes them while a run unfolds."""

import numpy as np
import pytest

from ddpmon.analysis.slowness.rotation_test import TurnDetector
from ddpmon.analysis.steps.world import World
from tests.analysis.slowness.runs import FIRST, judgements
from tests.worlds import OWN, own_times, world_with

STEP_MS = sum(OWN) + 6


def unfolds(world: World):
    """Yield the last step and the slowdowns that move, at each judgement."""
    for steps, told in judgements(world):
        yield FIRST + steps - 1, [one for one in told if one.scope == "rotating"]


def found_in(own, block=10):
    """Return the turns that a detector finds in [S, R] own times."""
    detector, numbers = TurnDetector(own.shape[1]), np.arange(len(own)) + FIRST
    found = []
    for begin in range(0, len(own), block):
        detector.add_block(own[begin : begin + block], numbers[begin : begin + block])
        found += [detector.current_turns] if detector.current_turns else []
    return found


def test_one_rank_with_long_steps_takes_no_turns():
    own = own_times(1500, 8, noise=0.03).sum(axis=2)
    own[np.random.default_rng(0).random(1500) < 0.4, 3] += STEP_MS
    assert found_in(own) == []


@pytest.mark.parametrize(("ranks", "within"), [(2, 220), (3, 120), (8, 60)])
def test_another_rank_each_step_is_told_with_its_first_and_last_step_and_cost(ranks, within):
    well = own_times(1000, ranks, noise=0.03, seed=1)
    own = well.copy()
    whose = np.random.default_rng(2).integers(0, ranks, 1000)
    own[np.arange(300, 700), whose[300:700], 1] += 15
    world = world_with(own)
    moments = list(unfolds(world))
    told = [(step, one) for step, ones in moments for one in ones if one.until is None]
    step, first = told[0]
    assert 300 < step - FIRST < 300 + within
    assert first.since_within[0] <= FIRST + 300 <= first.since_within[1]
    assert {one.since for _, one in told} == {first.since}
    assert (first.phase, first.work) == ("forward", "")
    last = told[-1][1]
    lost = float((own[300:700].sum(axis=2).max(axis=1) - well[300:700].sum(axis=2).max(axis=1)).sum())
    assert last.cost_ms == pytest.approx(lost, rel=0.05)
    *_, (_, (ended,)) = moments
    assert ended.until == pytest.approx(FIRST + 699, abs=3 if ranks > 3 else 15)


def tokens_of(rng, steps, ranks):
    """[S, R] Tokens of batches of uneven length."""
    return rng.lognormal(5.0, 0.6, (steps, ranks, 16)).sum(axis=2).round().astype(int)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_uneven_work_of_each_step_is_told_as_what_moves_until_it_is_even(ranks):
    rng = np.random.default_rng(0)
    tokens = tokens_of(rng, 400, ranks)
    tokens[200:] = tokens[200:, :1]
    own = own_times(400, ranks, noise=0.02) * (tokens / tokens.mean())[..., None]
    world = world_with(own, tokens=tokens)
    moments = list(unfolds(world))
    told = [one for step, ones in moments if step < 200 for one in ones]
    even = own.sum(axis=2).mean(axis=1)[:200]
    gain = float((world.step_ms[:200]).sum() / (world.step_ms[:200] - own.sum(axis=2).max(axis=1)[:200] + even).sum())
    assert {(one.work, one.until) for one in told} == {("tokens", None)}
    assert told[-1].gain == pytest.approx(gain, rel=0.02)
    assert [one.until is None for one in moments[-1][1]] == [False]


def test_tokens_that_differ_without_costing_time_are_not_why():
    rng = np.random.default_rng(0)
    own = own_times(300, 4, noise=0.03)
    own[np.arange(300), rng.integers(0, 4, 300), 1] += 15
    *_, (_, (one,)) = unfolds(world_with(own, tokens=tokens_of(rng, 300, 4)))
    assert one.work == ""
    assert all(not ones for _, ones in unfolds(world_with(own_times(300, 4, noise=0.2), tokens=tokens_of(rng, 300, 4))))
