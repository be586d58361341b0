"""Test that the script's optimizers define a step, in every kind of loop, and that weights stay the same."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpmon.messages import EVALUATION, OUT_OF_DATA, SYNC_GRADIENTS
from tests.probe.conftest import SCRIPTS, Ways, adds_up, listening, ways

pytestmark = pytest.mark.e2e
SYNCHRONISATIONS: dict[str, list[int]] = {
    "without_optimizer": [1] * 4,  # before any optimizer is made
    "gradient_cache": [4] * 4,
    "cached_loss": [2] * 4,
    "lbfgs_long": [9] * 4,
    "optimizer_in_backward": [1] * 4,
    "teacher": [1] * 4,
    "rollouts": [1] * 8,
    "evaluation_by_loader": [1] * 9,
    "graphs": [1] * 4,
    "zero": [4] * 4,
}
"""Gradient synchronisations of each step."""
DELAY_US = 30_000
"""Extra microseconds of rank 1 for each chunk and each move, in the ways that delay it."""


@pytest.fixture(scope="module")
def both(socket_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    with listening(socket_dir) as ear:
        yield ways(ear, tmp_path_factory.mktemp("ways"), SCRIPTS / "ways.py", [*SYNCHRONISATIONS, "join_uneven"])


@pytest.mark.parametrize("way", SYNCHRONISATIONS)
def test_every_step_is_counted_and_adds_up(both: Ways, way: str) -> None:
    assert both.same_weights(way)
    for steps in both.steps[way]:
        synchronisations = [sum(sync.kind == SYNC_GRADIENTS for sync in step.syncs) for step in steps]
        assert synchronisations == SYNCHRONISATIONS[way]
        for step in steps:
            assert adds_up(step)
            assert step.forward_us > 0
            assert step.backward_us > 0


@pytest.mark.parametrize("way", ["gradient_cache", "cached_loss", "zero"])
def test_the_loss_is_what_the_script_means_by_it(both: Ways, way: str) -> None:
    for rank in (0, 1):
        assert [step.loss for step in both.steps[way][rank]] == pytest.approx(both.losses(way, rank), rel=1e-6)


def test_chunks_of_a_cached_batch_are_no_accumulated_batches(both: Ways) -> None:
    for way, batches in {"gradient_cache": 1, "cached_loss": 1, "zero": 4}.items():
        assert {step.backwards for step in both.steps[way][0]} == {batches}, way


def test_samples_are_those_that_are_trained_on(both: Ways) -> None:
    for way, samples in {"gradient_cache": 8, "cached_loss": 8, "teacher": 8, "rollouts": 8, "graphs": 4}.items():
        assert {step.samples for step in both.steps[way][0]} == {samples}, way


@pytest.mark.parametrize(
    ("way", "phase", "delays", "every"),
    [("cached_loss", "forward_us", 4, 1), ("teacher", "forward_us", 1, 1), ("rollouts", "other_us", 3, 2)],
)
def test_a_rank_that_is_late_in_what_a_step_does_besides_is_waited_for(
    both: Ways, way: str, phase: str, delays: int, every: int
) -> None:
    """Forwards without gradients, and backward calls inside of another: its own time, and no evaluation."""
    waiting, late = (steps[::every] for steps in both.steps[way])
    assert all(getattr(step, phase) >= delays * DELAY_US for step in late)
    waited_us = [sum(sync.end_us - sync.arrival_us for sync in step.syncs) for step in waiting[1:]]
    assert statistics.median(waited_us) > delays * DELAY_US / 2
    assert all(pause.kind != EVALUATION for step in (*waiting[1:], *late[1:]) for pause in step.pauses)


def test_a_loader_that_is_gone_through_without_gradients_is_an_evaluation(both: Ways) -> None:
    epoch: list[list[int]] = [[EVALUATION], [], []]
    for steps in both.steps["evaluation_by_loader"]:
        pauses = [[pause.kind for pause in step.pauses if pause.kind == EVALUATION] for step in steps]
        assert pauses == [[], [], [], *epoch, *epoch]


def test_a_rank_out_of_data_counts_the_steps_of_the_others(both: Ways) -> None:
    """Under Join. It does not train in them: they are set apart, and the epoch after them has the same numbers."""
    waiting, others = both.steps["join_uneven"]
    assert both.same_weights("join_uneven")
    assert [step.step for step in waiting] == [step.step for step in others]
    assert [len([p for p in step.pauses if p.kind == OUT_OF_DATA]) for step in waiting] == [0, 0, 2, 2] * 2
    assert [step.samples for step in waiting] == [16, 16, 0, 0] * 2
    assert [step.samples for step in others] == [16] * 8
    for mine, theirs in zip(waiting, others, strict=True):
        assert mine.end_us > theirs.end_us - theirs.length_us, "the same step at the same time"
        assert theirs.end_us > mine.end_us - mine.length_us


def test_no_gradients_are_called_unsynchronised(both: Ways) -> None:
    """Gradients of embeddings, and of the loss around the others, are no parameters' gradients."""
    assert both.ear.batches(0)[-1].unsynchronised == 0
