"""Runs of every shape through detector and description: who is slow, since when, in which phase and pattern."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from ddpmon.analysis.slowness.slowdown import Slowdown
from tests.analysis.noise import bursts, crowded, heavy_tails, spikes, wandering
from tests.analysis.slowness import runs
from tests.analysis.slowness.runs import (
    BACKWARD,
    DATA,
    FIRST,
    FORWARD,
    OTHER,
    STEP_MS,
    TRANSFER_MS,
    own_times,
)
from tests.worlds import world_with

BEGIN, STEPS = 300, 900
QUARTER, TENTH = 0.25 * STEP_MS, 0.1 * STEP_MS
EVERY = 20
"""Steps from one judgement to the next."""


def judgements(own, *, transfer=TRANSFER_MS, host_ranks=None, every=EVERY) -> list[tuple[int, list[Slowdown]]]:
    """Return what the engine says of a run after so many steps, as it goes on."""
    return runs.judgements(world_with(own, transfer=transfer), every=every, host_ranks=host_ranks)


@dataclass(frozen=True)
class Shape:
    """A fault, and its truth. Steps are indices."""

    add: Callable[[np.ndarray], None]
    """Adds the fault to [S, R, 5] own times."""
    ranks: tuple[int, ...] = (3,)
    scope: str = "rank"
    phase: str = "backward"
    pattern: str = "lasting"
    since: int = BEGIN
    until: int | None = None
    told_within: int = EVERY
    """Steps since the first slow one."""
    changed: str | None = "these"
    """None: not tested."""
    world_size: int = 8
    steps: int = STEPS
    host_ranks: int | None = None


def late(ranks=3, phase=BACKWARD, ms=QUARTER, begin=BEGIN, end=None, every=1) -> Callable[[np.ndarray], None]:
    """Some ranks take longer, from one step to before another."""

    def add(own: np.ndarray) -> None:
        own[begin:end:every, ranks, phase] += ms

    return add


def late_at_random(share: float, ms: float) -> Callable[[np.ndarray], None]:
    """Rank 3 takes longer in some steps since BEGIN."""

    def add(own: np.ndarray) -> None:
        slow = np.random.default_rng(7).random(len(own) - BEGIN) < share
        slow[0] = True
        own[BEGIN:, 3, BACKWARD] += ms * slow

    return add


def late_at_times(own: np.ndarray) -> None:
    """Rank 3 takes longer for 7 of every 25 seconds, and makes fewer steps in that time."""
    now_s = 0.0
    for row in own:
        slow = now_s >= 12 and (now_s - 12) % 25 < 7
        row[3, BACKWARD] += 0.4 * STEP_MS * slow
        now_s += (row.sum(axis=1).max() + TRANSFER_MS) / 1e3


def all_slower(own: np.ndarray) -> None:
    own[BEGIN:, :, BACKWARD] *= 1.3


def other_faster(own: np.ndarray) -> None:
    own[BEGIN:, 1] *= 0.7


def another_each_step(own: np.ndarray) -> None:
    whose = np.random.default_rng(3).integers(0, own.shape[1], len(own) - BEGIN)
    own[np.arange(BEGIN, len(own)), whose, BACKWARD] += 0.5 * STEP_MS


def slower_and_slower(own: np.ndarray) -> None:
    own[:, 3, BACKWARD] += np.clip((np.arange(len(own)) - BEGIN) / 500, 0, 1) * 0.5 * STEP_MS


SHAPES = {
    "from the start": Shape(late(begin=0), since=0, told_within=40, changed="unknown", steps=400),
    "since a step": Shape(late()),
    "since a step, by a tenth": Shape(late(ms=TENTH)),
    "for a while": Shape(late(end=600), pattern="stretch", until=599),
    "two ranks": Shape(late([2, 6], DATA), ranks=(2, 6), scope="ranks", phase="data"),
    "five of eight": Shape(late([0, 1, 3, 4, 6], FORWARD), ranks=(0, 1, 3, 4, 6), scope="ranks", phase="forward"),
    "a host": Shape(late([4, 5, 6, 7]), ranks=(4, 5, 6, 7), scope="host", host_ranks=4),
    "of two ranks": Shape(late(1, OTHER), ranks=(1,), phase="other", world_size=2, told_within=40),
    "of three ranks": Shape(late(1, DATA), ranks=(1,), phase="data", world_size=3, told_within=40),
    "of four ranks": Shape(late(1, OTHER), ranks=(1,), phase="other", world_size=4, told_within=40),
    "the other of two became faster": Shape(
        other_faster, ranks=(0,), changed="others", world_size=2, told_within=40
    ),
    "every seventh step": Shape(late(ms=1.5 * STEP_MS, every=7), pattern="steps", changed=None, told_within=80),
    "seconds": Shape(late_at_times, pattern="seconds", since=253, changed=None, steps=2000),
    "a tenth of its steps": Shape(
        late_at_random(0.1, 70), pattern="irregular", changed=None, told_within=100, steps=1200
    ),
    "slower and slower": Shape(slower_and_slower, pattern="ramp", told_within=120),
    "all ranks": Shape(all_slower, ranks=tuple(range(8)), scope="all", told_within=60),
    "another rank each step": Shape(
        another_each_step, ranks=tuple(range(8)), scope="rotating", told_within=80
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_a_run_is_described_as_it_is(name):
    shape = SHAPES[name]
    own = own_times(shape.steps, shape.world_size, seed=1)
    shape.add(own)
    told = judgements(own, host_ranks=shape.host_ranks)
    assert not [slowdowns for steps, slowdowns in told if steps < shape.since and slowdowns]
    first = next(steps for steps, slowdowns in told if any(one.ranks == shape.ranks for one in slowdowns))
    assert first - shape.since <= shape.told_within
    ((_, (one,)),) = told[-1:]
    assert (one.ranks, one.scope, one.phase, one.pattern) == (shape.ranks, shape.scope, shape.phase, shape.pattern)
    assert shape.changed in {None, one.changed}
    earliest, latest = one.since_within
    assert earliest - 5 <= FIRST + shape.since <= latest + 5
    assert (one.until is None) == (shape.until is None)
    if shape.until is not None:
        assert abs(one.until - FIRST - shape.until) <= 2


def noises(steps: int, ranks: int, seed: int) -> dict[str, np.ndarray]:
    """Own times in which nobody is slow."""
    even, wild = own_times(steps, ranks, seed=seed), own_times(steps, ranks, noise=0.15, seed=seed)
    backward = np.arange(5) == BACKWARD
    return {
        "independent, 15%": wild,
        "wandering": even * wandering(steps, ranks, share=0.05, lasts=33, seed=seed),
        "wandering under independent": wild * wandering(steps, ranks, share=0.05, lasts=33, seed=seed),
        "spikes": even + spikes(steps, ranks, often=0.03, ms=60, seed=seed)[..., None] * backward,
        "hiccups": even + heavy_tails(steps, ranks, seed=seed)[..., None] * backward,
        "more ranks than cores": crowded(even, seed=seed),
        "bursts": even * bursts(steps, ranks, share=0.3, lasts=6, seed=seed),
    }


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_noise_makes_nobody_slow(ranks):
    for seed, name in enumerate(noises(1, ranks, 0)):
        told = judgements(noises(300, ranks, seed)[name])
        assert [(name, steps, one) for steps, slowdowns in told for one in slowdowns] == []


def test_ranks_that_are_held_up_in_turn_are_not_slow_and_do_not_hide_one_that_is():
    own = own_times(500, 4, seed=500)
    own[:, 2, DATA] += 1.2 * STEP_MS
    crowd = wandering(300, 4, share=1.0, lasts=30, seed=1)[..., 0] - 1
    own[200:, :, BACKWARD] += 3 * STEP_MS * np.maximum(0.0, crowd)
    told = [slowdowns for steps, slowdowns in judgements(own, every=10) if steps > 40]
    named = [[(one.ranks, one.phase, one.since, one.until) for one in each if one.scope == "rank"] for each in told]
    assert named == [[((2,), "data", FIRST, None)]] * len(told)
    assert not any(one.scope in {"ranks", "host"} for each in told for one in each)


def test_phases_of_equal_sum_make_nobody_slow():
    own = own_times(400, 4)
    own[:, 1] += np.array([QUARTER, 0, -QUARTER, 0, 0])
    assert not any(slowdowns for _, slowdowns in judgements(own))


def test_less_than_two_percent_of_the_time_is_not_described():
    own = own_times(600, 4)
    own[BEGIN:, 1, BACKWARD] += TENTH
    assert [one.ranks for one in judgements(own)[-1][1]] == [(1,)]
    assert judgements(own, transfer=400.0)[-1][1] == []


def test_a_rank_that_is_slow_again_after_it_recovered_is_slow_twice():
    own = own_times(900)
    own[200:280, 2, FORWARD] += QUARTER
    own[600:, 2, DATA] += QUARTER
    _, (now, past) = judgements(own)[-1]
    assert (now.phase, now.until) == ("data", None)
    assert abs(now.since - FIRST - 600) <= 2
    assert (past.phase, past.pattern) == ("forward", "stretch")
    assert abs(past.until - FIRST - 279) <= 2


def test_a_stretch_that_has_ended_stays_as_it_was_described_however_long_ago():
    own = own_times(1700)
    own[300:800, 7, BACKWARD] += 1.4 * QUARTER
    told = [(one.since, one.until) for _, (one,) in judgements(own, every=100)[9:]]
    assert told == [pytest.approx((FIRST + 300, FIRST + 799), abs=2)] * len(told)


def test_one_of_many_ranks_is_slow():
    own = own_times(200, 256)
    own[100:, 200, FORWARD] += TENTH
    _, (one,) = judgements(own)[-1]
    assert (one.ranks, one.phase) == ((200,), "forward")
    assert abs(one.since - FIRST - 100) <= 2


@pytest.mark.parametrize("scale", [1 / STEP_MS, 30_000 / STEP_MS])
def test_the_length_of_a_step_does_not_matter(scale):
    own = own_times(400)
    own[200:, 1, BACKWARD] += QUARTER
    _, (one,) = judgements(own * scale, transfer=TRANSFER_MS * scale)[-1]
    assert (one.ranks, one.phase) == ((1,), "backward")
    assert abs(one.since - FIRST - 200) <= 2


@pytest.mark.parametrize("seed", [2, 6])
def test_ranks_that_other_programs_begin_to_delay_for_a_while_are_not_slow(seed):
    own = own_times(300, 4, seed=seed)
    crowd = wandering(100, 4, share=0.3, lasts=30, seed=seed)[..., 0] - 1
    own[200:, :, BACKWARD] += 3 * STEP_MS * np.maximum(0, crowd)
    assert not [slowdowns for _, slowdowns in judgements(own, every=10) if slowdowns]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("begin", [30, 70])
def test_one_of_few_ranks_that_becomes_slow_soon_after_the_start_is_named(ranks, begin):
    """Nothing shows how far the other's noise wanders, and such a change looks like noise for hundreds of steps."""
    rng = np.random.default_rng(ranks * begin)
    own = np.full((400, ranks, 5), 0.3)
    own[:, :, DATA] = 0.0
    own[:, :, OTHER] = 11 + np.abs(rng.normal(0, 2.0, own.shape[:2]))
    own[begin:, 1, OTHER] += 40
    told = judgements(own)
    first = next(step for step, found in told if found)
    assert first <= 300
    (last,) = told[-1][1]
    assert (last.ranks, last.phase, last.pattern) == ((1,), "other", "lasting")
    assert last.since_within[0] <= FIRST + begin <= last.since_within[1]
