"""The ways people train with DDP: each works as without us, ends with the same weights, and is measured right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ddpmon.messages import (
    CHECKPOINT,
    COMPILATION,
    EVALUATION,
    STARTING_WORKERS,
    SYNC_BUFFERS,
    SYNC_COLLECTIVE,
    SYNC_GRADIENTS,
    WEIGHTS,
)
from tests.probe.conftest import SCRIPTS, Ear, Ways, adds_up, listening, watched, ways

pytestmark = pytest.mark.e2e
SCRIPT = SCRIPTS / "ways.py"
STEPS = {
    "plain": (12, 12),
    "batchnorm": (12, 12),
    "accumulation": (12, 12),
    "autocast_scaler": (12, 12),
    "accumulation_ends_early": (12, 12),
    "scaler_skips": (12, 12),
    "manual_optimization": (12, 12),
    "gan": (12, 12),
    "unused_parameters": (12, 12),
    "loaders": (36, 36),
    "workers_each_epoch": (18, 18),
    "own_iterator": (12, 12),
    "evaluation": (12, 12),
    "compiled_around": (12, 12),
    "compiled_inside": (12, 12),
    "inside_collectives": (8, 8),
    "normalised_over_ranks": (12, 12),
    "waits": (12, 12),
    "compiled_collectives": (12, 12),
    "marked": (12, 12),
}
"""Steps of each rank."""
SEVERAL = {"gan": 3, "marked": 2}
"""Gradient synchronisations in a step, where that is not one."""


@pytest.fixture(scope="module")
def both(socket_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    with listening(socket_dir) as ear:
        yield ways(ear, tmp_path_factory.mktemp("ways"), SCRIPT, STEPS)


@pytest.mark.parametrize("way", STEPS)
def test_weights_are_bit_identical(both: Ways, way: str) -> None:
    assert both.same_weights(way)


def test_a_script_prints_what_it_printed(both: Ways) -> None:
    assert sorted(both.watched.splitlines()) == sorted(both.bare.splitlines())


@pytest.mark.parametrize("way", STEPS)
def test_every_step_is_counted_and_adds_up(both: Ways, way: str) -> None:
    assert tuple(len(steps) for steps in both.steps[way]) == STEPS[way]
    for step in (step for steps in both.steps[way] for step in steps):
        assert adds_up(step)
        assert sum(sync.kind == SYNC_GRADIENTS for sync in step.syncs) == SEVERAL.get(way, 1)
        assert step.forward_us > 0
        assert step.backward_us > 0


@pytest.mark.parametrize(
    "way",
    [
        *("plain", "accumulation", "accumulation_ends_early", "autocast_scaler"),
        *("scaler_skips", "manual_optimization", "loaders", "compiled_around"),
    ],
)
def test_the_loss_is_what_the_script_means_by_it(both: Ways, way: str) -> None:
    """Unscaled under GradScaler, summed under accumulation, also where an epoch's last step has fewer batches."""
    for rank in (0, 1):
        assert [step.loss for step in both.steps[way][rank]] == pytest.approx(both.losses(way, rank), rel=1e-6)


def test_samples_are_those_of_all_forwards_of_a_step_or_what_the_script_says(both: Ways) -> None:
    told = {"plain": 8, "accumulation": 24, "gan": 8, "marked": 5}
    for way, samples in told.items():
        assert {step.samples for step in both.steps[way][0]} == {samples}


def test_every_model_of_a_step_has_a_loss_of_its_own(both: Ways) -> None:
    """The losses of the GAN's critic, two a step, belong together."""
    losses = {
        name: [scalar for batch in both.ear.batches(0) for scalar in batch.scalars if scalar.name == f"loss {name}"]
        for name in ("Sequential", "Linear")
    }
    steps = both.steps["gan"][0]
    for critic, generator, step in zip(*losses.values(), steps, strict=True):
        assert critic.step == generator.step == step.step
        assert step.loss == pytest.approx(critic.value + generator.value, rel=1e-6)
        assert critic.value > 1 > generator.value


def test_batches_that_a_step_adds_up_are_counted(both: Ways) -> None:
    told = {way: [step.backwards for step in both.steps[way][0]] for way in ("plain", "accumulation_ends_early", "gan")}
    assert told == {"plain": [1] * 12, "accumulation_ends_early": [*[4] * 11, 2], "gan": [1] * 12}


def test_an_evaluation_and_a_checkpoint_are_no_part_of_a_step(both: Ways) -> None:
    for rank, wanted in ((0, {EVALUATION, CHECKPOINT}), (1, {EVALUATION})):
        steps = both.steps["evaluation"][rank]
        assert {pause.kind for pause in steps[6].pauses} == wanted
        assert all(not step.pauses for step in (*steps[1:6], *steps[7:]))


