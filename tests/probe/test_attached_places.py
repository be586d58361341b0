"""A rank is entered at any place of a step: the first step that is told is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.conftest import SCRIPTS, Ear, forked

pytestmark = pytest.mark.e2e
SCRIPT = SCRIPTS / "entered.py"
PLACES = 6
LEAST_US = 19_000
"""Nearly what each phase of a backward takes in the script."""


@pytest.mark.parametrize("accumulated", [1, 2])
def test_the_first_step_is_whole_wherever_the_rank_was_entered(ear: Ear, tmp_path: Path, accumulated: int) -> None:
    """accumulated: Backward calls of a step, each of which reduces gradients."""
    done = forked(1, SCRIPT, str(tmp_path), ear.address, str(accumulated), address=None)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"places {PLACES}\n", "")
    steps = {step.end_us: step for batch in ear.batches(0) for step in batch.steps}
    told = [steps[end] for end in sorted(steps)]
    firsts = [step for step in told if step.step == 1]
    assert len(firsts) == PLACES
    for step in firsts:
        assert step.backwards == accumulated
        assert min(step.data_us, step.forward_us, step.backward_us) >= accumulated * LEAST_US, step
        assert step.optimizer_us >= LEAST_US, step
