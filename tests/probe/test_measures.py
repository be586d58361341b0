"""Test the reports of real ranks: every step, phases that add up, delays where they are."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

import pytest

from ddpmon.messages import OWN_PHASES, SYNC_BUFFERS, SYNC_COLLECTIVE, SYNC_GRADIENTS, Step
from tests.probe.conftest import SCRIPTS, Ear, adds_up, forked, watched

pytestmark = pytest.mark.e2e
SMALL = SCRIPTS / "small_ddp.py"
STEPS_EACH = 20
"""Steps in which one phase is slow, where each of them is one after the other."""
DELAY_US = 30_000
BUSY = 1.5
"""Times a delay that it shows as at most, where other programs have the cores: they only ever add to it."""


def own(step: Step) -> dict[str, int]:
    return {phase: getattr(step, f"{phase}_us") for phase in OWN_PHASES}


def low(values: Iterable[float]) -> float:
    """The lower quartile: a machine that is busy with other things only ever adds to what a script takes."""
    return statistics.quantiles(values, n=4)[0]


def low_own(steps: list[Step], phase: str) -> float:
    return low(own(step)[phase] for step in steps)


def assert_late_in(phase: str, late: list[Step], other: list[Step]) -> None:
    excess = {p: low_own(late, p) - low_own(other, p) for p in OWN_PHASES}
    assert 0.8 * DELAY_US < excess.pop(phase) < BUSY * DELAY_US
    assert max(map(abs, excess.values())) < DELAY_US / 4


def test_every_step_arrives_once_and_its_phases_add_up(ear: Ear) -> None:
    done = watched(ear, 2, SMALL, "--steps", "60")
    losses = [float(value) for value in done.stdout.split()[1:]]
    for rank in (0, 1):
        steps = ear.steps(rank)
        assert [step.step for step in steps] == list(range(1, 61))
        for step in steps:
            assert adds_up(step)
            assert [sync.kind for sync in step.syncs][-2:] == [SYNC_BUFFERS, SYNC_GRADIENTS]
            assert step.syncs[-1].end_us == pytest.approx(step.length_us, abs=1)
            assert step.samples == 16
    # float32 as the script printed it
    assert [step.loss for step in ear.steps(0)] == losses
    hello = ear.hellos()[-1]
    assert (hello.world_size, hello.device, hello.backend) == (2, "cpu", "gloo")
    model_parameters = 32 * 64 + 64 + 64 * 2 + 64 * 10 + 10
    assert hello.parameters == model_parameters
    assert hello.gradient_bytes == 4 * model_parameters
    assert ear.steps(0)[-1].syncs[-1].payload_bytes == 4 * model_parameters
    assert any(sample.rss_bytes and sample.rss_bytes > 1 << 26 for b in ear.batches(0) for sample in b.samples)
    bare = forked(2, SMALL, "--steps", "60", address=None)
    assert bare.stdout == done.stdout


def test_a_delay_shows_in_its_phase_on_its_rank_and_nowhere_else(ear: Ear) -> None:
    watched(ear, 2, SMALL, "--slow", "each:1", "--steps", str(STEPS_EACH * len(OWN_PHASES) + STEPS_EACH - 1))
    for number, phase in enumerate((*OWN_PHASES[1:], OWN_PHASES[0]), 1):
        late, other = ([step for step in ear.steps(rank) if step.step // STEPS_EACH == number] for rank in (1, 0))
        assert_late_in(phase, late, other)
    named = [low(step.named_us["augment"] for step in steps) for steps in (late, other)]  # in the phase `data`
    assert 0.8 * DELAY_US < named[0] - named[1] < BUSY * DELAY_US
    assert all(0 < step.named_us["augment"] <= step.data_us for step in late)


def test_a_rank_that_waits_for_the_buffers_of_a_late_one_does_not_look_slow(ear: Ear) -> None:
    """Rank 0 broadcasts them in forward."""
    watched(ear, 2, SMALL, "--slow", "forward:0")
    assert_late_in("forward", ear.steps(0)[5:], ear.steps(1)[5:])


def test_a_collective_of_the_script_is_a_synchronisation(ear: Ear) -> None:
    """Rank 0 is late by its own work; rank 1, blocked in the collective, must not look busy."""
    watched(ear, 2, SMALL, "--collective")
    late, steps = (ear.steps(rank)[5:] for rank in (0, 1))
    assert low_own(late, "other") > DELAY_US * 0.9
    assert low_own(steps, "other") < DELAY_US / 4
    assert all(any(sync.kind == SYNC_COLLECTIVE for sync in step.syncs) for step in steps)
