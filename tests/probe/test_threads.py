"""Training outside the main thread is watched there: the training thread is the one that trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpmon.messages import STAGE_ENDED
from tests.probe.conftest import SCRIPTS, Ear, bare_and_watched, watched

pytestmark = pytest.mark.e2e
SCRIPT = SCRIPTS / "threads.py"


def test_a_thread_that_trains_is_the_training_thread_and_another_one_after_it(ear: Ear, tmp_path: Path) -> None:
    both = bare_and_watched(ear, tmp_path, 2, SCRIPT, "one_after_the_other")
    assert both.same_weights()
    for rank in (0, 1):
        steps = ear.steps(rank)
        assert [step.step for step in steps] == list(range(1, 13))
        assert all(step.forward_us and step.backward_us and step.syncs and step.loss for step in steps)
        assert all(step.optimizer_us for step in steps[1:])
        assert ear.batches(rank)[-1].stage == STAGE_ENDED
    assert not any(note for hello in ear.hellos() for note in hello.notes if "thread" in note)


def test_of_several_threads_that_train_a_note_says_which_one_is_watched(ear: Ear) -> None:
    watched(ear, 2, SCRIPT, "two_at_once")
    for rank in (0, 1):
        assert len(ear.steps(rank)) == 6, "of one of them"
        (note,) = {note for hello in ear.hellos() if hello.rank == rank for note in hello.notes if "threads" in note}
        assert note.startswith("several threads train in this process; ddpmon watches Thread-1")
