"""Ranks with fewer batches than others: told before the run hangs, and nothing of runs that provide for it."""

import pytest

from ddpmon.analysis.kinds.kind import USED_UP_SHARE
from ddpmon.messages import DDP, Loader, Model, Setup
from tests.findings import of_kinds
from tests.worlds import own_times, world_with


def told(*batches, steps=30, again=False, joins=False, loaders=1, parallelism=DDP, ranks=None):
    """Findings after so many steps of ranks whose loaders have so many batches."""
    world = world_with(own_times(steps, len(batches)), transfer=9.0)
    model = Model(0, ranks or len(batches), joins=joins)
    setups = {
        rank: Setup([Loader(batches=count, again=again)] * loaders, [model]) for rank, count in enumerate(batches)
    }
    run = {"world_size": len(batches), "parallelism": parallelism, "setups": setups}
    return of_kinds("uneven_batches", world=world, **run)


def test_the_ranks_with_the_fewest_batches_are_named_with_the_batch_after_which_the_run_hangs():
    (finding,) = told(160, 160, 120, 120)
    assert (finding.severity, finding.ranks) == ("info", [2, 3])
    assert finding.text == "ranks 2-3 have 120 batches, others 160: may hang after batch 120"
    assert finding.evidence["batches"] == [160, 160, 120, 120]
    (finding,) = told(160, 170, 40, steps=int(40 * USED_UP_SHARE.enter))
    assert (finding.severity, finding.ranks) == ("warn", [2])
    assert finding.text.startswith("rank 2 has 40 batches, others 160 to 170: may hang after batch 40")


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (dict(joins=True), "Join provides for it"),
        (dict(again=True), "the first epoch went well"),
        (dict(steps=130), "a rank came further than its batches"),
        (dict(loaders=2), "which of them ends the loop is not known"),
        (dict(parallelism="FSDP"), "it is another way to train"),
        (dict(ranks=1), "each model is in a group of its own"),
    ],
)
def test_a_run_that_may_provide_for_it_is_left_alone(run, why):
    assert told(160, 120, **run) == [], why


def test_even_or_unknown_numbers_of_batches_are_none():
    assert told(120, 120) == []
    assert told(120, 0) == []
