"""Sums since the start of a run: the same efficiencies as of all steps at once, however the steps came."""

import itertools

import msgspec
import numpy as np
import pytest

from ddpmon.analysis.steps.step_sums import SinceStart, StepSums
from ddpmon.analysis.steps.summary import summarise
from tests.worlds import own_times, world_with


def made(steps=400, ranks=5, first=2):
    own = own_times(steps, ranks, noise=0.3, seed=4)
    own[steps // 2 :, 3, 1] += 6.0
    return world_with(own, first=first, transfer=4 + np.arange(steps) % 3)


def counted(world, parts):
    since = SinceStart()
    cuts = np.linspace(0, len(world), parts + 1).astype(int)
    for begin, end in itertools.pairwise(cuts):
        since.append(world.steps_between(begin, end))
    return since.sums


@pytest.mark.parametrize("parts", [1, 7, 400])
def test_they_tell_what_all_steps_at_once_tell(parts):
    world = made()
    sums, whole = counted(world, parts), summarise(world)
    tree = sums.efficiency
    for name in ("parallel", "load_balance", "load_balance_persistent", "load_balance_moving", "communication"):
        assert getattr(tree, name) == pytest.approx(getattr(whole.sums.efficiency, name))
    assert sums.gain_without_waiting == pytest.approx(whole.sums.gain_without_waiting)
    assert sums.slowest_rank == (3, pytest.approx(whole.over_median[3]))
    assert (sums.first, sums.last, sums.steps) == (2, 401, 400)
    assert sums.exposed_ms / sums.steps == pytest.approx(world.exposed_ms.mean())
    assert sums.exposed_wait_ms / sums.steps == pytest.approx(world.exposed_wait_ms.mean())
    assert sums.gradient_bytes / sums.steps == pytest.approx(world.gradient_bytes.mean())
    assert sums.length_ms / sums.steps == pytest.approx(float(whole.step_ms.mean()))


def test_steps_that_it_knows_are_not_counted_again():
    world = made()
    since = SinceStart()
    since.append(world.steps_between(0, 300))
    since.append(world.steps_between(200, 400))
    since.append(world.steps_between(390, 400))
    assert since.sums.steps == 400
    assert since.sums.own_ms == pytest.approx(world.own_ms.sum(axis=0).tolist())


def test_it_goes_on_from_what_was_written_down():
    world = made()
    before = SinceStart()
    before.append(world.steps_between(0, 300))
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(before.sums), type=StepSums)
    after = SinceStart(kept)
    after.append(world.steps_between(100, 400))
    whole = counted(world, 1)
    assert (after.sums.first, after.sums.last, after.sums.steps) == (2, 401, 400)
    assert after.sums.own_ms == pytest.approx(whole.own_ms)
    assert after.sums.slowest_ms == pytest.approx(whole.slowest_ms)


def test_other_ranks_start_it_anew():
    since = SinceStart()
    since.append(made(ranks=5))
    since.append(made(ranks=4, steps=50, first=500))
    assert (since.sums.ranks, since.sums.first, since.sums.steps) == ((0, 1, 2, 3), 500, 50)


def test_no_step_is_no_sum():
    since = SinceStart()
    since.append(made().steps_between(0, 0))
    assert since.sums is None


@pytest.mark.parametrize("change", [{"own_ms": [1.0]}, {"steps": 0}, {"last": 1}])
def test_sums_that_cannot_be_are_refused(change):
    with pytest.raises(ValueError, match="sums of"):
        SinceStart(msgspec.structs.replace(counted(made(), 1), **change))
