"""Made-up runs, described as they unfold, with the signals of a detector that is never wrong."""

import numpy as np

from ddpmon.analysis.slowness.detector import Signal
from ddpmon.analysis.slowness.engine import Engine, describe_slowdowns
from ddpmon.analysis.slowness.past import Past
from ddpmon.analysis.steps.window import Window
from ddpmon.messages import OWN_PHASES
from tests.worlds import world_with

STEP_MS = 46.0
SHARES = np.array([0.05, 0.25, 0.40, 0.05, 0.05])
"""Share of a step that each phase takes; the rest is transfer."""
TRANSFER_MS = 0.2 * STEP_MS
FIRST = 2
"""Number of the first step of a run."""
DATA, FORWARD, BACKWARD, OPTIMIZER, OTHER = range(5)
WINDOW_STEPS, PART_STEPS = 600, 20
DELAY_STEPS = 12
"""Steps after which the detector signals a change."""


def own_times(steps, ranks=8, *, noise=0.05, seed=0):
    """[steps, ranks, 5] ms"""
    rng = np.random.default_rng(seed)
    return SHARES * STEP_MS * np.maximum(0.1, 1 + noise * rng.standard_normal((steps, ranks, 5)))


def up(rank, index, series="own", evidence="change"):
    return Signal(rank, series, FIRST + index, True, 8.0, evidence, FIRST + index, FIRST + index)


def down(rank, index, series="own", evidence="change"):
    return Signal(rank, series, FIRST + index, False, 8.0, evidence, FIRST + index, FIRST + index)


def play(own, moments, signals, *, transfer=TRANSFER_MS, hosts=None):
    """Describe a run after so many steps. Returns the descriptions, one list for each of the moments."""
    world = world_with(own, transfer=transfer)
    window, past, described, results = Window(WINDOW_STEPS), Past(), [], []
    hosts = hosts or dict.fromkeys(world.ranks, "here")
    for begin in range(0, len(world), PART_STEPS):
        part = world.steps_between(begin, begin + PART_STEPS)
        window.append(part)
        past.append(part)
        end = begin + len(part)
        if end in moments:
            known = [signal for signal in signals if signal.step + DELAY_STEPS <= FIRST + end]
            described = describe_slowdowns(window.as_world(), past, known, hosts, described)
            results.append(described)
    assert len(results) == len(moments)
    return results


def judgements(world, *, every=20, host_ranks=None):
    """Return what the engine says of a run after so many steps, as it goes on. host_ranks: all are on one host if not.

    Returns:
        [(steps so far, slowdowns)]

    """
    window, engine, told = Window(WINDOW_STEPS), Engine(), []
    hosts = {rank: f"host{rank // (host_ranks or len(world.ranks))}" for rank in world.ranks}
    for begin in range(0, len(world), every):
        part = world.steps_between(begin, begin + every)
        window.append(part)
        engine.append(part)
        told.append((begin + len(part), list(engine.judge(window.as_world(), hosts))))
    return told


def length_ms(own, transfer=TRANSFER_MS):
    """[S] Length of each step."""
    return own.sum(axis=2).max(axis=1) + transfer


def true_gain(own, without, begin=0, end=None):
    """Return the time of a run, from one step to another, over its time without the fault."""
    return length_ms(own)[begin:end].sum() / length_ms(without)[begin:end].sum()


def phase(index):
    return OWN_PHASES[index]