def test_workers_that_are_started_are_no_part_of_a_step(both: Ways) -> None:
    """Workers start in each epoch, for the evaluation too; workers that stay start once.

    The start of each sleeps for 0.2 s. As that is all in pauses, and a step adds up, none of it is in another phase.
    """
    for steps in both.steps["workers_each_epoch"]:
        starts = [[one.end_us - one.start_us for one in step.pauses if one.kind == STARTING_WORKERS] for step in steps]
        assert sum(starts[0]) > 200_000
        for first in (6, 12):
            assert sum(starts.pop(first)) > 400_000, "those of the evaluation and of the epoch"
            assert {EVALUATION, CHECKPOINT} < {pause.kind for pause in steps[first].pauses}
            starts.insert(first, [])
        assert not any(starts[1:])
    for steps in both.steps["loaders"]:
        begun = [any(pause.kind == STARTING_WORKERS for pause in step.pauses) for step in steps]
        assert [place for place, starts in enumerate(begun) if starts] == [0, 6, 12, 24]


@pytest.mark.parametrize("way", ["compiled_around", "compiled_inside"])
def test_a_compilation_is_no_part_of_a_step(both: Ways, way: str) -> None:
    """The pauses are as long as Dynamo says that it compiled, and no phase of a step counts them."""
    for rank, steps in enumerate(both.steps[way]):
        compiled_us = torch.load(both.folder / f"watched.compiled_s.{rank}")[way] * 1e6
        pauses = [pause for step in steps for pause in step.pauses if pause.kind == COMPILATION]
        assert sum(pause.end_us - pause.start_us for pause in pauses) > 0.9 * compiled_us > 0
        assert all(not step.pauses for step in steps[3:])


def test_the_learning_rate_is_the_optimizers(both: Ways) -> None:
    assert {step.learning_rate for step in both.steps["plain"][0][1:]} == {0.1}
    rates = [step.learning_rate for step in both.steps["autocast_scaler"][0][1:]]
    assert rates == sorted(rates, reverse=True)
    assert len(set(rates)) == len(rates), "a scheduler changes it each step"


def test_synchronisations_are_told_apart(both: Ways) -> None:
    assert all(step.syncs[0].kind == SYNC_BUFFERS for step in both.steps["batchnorm"][1][1:])
    steps = both.steps["inside_collectives"][0][1:]  # in the first one lies the barrier between two ways
    collectives = [sync for step in steps for sync in step.syncs if sync.kind == SYNC_COLLECTIVE]
    # the asynchronous one when it is waited for, barrier, all_gather_object (one, whatever it calls inside), all_gather
    assert len(collectives) == 4


def test_collectives_inside_forward_and_backward_are_synchronisations(both: Ways) -> None:
    """SyncBatchNorm's: time blocked there is no rank's own."""
    for step in both.steps["normalised_over_ranks"][1][1:]:
        assert [sync.kind for sync in step.syncs] == [SYNC_COLLECTIVE, SYNC_COLLECTIVE, SYNC_GRADIENTS]
        forward, backward, gradients = step.syncs
        assert forward.end_us <= backward.arrival_us
        assert backward.end_us <= gradients.end_us
        assert backward.payload_bytes == 4 * 32


def test_collectives_that_are_waited_for_later_are_synchronisations_then(both: Ways) -> None:
    for step in both.steps["waits"][0][1:]:
        assert [sync.kind for sync in step.syncs] == [SYNC_COLLECTIVE, SYNC_COLLECTIVE, SYNC_GRADIENTS]


def test_gradients_that_ddp_never_saw_are_counted(ear: Ear) -> None:
    """The script calls model.module: a step is the optimizer's then, and the mistake is told."""
    watched(ear, 2, SCRIPT, "never_synchronised")
    assert len(ear.steps(0)) == 12
    assert ear.batches(0)[-1].unsynchronised == 12
    told = [(d.step, d.updates) for batch in ear.batches(0) for d in batch.digests]
    assert told == [(1, 1), (10, 10)]


def test_ddp_scripts_synchronise_every_optimizer_step(both: Ways) -> None:
    assert both.ear.batches(0)[-1].unsynchronised == 0


def test_replicas_that_are_the_same_have_the_same_digests(both: Ways) -> None:
    digests = [
        [(d.step, d.model, d.value) for batch in both.ear.batches(rank) for d in batch.digests if d.of == WEIGHTS]
        for rank in (0, 1)
    ]
    assert len(digests[0]) >= 3
    assert digests[0] == digests[1]
    assert len({value for *_, value in digests[0]}) > 1


def test_an_iterator_that_is_not_torchs_is_waited_for_in_data_too(both: Ways) -> None:
    for steps in both.steps["own_iterator"]:
        assert all(step.data_us >= 10_000 for step in steps[1:])
