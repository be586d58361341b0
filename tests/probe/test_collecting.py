"""Garbage collection of real ranks is a finding where it comes again and again."""

from __future__ import annotations

import pytest

from tests.findings import of_kinds
from tests.probe.conftest import SCRIPTS, Ear, watched
from tests.worlds import world_of

pytestmark = pytest.mark.e2e


def test_collections_that_come_again_and_again_are_a_finding(ear: Ear) -> None:
    watched(ear, 2, SCRIPTS / "collecting.py")
    told = {rank: ear.steps(rank) for rank in (0, 1)}
    collected_us = [sum(step.gc_us for step in steps) for steps in told.values()]
    length_us = sum(step.length_us for step in told[0])
    assert min(collected_us) > 0.03 * length_us, "enough for a finding"
    assert [finding.kind for finding in of_kinds("gc_pauses", world=world_of(told), world_size=2)] == ["gc_pauses"]
