"""FSDP and FSDP2 on real ranks: the same weights bare and watched, and a late rank is named by who waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.steps.alignment import Aligner
from ddpmon.analysis.steps.waits import split_waits
from ddpmon.messages import SYNC_COLLECTIVE
from tests.findings import judged
from tests.probe.conftest import SCRIPTS, Both, Ear, adds_up, bare_and_watched, listening, watched

pytestmark = pytest.mark.e2e
SCRIPT = SCRIPTS / "sharded.py"
WAYS = ("fsdp2", "recomputed", "blocks", "fsdp")


@pytest.fixture(scope="module")
def both(socket_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """All ways in one bare run and one watched run."""
    with listening(socket_dir) as ear:
        yield bare_and_watched(ear, tmp_path_factory.mktemp("sharded"), 2, SCRIPT, *WAYS)


@pytest.mark.parametrize("way", WAYS)
def test_weights_are_bit_identical(both: Both, way: str) -> None:
    assert both.same_weights(way)


def test_every_step_is_the_optimizers_and_has_its_forward_and_samples(both: Both) -> None:
    for rank in (0, 1):
        steps = both.ear.steps(rank)
        assert len(steps) == 12 * len(WAYS)
        assert {step.samples for step in steps[1:]} == {8}
        for step in steps:
            assert adds_up(step)
            assert step.forward_us > 0
            assert {sync.kind for sync in step.syncs} == {SYNC_COLLECTIVE}


def test_the_kind_is_told_as_it_changes(both: Both) -> None:
    for rank in (0, 1):
        told = [hello.parallelism for hello in both.ear.hellos() if hello.rank == rank and hello.parallelism]
        assert told[-1] == "FSDP"
        assert set(told) <= {"FSDP2", "FSDP"}


def test_a_rank_that_is_late_with_its_data_is_named(ear: Ear) -> None:
    watched(ear, 2, SCRIPT, "tensor_parallel", "--late", "1", "--steps", "60")
    assert {hello.parallelism for hello in ear.hellos()[-2:]} == {"tensor parallel"}
    aligner = Aligner(2)
    for rank in (0, 1):
        aligner.add(rank, ear.steps(rank)[1:])
    (rows,) = aligner.pop_complete(final=True)
    world = split_waits(rows)
    assert (world.critical == 1).mean() > 0.9
    own, wait = world.mean("own_ms"), world.mean("wait_ms")
    assert own[1] - own[0] > 20, "what it slept is its own time"
    assert wait[0] - wait[1] > 20, "and the other's wait"
    late = judged(world, Evidence(world_size=2))[0]
    assert (late.kind, late.ranks, late.phase) == ("straggler", [1], "data")
