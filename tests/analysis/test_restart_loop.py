"""Attempts that fail alike at the same step, and restarts that are no such loop."""

from __future__ import annotations

import pytest

from ddpmon.analysis.evidence import Evidence
from ddpmon.analysis.findings import all_findings
from ddpmon.analysis.processes.failures import FirstFailure
from ddpmon.messages import Attempt

CAUSE = "IndexError: Target 7 is out of bounds, at train.py:31 main"
LOST = "it exited unexpectedly, as a killed process does"


def attempts(*ends, ranks=(1,)):
    return [Attempt(number, 2, steps, list(ranks), cause, "exit 1") for number, (steps, cause) in enumerate(ends, 1)]


def found(ended, step=0, failed=None):
    evidence = Evidence(attempts=ended, step=step, failed=failed, world_size=2)
    return [finding for finding in all_findings(None, evidence) if finding.kind == "restart_loop"]


@pytest.mark.parametrize("step", [0, 79, 81])
def test_attempts_that_failed_alike_after_as_many_steps_are_told_while_the_next_one_runs(step):
    (finding,) = found(attempts((80, CAUSE), (80, CAUSE)), step)
    assert finding.text == f"attempts 1-2 failed in the same way after 80 steps: rank 1 failed: {CAUSE}"
    assert finding.severity == "critical"
    assert "checkpoint after that step" in finding.advice
    assert finding.evidence == {"attempts": 2, "steps": 80}


def test_the_attempt_that_failed_last_is_one_of_them():
    failed = FirstFailure(1, CAUSE, "exit 1", (1,))
    (finding,) = found(attempts((12, LOST), (80, CAUSE), (81, CAUSE)), 80, failed)
    assert finding.text.startswith("attempts 2-4 failed in the same way after 81 steps:")


def test_an_attempt_that_could_not_connect_its_ranks_again_hides_no_loop():
    refused = "RuntimeError: Gloo connectFullMesh failed with timed out connecting: Connection refused"
    lost = FirstFailure(0, refused, "exit 1", (0,), only_lost_peer=True)
    (finding,) = found(attempts((80, CAUSE), (80, CAUSE), (0, refused)), 0, lost)
    assert finding.text.startswith("attempts 1-2 failed in the same way after 80 steps:")
    (finding,) = found(attempts((80, CAUSE), (0, refused), (80, CAUSE)), 0, None)
    assert finding.text.startswith("attempts 1, 3 failed in the same way after 80 steps:")


def test_attempts_that_fail_before_a_step_are_told_so():
    (finding,) = found(attempts((0, CAUSE), (0, CAUSE)))
    assert finding.text.startswith("attempts 1-2 failed in the same way before their first step:")


@pytest.mark.parametrize(
    ("ended", "step", "failed"),
    [
        (attempts((80, CAUSE)), 0, None),
        (attempts((80, CAUSE), (240, CAUSE)), 0, None),  # a lost node comes when it comes
        (attempts((80, CAUSE), (80, "ValueError: no")), 0, None),
        (attempts((80, CAUSE), (80, CAUSE)), 82, None),  # this attempt came further
        (attempts((80, CAUSE), (80, CAUSE)), 80, FirstFailure(0, "ValueError: no", "", (0,))),
        (attempts((80, None), (80, None)), 0, None),  # a node joined, twice
    ],
)
def test_other_restarts_are_no_loop(ended, step, failed):
    assert found(ended, step, failed) == []
