"""Runs that hardly any training makes: the engine describes them or is silent, and never fails.

`pytest --hypothesis-profile hunt` tries other runs than those that are always tried.
"""

from math import isfinite

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ddpmon.analysis.slowness.engine import Engine
from ddpmon.analysis.steps.window import Window
from ddpmon.messages import OWN_PHASES
from tests.worlds import rows, split_of

LONGEST_MS = 700_000.0
"""Six phases of so much are as long as a record can say (2^32 µs)."""
HOSTS = {rank: f"host{rank // 3}" for rank in range(80)}
WINDOW_STEPS = 90
JUDGED_STEPS = 12


class Choice:
    """Draws from lists in which what is usual stands more than once."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def of(self, *options):
        return options[self.rng.integers(len(options))]


def noise(draw, shape):
    """[steps, ranks, 5] Noise as a share of the usual time."""
    kind, share = (
        draw.of("normal", "normal", "none", "heavy", "rare", "louder", "wanders"),
        draw.of(0.03, 0.01, 0.003, 0.3),
    )
    normal = share * draw.rng.standard_normal(shape)
    if kind == "heavy":
        return share * draw.rng.pareto(1.1, shape)
    if kind == "rare":
        return normal + 3 * (draw.rng.random(shape) < 0.01)
    if kind == "louder":
        return normal * np.where(np.arange(shape[0]) < draw.of(50, 90, 120), 1, 30)[:, None, None]
    return {"none": 0 * normal, "normal": normal, "wanders": np.cumsum(normal, axis=0) / 5}[kind]


def slowed(draw, own):
    """Make some ranks slower, or faster, in some steps, which may come again and again."""
    steps, ranks = np.arange(own.shape[0]), np.arange(own.shape[1])
    begin, lasts, every = draw.of(0, 1, 40, 60, 80, 120), draw.of(1000, 1000, 60, 20, 1), draw.of(1, 1, 1, 7, 40)
    slow = (steps >= begin) & (steps < begin + lasts) & (steps % every < draw.of(1, 1, 5))
    slow &= draw.rng.random(len(steps)) < draw.of(1, 1, 0.2)
    turn = draw.of(1, 1, 7, 60)
    whose = draw.of([[0]], [[0]], [[1]], [[0, 1]], [[3, 4, 5]], ranks[1:][None], ranks[None], steps[:, None] // turn)
    late = slow[:, None] & (ranks[None, :, None] == np.array(whose)[:, None] % len(ranks)).any(axis=2)
    own[..., draw.of([2], [0], [0, 1, 2, 3, 4])] *= np.where(late, draw.of(1.3, 1.3, 2, 2, 1.03, 10, 0.5, 0), 1)[
        ..., None
    ]


def world(draw, ranks, first):
    """Steps of one set of ranks, the numbers of which rise from `first` on."""
    steps = draw.of(150, 220, 150, 60, 9, 1)
    usual = draw.of(46.0, 46.0, 46.0, 46.0, 46.0, 1.0, 0.003, 3e4, LONGEST_MS, 0.0) * np.array(
        draw.of([0.1, 0.2, 0.4, 0.05, 0.05], [0.1, 0.2, 0.4, 0.05, 0.05], [0, 0, 1, 0, 0], [0.5, 0, 0, 0, 0.5])
    )
    own = usual * np.maximum(0.0, 1 + noise(draw, (steps, ranks, 5)))
    for _ in range(draw.of(1, 2, 3)):
        slowed(draw, own)
    samples = draw.of(0, 0, 8, draw.rng.integers(0, 99, (steps, ranks)), np.arange(ranks) % 2)
    table = rows(np.clip(own, 0, LONGEST_MS), transfer=draw.of(9.0, 9.0, 0.0, LONGEST_MS), samples=samples)
    lost = np.cumsum(draw.rng.integers(1, 1000, steps) * (draw.rng.random(steps) < draw.of(0, 0, 0.1, 1)))
    table["step"] = first + (np.arange(steps) + lost)[:, None]
    return split_of(table)


@given(seed=st.integers(0, 1 << 32))
def test_no_run_is_too_odd_to_be_described(seed):
    draw = Choice(seed)
    window, engine, first, waiting = Window(WINDOW_STEPS), Engine(), 1, 0
    for _ in range(draw.of(1, 1, 2, 3)):
        run, piece = world(draw, draw.of(4, 8, 3, 2, 2, 5, 1, 70), first), draw.of(5, 12, 12, 40)
        first = int(run.step[-1]) + 1
        for begin in range(0, len(run), piece):
            part = run.between(begin, begin + piece)
            window.append(part)
            engine.append(part)
            waiting += len(part)
            if waiting >= JUDGED_STEPS or begin + piece >= len(run):
                waiting = 0
                for one in engine.judge(window.world(), HOSTS):
                    assert_possible(one, run.ranks, int(part.step[-1]))


def assert_possible(one, ranks, last):
    numbers = (one.share, one.excess_ms, one.cost_ms, one.gain, one.gain_alone, one.increase, *one.phases_ms.values())
    assert all(isfinite(value) for value in numbers)
    assert set(one.ranks) <= set(ranks)
    assert set(OWN_PHASES) <= set(one.phases_ms)
    assert one.since_within[0] <= one.since <= one.since_within[1]
    assert one.since <= (last if one.until is None else one.until) <= last
    assert 0 < one.share <= 1
    assert one.cost_ms >= 0
    assert one.gain >= 1
    assert one.gain_alone >= 1
