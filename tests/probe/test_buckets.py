"""--buckets: every bucket is told of, and not one bit of the training changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpmon.messages import BUCKETS, SYNC_GRADIENTS, Layout
from tests.probe.conftest import SCRIPTS, Both, bare_and_watched, listening
from tests.probe.scripts.buckets import WAYS, WIDTH

pytestmark = pytest.mark.e2e
SCRIPT = SCRIPTS / "buckets.py"


@pytest.fixture(scope="module")
def both(socket_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """All ways, bare and recorded, on three ranks: thirds round, halves do not."""
    with listening(socket_dir) as ear:
        folder = tmp_path_factory.mktemp("buckets")
        yield bare_and_watched(ear, folder, 3, SCRIPT, DDPMON_BUCKETS="1")


@pytest.mark.parametrize("way", WAYS)
def test_weights_are_bit_identical(both: Both, way: str) -> None:
    assert both.same_weights(way)


def test_every_bucket_is_told_of_with_its_times_and_names(both: Both) -> None:
    ear = both.ear
    for rank in range(both.ranks):
        layouts: dict[int, Layout] = {y.number: y for batch in ear.batches(rank) for y in batch.layouts}
        steps = ear.steps(rank)[1:8]  # of the first way, after DDP has laid its buckets out anew
        names = {f"{i}.{part}" for i in range(4) for part in ("weight", "bias")}
        for step in steps:
            held = [layouts[bucket.layout] for bucket in step.buckets]
            assert len(held) > 1
            assert sorted(name for layout in held for name in layout.parameters) == sorted(names)
            assert sum(layout.payload_bytes for layout in held) == 4 * 4 * (WIDTH * WIDTH + WIDTH)
            assert [layout.index for layout in held] == list(range(len(held)))
            reduced = next(sync for sync in step.syncs if sync.kind == SYNC_GRADIENTS)
            launches = [bucket.launch_us for bucket in step.buckets]
            assert launches == sorted(launches)
            assert all(bucket.launch_us <= bucket.end_us for bucket in step.buckets)
            assert launches[-1] <= reduced.end_us
            assert max(bucket.end_us for bucket in step.buckets) <= step.length_us


def test_a_hook_that_cannot_be_recorded_is_noted(both: Both) -> None:
    assert any("built-in communication hook" in note for hello in both.ear.hellos() for note in hello.notes)
    assert any("built-in communication hook" in hello.missing.get(BUCKETS, "") for hello in both.ear.hellos())
